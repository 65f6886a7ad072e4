// Package gateway serves the coordination and rate limiter services of YDB's gRPC protocol from a
// signalbox cluster, so that YDB's SDKs are clients of it.
//
//	g, err := gateway.New(gateway.Config{
//		Cluster:   client.Config{Endpoints: []string{"127.0.0.1:7070"}},
//		Database:  "/local",
//		Advertise: []string{"ydb.example.com:2136"},
//	})
//	l, err := net.Listen("tcp", ":2136")
//	err = g.Serve(l)
//
// A stream of YDB's Session call is one native session, which the gateway keeps attached for its
// client. DESIGN.md has the rules.
package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_RateLimiter_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Scheme_V1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
)

// Config is the configuration of a gateway. Cluster.Endpoints, Database and Advertise are required.
type Config struct {
	// Cluster configures the connection to the cluster. Token is not used: clients show their own.
	Cluster client.Config
	// Database is the prefix of all paths that clients use, such as /local. It is taken off before
	// a path reaches the cluster.
	Database string
	// Advertise are the addresses (host:port) of all gateways of the cluster, this one included, as
	// clients reach them. Give all gateways the same list.
	Advertise []string
	// TLS, if not nil, is the listener's.
	TLS *tls.Config
	// MaxMemory bounds the memory of all streams, in bytes: requests, also partly received ones,
	// waits, watches, and unread answers. Beyond it the stream with the most ends with OVERLOADED,
	// or the connection with the most partly received messages. Default: half of GOMEMLIMIT, or 1
	// GiB without one.
	MaxMemory int64
	// MaxConnections is the number of clients' connections; default 10,000, and always at most half
	// of the files that may be open. More are refused.
	MaxConnections int
	// MaxConnectionsPerAddress is the same of one client address, or of one IPv6 network of 64
	// bits; default 0: unlimited.
	MaxConnectionsPerAddress int
	// CertificateExpires, if not nil, says when the listener's certificate expires, for metrics.
	CertificateExpires func() time.Time
	// Logger gets the log for operators. Default: no log. LogDropped returns how many of its lines
	// were dropped, for metrics; nil: none.
	Logger     *slog.Logger
	LogDropped func() uint64
}

const (
	// maxReceive and maxSend bound messages, in bytes, as YDB does. YDB's SDKs receive 64 MB by
	// default. They send a message again for ever if it ends its stream, so one that is longer than
	// a request may be is received and refused.
	maxReceive = 64 << 20
	maxSend    = 64 << 20
	// maxRequest bounds a request on a session, in bytes.
	maxRequest = 4 << 20
	// maxDescription bounds the answer to a describe, in bytes: below maxSend, with room for the
	// message around it.
	maxDescription = 60 << 20

	// maxHeaders bounds the headers of a call, in bytes. Tokens and names of methods are kept, and
	// gRPC's own bound is 16 MiB.
	maxHeaders = 64 << 10

	// maxStreams bounds the streams of one connection, so that one client cannot take all memory. A
	// program that opens a session for each of its users has thousands on one connection.
	maxStreams = 10_000

	// minClientPing is how often a client may send HTTP/2 pings. One SDK sends them every 10 s,
	// also without a stream, and gRPC's default of 5 minutes would disconnect it.
	minClientPing = 5 * time.Second

	// handshakeTimeout bounds a TLS and HTTP/2 handshake.
	handshakeTimeout = 10 * time.Second

	// idlePing and idlePingTimeout find connections without streams whose client is gone.
	idlePing        = 30 * time.Second
	idlePingTimeout = 10 * time.Second

	// unaryTimeout bounds a unary call, from its headers on.
	unaryTimeout = 30 * time.Second

	// closeTimeout is how long Close waits for streams to receive why they end.
	closeTimeout = 2 * time.Second
)

// Gateway serves YDB clients. Make one with New.
type Gateway struct {
	cfg        Config
	prefix     string // of paths: the database without a slash at the end
	server     *grpc.Server
	clusters   *gateway.Clients[*cluster]
	delays     *delayTable
	unknown    *methodLog
	handshakes *handshakeLog
	listings   listings
	memory     *memory
	calls      *callTable
	left       *leftTable
	metrics    Metrics

	connections connectionTable

	ctx  context.Context // ends when the gateway closes
	stop context.CancelFunc
}

// New makes a gateway. It connects to the cluster when the first client calls.
func New(cfg Config) (*Gateway, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	prefix, err := databasePrefix(cfg.Database)
	if err != nil {
		return nil, err
	}
	if len(cfg.Cluster.Endpoints) == 0 {
		return nil, errors.New("no endpoint of the cluster is given; name at least one instance as host:port")
	}
	for _, a := range cfg.Advertise {
		if _, err := endpointOf(a); err != nil {
			return nil, err
		}
	}
	if len(cfg.Advertise) == 0 {
		return nil, errors.New("no address is advertised; name this gateway's as host:port")
	}
	g := &Gateway{cfg: cfg, prefix: prefix, delays: newDelayTable(), unknown: newMethodLog(cfg.Logger),
		handshakes: &handshakeLog{log: cfg.Logger}, listings: newListings(),
		calls: newCallTable(), left: newLeftTable()}
	limit, err := connectionBound(cmp.Or(cfg.MaxConnections, defaultConnections), cfg.Logger)
	if err != nil {
		return nil, err
	}
	g.connections = connectionTable{limit: limit, hostLimit: cfg.MaxConnectionsPerAddress, metrics: &g.metrics,
		hosts: make(map[string]int)}
	g.metrics.certificateExpires, g.metrics.logDropped = cfg.CertificateExpires, cfg.LogDropped
	g.memory = newMemory(cmp.Or(cfg.MaxMemory, memoryBound()), &g.metrics.shed)
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.clusters = clusterConnections(g)
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxSendMsgSize(maxSend),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: idlePing, Timeout: idlePingTimeout}),
		grpc.UnknownServiceHandler(g.unknownMethod),
		grpc.InTapHandle(g.tap),
		grpc.UnaryInterceptor(g.unary),
	}
	if cfg.TLS != nil {
		options = append(options, grpc.Creds(loggedTLS{credentials.NewTLS(cfg.TLS), g.handshakes}))
	}
	g.server = grpc.NewServer(options...)
	Ydb_Discovery_V1.RegisterDiscoveryServiceServer(g.server, &discovery{g: g})
	Ydb_Coordination_V1.RegisterCoordinationServiceServer(g.server, &coordination{g: g})
	Ydb_Scheme_V1.RegisterSchemeServiceServer(g.server, &scheme{g: g})
	Ydb_RateLimiter_V1.RegisterRateLimiterServiceServer(g.server, &rateLimiter{g: g})
	return g, nil
}

// Serve serves a listener until Close.
func (g *Gateway) Serve(l net.Listener) error {
	if err := g.server.Serve(&limitedListener{l, g}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Metrics are the gateway's counters.
func (g *Gateway) Metrics() *Metrics { return &g.metrics }

// Close ends all streams with UNAVAILABLE, and leaves their sessions to the cluster: a client that
// restores its session at another gateway within its timeout keeps its semaphores.
func (g *Gateway) Close() {
	g.stop()
	late := time.AfterFunc(closeTimeout, g.server.Stop)
	g.server.GracefulStop()
	late.Stop()
	g.clusters.Close()
}

// cluster is the gateway's state for a connection to the cluster: the sessions of the clients with
// its token.
type cluster struct {
	g *Gateway
	*gateway.Connection[*cluster]

	checking atomic.Bool // checkToken runs

	mu        sync.Mutex
	sessions  map[uint64]*session   // by id: those that are kept attached
	restoring map[uint64]*restoring // by id: the newest restore in progress
}

// clusterConnections are the gateway's connections to the cluster, by token. One with sessions
// stays.
func clusterConnections(g *Gateway) *gateway.Clients[*cluster] {
	return gateway.NewClients(g.ctx, gateway.ClientsConfig[*cluster]{
		Client: g.cfg.Cluster, Purpose: "rate limits of YDB clients", Logger: g.cfg.Logger,
		State: func(c *gateway.Connection[*cluster]) *cluster {
			return &cluster{g: g, Connection: c, sessions: make(map[uint64]*session),
				restoring: make(map[uint64]*restoring)}
		},
		Busy:    func(c *gateway.Connection[*cluster]) bool { return c.State.hasSessions() },
		Changed: func(by int64) { g.metrics.clusters.Add(by) },
		Refused: func() { g.metrics.tokensRefused.Add(1) },
	})
}

func (c *cluster) hasSessions() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)+len(c.restoring) > 0
}
