package server

import (
	"cmp"
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/server/operator"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// readCerts reads the certificates, and has them followed while the server runs.
func (s *Server) readCerts(context.Context) error {
	if err := s.certs.open(&s.cfg, s.log); err != nil {
		return err
	}
	s.startup.instances.Store(s.certs.instances)
	s.certs.each(func(whose string, c *certs.Certs) {
		s.running.Go(func() { c.Watch(s.ctx) })
		s.metrics.Gauge(metrics.CertificateExpiry, func() float64 { return float64(c.Expires().Unix()) }, whose)
		s.metrics.Gauge(metrics.CertificateReloadsFailed, func() float64 { return float64(c.Failures()) }, whose)
	})
	return nil
}

// listen takes the addresses. Nothing is accepted yet.
func (s *Server) listen(ctx context.Context) (err error) {
	lc := transport.ListenConfig()
	cfg := s.transportConfig()
	defer func() {
		s.transport = transport.New(cfg) // closes the listeners in any case
		s.requests.SetTransport(s.transport)
	}()
	if s.cfg.restore != nil {
		return nil // it serves no clients
	}
	if s.cfg.Listen != Off {
		if cfg.Plain, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
			return fmt.Errorf("listen for clients on %s: %w; is another server running, or choose another address",
				s.cfg.Listen, err)
		}
	}
	if s.certs.clients != nil {
		cfg.TLSConfig = s.certs.clients.Server()
		if cfg.TLS, err = lc.Listen(ctx, "tcp", s.cfg.TLSListen); err != nil {
			return fmt.Errorf("listen for clients over TLS on %s: %w; is another server running, or choose another address",
				s.cfg.TLSListen, err)
		}
	}
	if s.cfg.Admin == Off {
		return nil
	}
	if s.adminListener, err = lc.Listen(ctx, "tcp", s.cfg.Admin); err != nil {
		return fmt.Errorf("listen for operators on %s: %w; choose another address, or %q", s.cfg.Admin, err, Off)
	}
	return nil
}

// transportConfig returns the transport's limits, and the handlers of its connections.
func (s *Server) transportConfig() transport.Config {
	l := &s.cfg.Limits
	_, manual := s.clock.(*replica.ManualClock)
	return transport.Config{
		Limits: transport.Limits{
			Connections: s.maxConns, ConnectionsPerAddress: l.MaxConnectionsPerAddress, MaxFrame: s.maxFrame,
			InTotal: l.InTotal, OutSoft: l.OutSoft, OutHard: l.OutHard, OutTotal: l.OutTotal, OutAge: l.OutAge,
			Hello: l.HelloTimeout, Frame: l.FrameTimeout, Idle: l.IdleTimeout,
		},
		Clock: s.clock, ManualClock: manual, FanOut: s.requests.FanOut(), Log: s.log, Metrics: s.metrics,
		NewClient: s.requests.NewClient, NewCycle: s.requests.NewCycle,
		OnSweep: s.memory.Measure, OnPanic: s.panicked, Fail: s.fail,
	}
}

// openListeners lets clients in.
func (s *Server) openListeners(context.Context) error {
	if err := s.transport.Open(); err != nil {
		return err
	}
	s.listening = true
	s.running.Go(func() { s.renewals.Run(s.ctx, s.transport.Flush) })
	if m, ok := s.clock.(*replica.ManualClock); ok {
		s.stopTicks = m.OnTick(func(thorough bool) {
			if thorough {
				s.transport.Sweep()
			}
		})
	}
	return nil
}

// requestConfig returns this instance's configuration of the request handlers.
func (s *Server) requestConfig(shards request.Shards) request.Config {
	l := &s.cfg.Limits
	return request.Config{
		Limits: request.Limits{
			Window: l.Window, MaxFrame: s.maxFrame, MaxData: l.MaxData, MaxSessions: l.MaxSessionsPerConnection,
			NodeOps: l.NodeOps, Memory: s.memory.Rejection,
		},
		Cluster: clusterForRequests{s}, Shards: shards, Bindings: &s.bindings, Renewals: s.renewals,
		Authenticator: s.cfg.Authenticator, Authorizer: s.cfg.Authorizer,
		Context: s.ctx, Go: s.running.Go, OnPanic: s.panicked, Clock: s.clock, Log: s.log,
		Metrics: s.metrics, Audit: s.audit.write,
	}
}

// clusterForRequests is the cluster as this instance has it. It implements request.Cluster.
type clusterForRequests struct{ s *Server }

func (c clusterForRequests) Instance() uint64             { return c.s.instance }
func (c clusterForRequests) Governor() *governor.Governor { return c.s.governor }
func (c clusterForRequests) State() *meta.State           { return c.s.meta.State() }
func (c clusterForRequests) FetchKeys(ctx context.Context, trust string) error {
	return c.s.member.FetchKeys(ctx, trust)
}
func (c clusterForRequests) Sync(ctx context.Context) error    { return c.s.meta.Sync(ctx) }
func (c clusterForRequests) Methods() *operator.ClusterMethods { return c.s.clusterMethods() }

func (s *Server) clusterMethods() *operator.ClusterMethods {
	return &operator.ClusterMethods{Self: s.instance, ClusterChanger: s.governor, Observe: s.membership.Observe,
		AskGovernor: s.member.FetchPlan, Backup: s.member.FetchBackup, Top: s.topOf, AuditLog: s.audit.log.Tail}
}

// topOf answers operators' method top.
func (s *Server) topOf(in protocol.TopRequest, mayRead func(path string) bool) (protocol.Top, error) {
	top, err := s.serving.Top(in, mayRead)
	self, _ := s.meta.State().Instance(s.instance)
	top.Instance.ID, top.Instance.Name = s.instance, self.Name
	if a := top.Instance.Activity; a != nil {
		a.Connections = s.transport.Connections()
	}
	return top, err
}

// advertise returns the address at which clients connect, as the cluster map has it.
func (s *Server) advertise() string {
	plain, tls := "", ""
	if s.cfg.Listen != Off {
		plain = cmp.Or(s.cfg.Advertise, s.Addr(), s.cfg.Listen) // a restore does not listen
	}
	address := s.TLSAddr()
	if s.cfg.restore != nil && s.certs.clients != nil {
		address = s.cfg.TLSListen
	}
	if address != "" {
		tls = cmp.Or(s.cfg.TLSAdvertise, address)
	}
	return transport.JoinAddresses(plain, tls)
}
