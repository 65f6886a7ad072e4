package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/hosting"
	"github.com/signalbox-dev/signalbox/server/membership"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Server is a running instance. Its methods may be called from any goroutine.
type Server struct {
	cfg      Config
	clock    replica.Clock
	log      *slog.Logger
	metrics  *metrics.Metrics
	instance uint64
	maxConns int
	memory   *memoryLimit
	maxFrame uint32

	lock         *os.File        // of the data folder
	peers        *peer.Transport // nil: alone for good
	links        cluster.Transport
	certs        *certs.Certs // of clients' TLS; nil: there is none
	clusterCerts *certs.Certs // of instances' TLS; nil: there is none
	entry        *cluster.Bootstrap
	member       *cluster.Service
	membership   *membership.Member
	host         *replica.Host
	hosting      *hosting.Hosting
	audit        auditLog
	meta         *membership.Meta
	governor     *governor.Governor
	shards       shardTable
	flusher      *delivery.Flusher
	requests     *request.Server

	transport *transport.Transport
	bindings  session.Table
	renewals  *session.Renewals

	adminListener net.Listener
	adminServer   *http.Server
	startup       startup

	ctx       context.Context // ends when the server stops
	cancel    context.CancelFunc
	running   sync.WaitGroup // everything that ends with ctx
	leaving   atomic.Bool    // no more clients should come
	listening bool           // clients are let in
	ready     atomic.Bool
	stopTicks func()

	stopOnce sync.Once
	stopErr  error
	failOnce sync.Once
	cause    error         // why the server stops by itself; set before it does
	done     chan struct{} // closed when a defect ended the server, or it was stopped
	err      error
}

// Start opens the data folder, makes a cluster if the folder is new, waits until every shard has a
// leader, and opens the listeners. It waits for peers, and for a majority of the meta shard, for as
// long as ctx lasts. Meanwhile the operators' address answers, and reports what the start waits
// for. If ctx ends first, Start stops what it began and returns an error. The server runs until
// Shutdown or Close.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := boot(ctx, cfg,
		(*Server).openAuth,      // before clients are let in
		(*Server).openListeners, // clients come in
		(*Server).openMetrics,   // they count what the other steps opened
	)
	if err != nil {
		return nil, err
	}
	s.ready.Store(true)
	s.log.Info("serving", "listen", s.Addr(), "tls", s.TLSAddr(), "admin", s.AdminAddr(), "shards", len(s.shards.all()), "cluster", s.routing().State.Cluster())
	return s, nil
}

// boot starts a server until it is a member of a cluster, and then takes the last steps.
func boot(ctx context.Context, cfg Config, last ...func(*Server, context.Context) error) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:      cfg,
		clock:    cfg.Clock,
		log:      cfg.Logger,
		maxFrame: protocol.MaxFrameLen, // members' messages may be long whatever Limits.MaxData
		memory:   newMemoryLimit(cfg.Limits.MaxMemory),
		renewals: session.NewRenewals(),
		done:     make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metrics = metrics.New()
	s.meta = membership.NewMeta(cfg.Clock)
	s.requests = request.New(s.requestConfig())
	s.membership = membership.New(s.ctx, membership.Config{
		Meta: s.meta, Clock: s.clock, Logger: s.log, OfflineAfter: cfg.OfflineAfter,
		Go: s.running.Go, Led: func() []uint64 { return s.shards.Led() }, Started: s.ready.Load, Failed: s.done, Fail: s.fail,
	})
	s.hosting = hosting.New(s.ctx, hosting.Config{
		Meta: s.meta, Member: s.membership, Clock: s.clock, Logger: s.log, Dir: cfg.DataDir, Memory: cfg.inMemory(), Source: cfg.restore,
		Serve: func(x *hosting.Shard) hosting.Front { return newShardHost(s, x) },
		Route: func(tier uint8, bucket uint32) (shard, epoch uint64) { return s.routing().Home(tier, bucket) }, Heard: s.lastReceived,
		MapChanged: s.mapChanged, Go: s.running.Go, Contain: s.panicked, Fail: s.fail,
	})
	s.shards = shardTable{&s.hosting.Shards}

	progress, started := context.WithCancel(s.ctx)
	defer started()
	s.running.Go(func() { s.startup.logProgress(progress, s.log) })
	for _, step := range append([]func(*Server, context.Context) error{
		(*Server).limitConnections, // open files
		(*Server).readCerts,        // before they are needed
		(*Server).listen,           // addresses are taken before anything else, so that a second server fails without touching data
		(*Server).openAdmin,        // health and readiness, from here on
		(*Server).makeFolder,       //
		(*Server).openLinks,        // other instances, and who this one is
		(*Server).openAudit,        // before anything is applied
		(*Server).openLog,          // host, meta shard
		(*Server).auditRecovery,    //
		(*Server).openShards,       // replicas of the map
		(*Server).joinCluster,      // the cluster exists and knows that this instance is there
	}, last...) {
		if err := step(s, ctx); err != nil {
			_ = s.Close()
			return nil, withRecovery(err)
		}
	}
	return s, nil
}

// fail ends the server because of a defect it cannot serve on with.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		err = withRecovery(err)
		s.log.Error("server fails", "error", err)
		s.err = err
		s.ready.Store(false)
		close(s.done)
	})
}

// routing is the newest map that is prepared here, nil before the first.
func (s *Server) routing() *request.Routes { return s.requests.Routes() }

// mapChanged prepares a map that was carried out, and notifies the clients.
func (s *Server) mapChanged(state *meta.State) {
	former := s.routing()
	s.requests.SetRoutes(request.NewRoutes(state, s.shards.forRequests, former))
	s.requests.SetAuth(state)
	if former != nil && former.State.MapVersion() != state.MapVersion() {
		s.broadcastMapChanged(&protocol.MapChanged{Version: state.MapVersion()})
	}
}

// broadcastMapChanged notifies every connection.
func (s *Server) broadcastMapChanged(m *protocol.MapChanged) {
	defer s.transport.Flush()
	s.transport.Each(func(c *transport.Conn) {
		if c.Established() {
			c.Append(protocol.KindMapChanged, 0, 0, m)
		}
	})
}

// lastReceived is when something last arrived on a connection; 0 if it is closed.
func (s *Server) lastReceived(id uint64) time.Duration {
	if c := s.transport.Conn(id); c != nil {
		return c.LastReceived()
	}
	return 0
}

// guard, deferred, contains a panic in a callback. The panic is logged with its stack and counted;
// then, if not nil, closes what was hit. The process goes on.
func (s *Server) guard(where string, then func()) {
	p := recover()
	if p == nil {
		return
	}
	s.panicked(where, p)
	if then != nil {
		then()
	}
}

// panicked logs and counts a contained panic. The goroutine must still have the panic's stack.
func (s *Server) panicked(where string, p any) {
	s.metrics.Panics.Inc()
	s.log.Error("panic contained", "where", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
