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

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Server is a running instance. Its methods may be called from any goroutine.
type Server struct {
	cfg        Config
	clock      replica.Clock
	log        *slog.Logger
	metrics    *serverMetrics
	instance   uint64
	maxConns   int
	memory     *memoryLimit
	maxFrame   uint32
	windowFull string

	lock            *os.File        // of the data folder
	peers           *peer.Transport // nil: alone for good
	links           cluster.Transport
	certs           *certs.Certs // of clients' TLS; nil: there is none
	clusterCerts    *certs.Certs // of instances' TLS; nil: there is none
	entry           *cluster.Bootstrap
	member          *cluster.Service
	detector        *detectorDriver
	host            *replica.Host
	hosting         *hosting
	audit           auditLog
	backups         *backups
	meta            *metaShard
	governor        *governor.Governor
	shards          shardTable
	flusher         *delivery.Flusher
	droppedMessages atomic.Uint64 // messages between leaders that were dropped
	routes          atomic.Pointer[routes]
	kinds           *requestTable

	transport    *transport.Transport
	bindings     *bindings
	renewals     *leaseRenewals
	auth         atomic.Pointer[auth.View]
	authMu       sync.Mutex // held while auth is replaced
	authFailures auth.Failures
	nodeOps      chan struct{} // a slot for each change of a node under way
	nodeLists    chan struct{} // the same of lists
	methods      chan struct{} // and of operators' methods
	outboxes     sync.Pool

	adminListener net.Listener
	adminServer   *http.Server
	startup       startup

	ctx          context.Context // ends when the server stops
	cancel       context.CancelFunc
	running      sync.WaitGroup // everything that ends with ctx
	unknownNodes unknownNodes
	leaving      atomic.Bool // no more clients should come
	draining     atomic.Bool // requests are turned away
	listening    bool        // clients are let in
	founded      bool        // this process has made the cluster
	registered   atomic.Bool // the cluster was told that this process is there
	ready        atomic.Bool
	stopTicks    func()

	stopOnce sync.Once
	stopErr  error
	failOnce sync.Once
	cause    error         // why the server stops by itself; set before it does
	done     chan struct{} // closed when a defect ended the server, or it was stopped
	err      error
}

// Start opens the data folder, makes a cluster when it is new, waits until every shard leads, and opens the listeners. It waits for peers, and for a majority of the meta shard, for as
// long as ctx lasts; meanwhile the operators' address answers, and says what it waits for. When ctx ends before that, it stops what it began and returns an error. The server runs until
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
	s.log.Info("serving", "listen", s.Addr(), "tls", s.TLSAddr(), "admin", s.AdminAddr(), "shards", len(s.shards.all()), "cluster", s.routing().state.Cluster())
	return s, nil
}

// boot starts a server as far as there is a cluster, and then as these steps say.
func boot(ctx context.Context, cfg Config, last ...func(*Server, context.Context) error) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:        cfg,
		clock:      cfg.Clock,
		log:        cfg.Logger,
		kinds:      newRequestTable(),
		maxFrame:   protocol.MaxFrameLen, // members' messages may be long whatever Limits.MaxData
		memory:     newMemoryLimit(cfg.Limits.MaxMemory),
		windowFull: fmt.Sprintf("connection has %d requests unanswered, the limit of its window; wait for answers", cfg.Limits.Window),
		bindings:   newBindings(),
		nodeOps:    make(chan struct{}, cfg.Limits.NodeOps),
		nodeLists:  make(chan struct{}, maxNodeLists),
		methods:    make(chan struct{}, maxMethods),
		done:       make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.outboxes.New = func() any { return &outbox{server: s, counts: s.metrics.shared} }
	s.metrics = newMetrics(s)
	s.renewals = newLeaseRenewals(s)
	s.backups = newBackups(s)
	s.meta, s.hosting, s.detector = newMetaShard(cfg.Clock), newHosting(s), newDetectorDriver(s, cfg.OfflineAfter)

	progress, started := context.WithCancel(s.ctx)
	defer started()
	s.running.Go(func() { s.logProgress(progress) })
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

// Addr is the address clients connect to; empty when there is none without TLS.
func (s *Server) Addr() string { return s.transport.Addr() }

// TLSAddr is the address clients connect to over TLS; empty when there is none.
func (s *Server) TLSAddr() string { return s.transport.TLSAddr() }

// AdminAddr is the address of metrics, health and profiles; empty when there is none.
func (s *Server) AdminAddr() string {
	if s.adminListener == nil {
		return ""
	}
	return s.adminListener.Addr().String()
}

// Done is closed when the server has stopped, by Shutdown, Close, or a defect; then Err says which.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is the defect that ended the server, nil when it was stopped. It is set before Done is closed.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
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

// Live says why the process should be restarted; nil when it is fine.
func (s *Server) Live() error { return s.Err() }

// shardIDs are the shards that have a replica here, in order.
func (s *Server) shardIDs() (ids []uint64) {
	for _, d := range s.shards.all() {
		ids = append(ids, d.id)
	}
	return ids
}

// closeNow closes a connection, and has that written.
func (s *Server) closeNow(c *conn, st protocol.Status, text string) {
	c.Close(transport.Immediate, st, text)
	s.transport.Flush()
}

// guard, deferred, contains a panic in a callback: it is logged with its stack and counted, and then, if given, runs to close what was hit. The process
// goes on: what is broken is one connection's business.
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

// panicked logs and counts a panic that was contained. It is called while the goroutine still has the panic's stack.
func (s *Server) panicked(where string, p any) {
	s.metrics.panics.Inc()
	s.log.Error("panic contained", "where", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
