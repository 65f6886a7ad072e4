package server

import (
	"context"
	"fmt"
	"net"

	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// listen takes the addresses. Nothing is accepted yet.
func (s *Server) listen(ctx context.Context) (err error) {
	lc := net.ListenConfig{KeepAliveConfig: transport.KeepAlive}
	cfg := s.transportConfig()
	defer func() { s.transport = transport.New(cfg) }() // closes the listeners, whatever else fails
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
		NewClient: func(c *transport.Conn) transport.Client {
			return &conn{Conn: session.Conn{Conn: c, Table: &s.bindings}, server: s}
		},
		NewCycle: func() transport.Cycle { return s.newReadCycle() },
		OnSweep:  s.memory.measure, OnPanic: s.panicked, Fail: s.fail,
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
