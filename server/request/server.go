// Package request serves the requests of clients. One table has a row for each kind of request:
// where it is decoded, what it names, the right that it needs, its charge to a quota, and its
// handler. Handlers stand in one file for each family.
//
// Shards are known by the interface Shard. Replies from a shard's log go out through the Outbox of
// the goroutine that applies it.
package request

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/operator"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Config connects the request handlers to the instance.
type Config struct {
	Limits  Limits
	Cluster Cluster
	Shards  Shards

	Bindings *session.Table
	Renewals *session.Renewals

	Authenticator auth.Authenticator // nil: the cluster's tokens count
	Authorizer    auth.Authorizer    // nil: the cluster's rights count

	Context context.Context // ends when the server stops
	Go      func(func())    // starts a goroutine that ends with Context
	OnPanic func(where string, what any)
	Clock   replica.Clock
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Audit   func(audit.Event)
}

// Limits bound clients' requests.
type Limits struct {
	Window      int // requests of a connection that may be unanswered
	MaxFrame    uint32
	MaxData     int                    // bytes of a semaphore's data
	MaxSessions int                    // of a connection
	NodeOps     int                    // changes of nodes under way
	Memory      func() *protocol.Error // why nothing may be taken that takes memory; nil: it may
}

// Cluster is the cluster as this instance has it. Its methods are called once clients are let in.
type Cluster interface {
	// Instance is the number of this instance.
	Instance() uint64
	// Governor changes and reads coordination nodes, tokens and rights.
	Governor() *governor.Governor
	// Methods serves operators' methods. The caller may change the result.
	Methods() *operator.ClusterMethods
	// State is the cluster map as this instance has it now.
	State() *meta.State
	// FetchKeys fetches the keys of a trust from its issuer. The error is that of the fetch.
	FetchKeys(ctx context.Context, trust string) error
	// Sync waits until State is up to date.
	Sync(context.Context) error
}

// Shards finds the shards that this instance hosts.
type Shards interface {
	// Shard finds a shard; nil if it has no replica here.
	Shard(id uint64) Shard
	// CloseStream closes a stream of any shard, if there is one.
	CloseStream(conn, watch uint64)
}

// Server serves requests. Its methods may be called from any goroutine.
type Server struct {
	cfg        Config
	kinds      *requestTable
	windowFull string
	transport  *transport.Transport

	routes      atomic.Pointer[Routes]
	draining    atomic.Bool // requests are turned away
	auth        atomic.Pointer[auth.View]
	authMu      sync.Mutex // held while auth is replaced
	unconfirmed unconfirmedRequests
	confirming  context.Context // of confirmations of the map, until a stop
	endConfirm  context.CancelFunc
	outboxes    sync.Pool
	announcer   mapAnnouncer
	fanOut      *fanout.Pace

	AuthFailures       auth.Failures   // attempts of each host to come in
	refusedHellos      logging.Limiter // of the lines about hellos that were refused
	Tokens             Tokens
	tokenChecks        tokenChecks
	NodeOps, NodeLists chan struct{} // a slot for each change, or list, of nodes under way
	methods            chan struct{} // the same of operators' methods
}

// New makes a server that has no transport and no routes yet.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, kinds: newRequestTable(),
		windowFull: fmt.Sprintf("connection has %d requests unanswered, the limit of its window; wait for answers",
			cfg.Limits.Window),
		NodeOps:   make(chan struct{}, cfg.Limits.NodeOps),
		NodeLists: make(chan struct{}, maxNodeLists),
		methods:   make(chan struct{}, maxMethods),
	}
	s.fanOut = fanout.New(func() time.Duration { return cfg.Clock.Now() })
	s.Tokens.server, s.Tokens.changed = s, make(chan struct{}, 1)
	s.confirming, s.endConfirm = context.WithCancel(cfg.Context)
	s.announcer.server, s.announcer.paces = s, map[uint64]*announcePace{}
	shared := cfg.Metrics.NewReplies()
	s.outboxes.New = func() any { return &Outbox{server: s, counts: shared} }
	return s
}

// SetTransport sets the transport. It is called before anything is sent.
func (s *Server) SetTransport(t *transport.Transport) { s.transport = t }

// NewClient returns the handler above a connection.
func (s *Server) NewClient(c *transport.Conn) transport.Client {
	return &Client{Conn: session.Conn{Conn: c, Table: s.cfg.Bindings}, server: s}
}

// Routes returns the newest map prepared here, or nil before the first.
func (s *Server) Routes() *Routes { return s.routes.Load() }

// MapChanged follows a map that this instance has carried out, and notifies the clients. One
// goroutine at a time calls it and Reroute.
func (s *Server) MapChanged(state *meta.State) {
	former := s.Routes()
	s.routes.Store(newRoutes(state, s.cfg.Shards.Shard, former))
	if former != nil && former.State.MapVersion() != state.MapVersion() {
		s.announcer.announceMap()
	}
}

// AnnounceLeader notifies all clients who leads a shard.
func (s *Server) AnnounceLeader(m *protocol.MapChanged) {
	s.announcer.notify(m, func(*Client) bool { return true })
}

// AnnounceBuckets notifies clients that a shard, which leads here, serves more buckets: those whose
// requests were refused since the last map at once, and all at a bounded pace. message is called
// when it is sent; if it returns nil, nothing is sent.
func (s *Server) AnnounceBuckets(shard uint64, message func() *protocol.MapChanged) {
	s.announcer.announce(shard, s.transport.Connections(), func(all bool) {
		if m := message(); m != nil {
			s.announcer.notify(m, func(c *Client) bool { return all || c.awaitsMap.Load() })
		}
	})
}

// Reroute prepares the same map again: the shards that are hosted here are others.
func (s *Server) Reroute() {
	if r := s.Routes(); r != nil {
		s.routes.Store(newRoutes(r.State, s.cfg.Shards.Shard, r))
	}
}

// Drain turns requests and hellos away from here on.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.endConfirm() // waiting requests are answered that the map may be behind
}

// Draining reports whether requests are turned away.
func (s *Server) Draining() bool { return s.draining.Load() }

// Auth returns the newest view of tokens and rights, or nil before the first.
func (s *Server) Auth() *auth.View { return s.auth.Load() }

// Client returns an open connection, or nil when it is gone.
func (s *Server) Client(id uint64) *Client {
	if c := s.transport.Conn(id); c != nil {
		return c.Client().(*Client)
	}
	return nil
}

// EachClient visits every open connection. Those that come or go meanwhile may be missed.
func (s *Server) EachClient(visit func(c *Client)) {
	s.transport.Each(func(c *transport.Conn) { visit(c.Client().(*Client)) })
}

// LastReceived returns when bytes last arrived on a connection; 0 if it is closed.
func (s *Server) LastReceived(conn uint64) time.Duration {
	if c := s.transport.Conn(conn); c != nil {
		return c.LastReceived()
	}
	return 0
}

// Flush has everything written that was sent.
func (s *Server) Flush() { s.transport.Flush() }

// FanOut is the pace of messages to many connections alike.
func (s *Server) FanOut() *fanout.Pace { return s.fanOut }

// FlushSoon is Flush for frames that may wait a moment for more.
func (s *Server) FlushSoon() { s.transport.FlushSoon() }

// Panicked reports a panic that was contained elsewhere. The goroutine must still have its stack.
func (s *Server) Panicked(where string, what any) { s.cfg.OnPanic(where, what) }

// Guard, deferred, contains and reports a panic, and calls then, if not nil, to close what it hit.
func (s *Server) Guard(where string, then func()) {
	if p := recover(); p != nil {
		s.cfg.OnPanic(where, p)
		if then != nil {
			then()
		}
	}
}
