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

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/operator"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Config is what requests need of the instance. Functions are called once clients are let in.
type Config struct {
	Window      int // requests of a connection that may be unanswered
	MaxFrame    uint32
	MaxData     int // bytes of a semaphore's data
	MaxSessions int // of a connection
	NodeOps     int // changes of nodes under way

	Context  context.Context // ends when the server stops
	Go       func(func())    // starts what ends with Context
	OnPanic  func(where string, what any)
	Clock    replica.Clock
	Log      *slog.Logger
	Metrics  *metrics.Metrics
	Audit    func(audit.Event)
	Bindings *session.Table
	Renewals *session.Renewals

	Authenticator auth.Authenticator // nil: the cluster's tokens count
	Authorizer    auth.Authorizer    // nil: the cluster's rights count

	MemoryRejection func() *protocol.Error // why nothing may be taken that takes memory; nil: it may
	Instance        func() uint64
	Governor        func() *governor.Governor
	Methods         func() *operator.ClusterMethods
	MapReply        func(known uint64, secure bool) *protocol.MapReply
	MetaState       func() *meta.State
	SyncMeta        func(context.Context) error // waits until MetaState is up to date
	Shard           func(id uint64) Shard       // nil: it has no replica here
	CloseStream     func(conn, watch uint64)    // of any shard
}

// Server serves requests. Its methods may be called from any goroutine.
type Server struct {
	cfg        Config
	kinds      *requestTable
	windowFull string
	transport  *transport.Transport

	routes       atomic.Pointer[Routes]
	draining     atomic.Bool // requests are turned away
	auth         atomic.Pointer[auth.View]
	authMu       sync.Mutex // held while auth is replaced
	unknownNodes unknownNodes
	outboxes     sync.Pool

	AuthFailures       auth.Failures // attempts of each host to come in
	NodeOps, NodeLists chan struct{} // a slot for each change, or list, of nodes under way
	methods            chan struct{} // the same of operators' methods
}

// New makes a server that has no transport and no routes yet.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, kinds: newRequestTable(),
		windowFull: fmt.Sprintf("connection has %d requests unanswered, the limit of its window; wait for answers", cfg.Window),
		NodeOps:    make(chan struct{}, cfg.NodeOps),
		NodeLists:  make(chan struct{}, maxNodeLists),
		methods:    make(chan struct{}, maxMethods),
	}
	shared := cfg.Metrics.NewReplies()
	s.outboxes.New = func() any { return &Outbox{server: s, counts: shared} }
	return s
}

// SetTransport says where the clients are. It is called before anything is sent.
func (s *Server) SetTransport(t *transport.Transport) { s.transport = t }

// NewClient makes what stands above a connection.
func (s *Server) NewClient(c *transport.Conn) transport.Client {
	return &Client{Conn: session.Conn{Conn: c, Table: s.cfg.Bindings}, server: s}
}

// Routes is the newest map; nil: there is none yet.
func (s *Server) Routes() *Routes { return s.routes.Load() }

// SetRoutes installs a newer map.
func (s *Server) SetRoutes(r *Routes) { s.routes.Store(r) }

// Drain turns requests and hellos away from here on.
func (s *Server) Drain() { s.draining.Store(true) }

// Draining says whether requests are turned away.
func (s *Server) Draining() bool { return s.draining.Load() }

// Auth is the newest view of tokens and rights; nil: there is none yet.
func (s *Server) Auth() *auth.View { return s.auth.Load() }

// Client finds an open connection; nil when it is gone.
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

// guard, deferred, contains a panic, and then runs to close what was hit.
func (s *Server) guard(where string, then func()) {
	if p := recover(); p != nil {
		s.cfg.OnPanic(where, p)
		then()
	}
}
