package server

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/issuer"
	"github.com/signalbox-dev/signalbox/server/membership"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/server/transport"
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
	memory   *request.MemoryLimit
	maxFrame uint32

	lock       *os.File        // of the data folder
	peers      *peer.Transport // nil: alone for good
	links      cluster.Transport
	certs      certificates
	entry      *cluster.Bootstrap
	member     *cluster.Service
	membership *membership.Member
	host       *replica.Host
	hosting    *shardhost.Hosting
	audit      auditLog
	meta       *membership.Meta
	governor   *governor.Governor
	issuers    *issuer.Keeper
	requests   *request.Server
	serving    *shardhost.Serving

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

// Parts are the parts of an instance. Tests of whole instances look into it; programs have no use
// for it.
type Parts struct {
	Config     Config // with its defaults
	Metrics    *metrics.Metrics
	Memory     *request.MemoryLimit
	Peers      *peer.Transport // nil: alone for good
	Member     *cluster.Service
	Membership *membership.Member
	Meta       *membership.Meta
	Governor   *governor.Governor
	Host       *replica.Host
	Hosting    *shardhost.Hosting
	Serving    *shardhost.Serving
	Requests   *request.Server
	Bindings   *session.Table
	Transport  *transport.Transport
}

// Parts are the parts of the instance, once Start has returned.
func (s *Server) Parts() Parts {
	return Parts{
		Config: s.cfg, Metrics: s.metrics, Memory: s.memory, Peers: s.peers, Member: s.member, Membership: s.membership,
		Meta: s.meta, Governor: s.governor,
		Host: s.host, Hosting: s.hosting, Serving: s.serving, Requests: s.requests, Bindings: &s.bindings,
		Transport: s.transport,
	}
}

// Start opens the data folder, makes a cluster if the folder is new, waits until every shard has a
// leader, and opens the listeners. It waits for peers, and for a majority of the meta shard, for as
// long as ctx lasts. Meanwhile the operators' address answers, and reports the cause of the wait.
// If ctx ends first, Start stops what it began and returns an error. If the disk fails and a
// write does not return, the error says that the process must end. The server runs until Shutdown
// or Close.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := boot(ctx, cfg,
		(*Server).openAuth,      // before clients are let in
		(*Server).openListeners, // clients come in
		(*Server).openMetrics,   // the counters of the other steps
	)
	if err != nil {
		return nil, err
	}
	s.ready.Store(true)
	s.log.Info("serving", "listen", s.Addr(), "tls", s.TLSAddr(), "admin", s.AdminAddr(),
		"shards", len(s.hosting.Shards.All()), "cluster", s.meta.State().Cluster())
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
		memory:   request.NewMemoryLimit(cfg.Limits.MaxMemory),
		renewals: session.NewRenewals(),
		done:     make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metrics = metrics.New()
	s.meta = membership.NewMeta(cfg.Clock)
	hosted := new(shardhost.Table)
	s.requests = request.New(s.requestConfig(hosted))
	s.membership = membership.New(s.ctx, membership.Config{
		Meta: s.meta, Clock: s.clock, Logger: s.log, OfflineAfter: cfg.OfflineAfter,
		Go: s.running.Go, Led: hosted.Led, Started: s.ready.Load, Failed: s.done, Fail: s.fail,
	})
	s.serving = shardhost.NewServing(shardhost.ServingConfig{
		Requests: s.requests, Bindings: &s.bindings, Shards: hosted,
		Watches: delivery.WatchLimits{Watchers: cfg.Limits.MaxWatchers, Streams: cfg.Limits.MaxStreams,
			OneShots: cfg.Limits.MaxWatches},
		Clock: s.clock, Log: s.log, Metrics: s.metrics, Series: cfg.Limits.MaxSeries, Audit: s.audit.write,
	})
	s.hosting = shardhost.New(s.ctx, shardhost.Config{
		Shards: hosted, Serving: s.serving, Heard: s.requests.LastReceived, MapChanged: s.requests.MapChanged,
		Route:  func(tier uint8, bucket uint32) (shard, epoch uint64) { return s.requests.Routes().Home(tier, bucket) },
		Format: func() uint8 { return s.requests.Routes().Format() },
		Meta:   s.meta, Member: s.membership, Clock: s.clock, Logger: s.log, Dir: cfg.DataDir, Memory: cfg.inMemory(),
		Go: s.running.Go, Contain: s.panicked, Fail: s.fail,
	})

	progress, started := context.WithCancel(s.ctx)
	defer started()
	s.running.Go(func() { s.startup.logProgress(progress, s.log) })
	for _, step := range append([]func(*Server, context.Context) error{
		(*Server).limitConnections, // open files
		(*Server).readCerts,        // before they are needed
		// addresses are taken before anything else, so that a second server fails without touching data
		(*Server).listen,
		(*Server).openAdmin,     // health and readiness, from here on
		(*Server).makeFolder,    //
		(*Server).openLinks,     // other instances, and who this one is
		(*Server).openAudit,     // before anything is applied
		(*Server).openLog,       // host, meta shard
		(*Server).auditRecovery, //
		(*Server).openShards,    // replicas of the map
		(*Server).joinCluster,   // the cluster exists and knows that this instance is there
	}, last...) {
		if err := s.take(ctx, step); errors.Is(err, errStuck) {
			return nil, err
		} else if err != nil {
			_ = s.Close()
			return nil, withRecovery(err)
		}
	}
	return s, nil
}

// errStuck: the disk has failed, and something still waits for it. It may wait for ever.
var errStuck = errors.New("end the process: a part of it waits for a disk that has failed")

// take takes a step of the start. A write to a disk that fails does not return: the failure is
// reported, and ends the step's wait.
func (s *Server) take(ctx context.Context, step func(*Server, context.Context) error) error {
	ended := make(chan error, 1)
	go func() { ended <- step(s, ctx) }()
	select {
	case err := <-ended:
		return err
	case <-s.done:
	}
	select {
	case err := <-ended:
		return cmp.Or(err, s.err)
	case <-time.After(s.cfg.ShutdownTimeout):
		return fmt.Errorf("%w; %w", s.err, errStuck)
	}
}

// fail ends the server because of a defect it cannot serve on with.
func (s *Server) fail(err error) {
	s.failOnce.Do(func() {
		err = withRecovery(err)
		s.log.Error("server failed", "error", err)
		s.err = err
		s.ready.Store(false)
		close(s.done)
	})
}

// panicked logs and counts a contained panic. The goroutine must still have the panic's stack.
func (s *Server) panicked(where string, p any) {
	s.metrics.Panics.Inc()
	s.log.Error("panic contained", "where", where, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
