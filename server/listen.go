package server

import (
	"context"
	"fmt"
	"net"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/operator"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// listen takes the addresses. Nothing is accepted yet.
func (s *Server) listen(ctx context.Context) (err error) {
	lc := net.ListenConfig{KeepAliveConfig: transport.KeepAlive}
	cfg := s.transportConfig()
	defer func() {
		s.transport = transport.New(cfg) // closes the listeners, whatever else fails
		s.requests.SetTransport(s.transport)
	}()
	if s.cfg.Listen != Off {
		if cfg.Plain, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
			return fmt.Errorf("listen for clients on %s: %w; is another server running, or choose another address", s.cfg.Listen, err)
		}
	}
	if s.certs != nil {
		cfg.TLSConfig = s.certs.Server()
		if cfg.TLS, err = lc.Listen(ctx, "tcp", s.cfg.TLSListen); err != nil {
			return fmt.Errorf("listen for clients over TLS on %s: %w; is another server running, or choose another address", s.cfg.TLSListen, err)
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

// transportConfig says what the transport may hold, and what stands above its connections.
func (s *Server) transportConfig() transport.Config {
	l := &s.cfg.Limits
	_, manual := s.clock.(*replica.ManualClock)
	return transport.Config{
		Limits: transport.Limits{
			Connections: s.maxConns, ConnectionsPerAddress: l.MaxConnectionsPerAddress, MaxFrame: s.maxFrame,
			InTotal: l.InTotal, OutSoft: l.OutSoft, OutHard: l.OutHard, OutTotal: l.OutTotal, OutAge: l.OutAge,
			Hello: l.HelloTimeout, Frame: l.FrameTimeout, Idle: l.IdleTimeout,
		},
		Clock: s.clock, ManualClock: manual, Log: s.log, Metrics: s.metrics.Set,
		NewClient: s.requests.NewClient, NewCycle: s.requests.NewCycle,
		OnSweep: s.memory.measure, OnPanic: s.panicked, Fail: s.fail,
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

// requestConfig says what requests need of this instance.
func (s *Server) requestConfig() request.Config {
	l := &s.cfg.Limits
	return request.Config{
		Window: l.Window, MaxFrame: s.maxFrame, MaxData: l.MaxData, MaxSessions: l.MaxSessionsPerConnection, NodeOps: l.NodeOps,
		Context: s.ctx, Go: s.running.Go, OnPanic: s.panicked, Clock: s.clock, Log: s.log, Metrics: s.metrics, Audit: s.audit.write,
		Bindings: &s.bindings, Renewals: s.renewals,
		Authenticator: s.cfg.Authenticator, Authorizer: s.cfg.Authorizer,
		MemoryRejection: s.memory.rejection,
		Instance:        s.Instance,
		Governor:        func() *governor.Governor { return s.governor },
		Methods:         s.clusterMethods,
		MapReply:        s.mapReply,
		MetaState:       s.meta.State,
		SyncMeta:        s.meta.Sync,
		Shard:           func(id uint64) request.Shard { return s.shards.forRequests(id) },
		CloseStream: func(conn, watch uint64) {
			for _, d := range s.shards.all() {
				d.delivery.CloseStream(conn, watch)
			}
		},
	}
}

func (s *Server) clusterMethods() *operator.ClusterMethods {
	return &operator.ClusterMethods{Self: s.instance, ClusterChanger: s.governor, Observe: s.membership.Observe, AskGovernor: s.member.FetchPlan, Backup: s.member.FetchBackup}
}

// mapReply is the map for a client, with the masters as they are now, and the addresses for its
// kind of connection.
func (s *Server) mapReply(known uint64, secure bool) *protocol.MapReply {
	m := governor.MapReply(s.routing().State, known, func(shard uint64) (instance, term uint64) {
		if d := s.shards.get(shard); d != nil {
			return d.LeaderInstance()
		}
		return 0, 0
	})
	for i := range m.Instances {
		m.Instances[i].Address = addressFor(m.Instances[i].Address, secure)
	}
	return &m
}
