// What does an idle session take of memory and CPU?

package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// measureIdle measures memory and CPU: first of the server alone, then with idle sessions, on
// connections of their own and on shared ones, each on a server of its own. Memory is the resident
// memory of the process, after the server has collected its garbage, without the sockets' memory in
// the kernel.
func measureIdle(ctx context.Context, v *trial) error {
	var aloneCPU float64
	shares := true // its sessions may share connections
	for _, kind := range []struct {
		use      Workload
		name     string
		sessions int
		alone    time.Duration // how long it is watched without a session
	}{{IdleOwn, "idle-own", v.IdleOwn, v.IdleLength}, {IdleShared, "idle-shared", v.IdleShared, 0}} {
		if kind.use == IdleShared && !shares {
			break
		}
		err := v.withServer(ctx, v.system.Start, func(s *Server) error {
			plan, unsupported := s.Plan(kind.use)
			_, err := s.Plan(IdleShared)
			shares = !errors.Is(err, ErrUnsupported)
			empty, err := watchIdle(ctx, s, v.IdleDelay, kind.alone)
			if err != nil {
				return err
			}
			if kind.alone > 0 {
				aloneCPU = empty.cpu
				v.record("empty-memory", empty.memory)
				v.record("empty-cpu", empty.cpu)
			}
			if unsupported != nil {
				return unsupported
			}
			n := kind.sessions
			if plan.Sessions > 0 {
				n = min(n, plan.Sessions)
			}
			c, err := openIdleSessions(ctx, plan, n)
			defer c.close()
			if err != nil {
				return err
			}
			full, err := watchIdle(ctx, s, v.IdleDelay, v.IdleLength)
			if err != nil {
				return err
			}
			if err := c.checkAlive(); err != nil {
				return err
			}
			v.record(kind.name+"-memory", (full.memory-empty.memory)/float64(n))
			v.record(kind.name+"-cpu", max(0, full.cpu-aloneCPU)/float64(n))
			return nil
		})
		if err != nil && !errors.Is(err, ErrUnsupported) {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return nil
}

type idleUse struct {
	memory float64 // bytes
	cpu    float64 // microseconds a second
}

// watchIdle leaves a server alone for the delay, then watches it for the length. With a length of 0
// it returns the memory only.
func watchIdle(ctx context.Context, s *Server, delay, length time.Duration) (idleUse, error) {
	if err := pause(ctx, delay); err != nil {
		return idleUse{}, err
	}
	if err := s.collect(ctx); err != nil {
		return idleUse{}, err
	}
	if err := pause(ctx, delay/5); err != nil { // so that the collection is not part of the CPU
		return idleUse{}, err
	}
	if length == 0 {
		u, err := s.Usage()
		return idleUse{memory: float64(u.Resident)}, err
	}
	begun := time.Now()
	cpu, err := s.cpuOver(ctx, length)
	if err != nil {
		return idleUse{}, err
	}
	took := time.Since(begun)
	u, err := s.Usage()
	return idleUse{memory: float64(u.Resident), cpu: float64(cpu.Microseconds()) / took.Seconds()}, err
}

type idleSessions struct {
	conns    []loadgen.Conn
	sessions []loadgen.Session
}

// openIdleSessions opens n sessions as planned, as many at a time as loadgen.Parallel does. The
// caller closes the result, also after an error.
func openIdleSessions(ctx context.Context, plan Plan, n int) (*idleSessions, error) {
	conns := plan.Connections
	if conns == loadgen.Each {
		conns = n
	}
	conns = min(conns, n)
	c := &idleSessions{conns: make([]loadgen.Conn, conns), sessions: make([]loadgen.Session, n)}
	start := func(ctx context.Context, i int) (err error) {
		ctx, cancel := context.WithTimeout(ctx, callDeadline)
		defer cancel()
		if i < conns {
			c.conns[i], err = plan.Target.Open(ctx)
		}
		if err == nil {
			c.sessions[i], err = c.conns[i%conns].Session(ctx)
		}
		if err != nil {
			err = fmt.Errorf("start session %d of %d: %w", i+1, n, err)
		}
		return err
	}
	err := loadgen.Parallel(ctx, conns, start)
	if err == nil {
		err = loadgen.Parallel(ctx, n-conns, func(ctx context.Context, i int) error { return start(ctx, conns+i) })
	}
	return c, err
}

// checkAlive returns an error if sessions have ended: an ended session costs nothing.
func (c *idleSessions) checkAlive() error {
	dead := 0
	for _, s := range c.sessions {
		if l, ok := s.(loadgen.CanReportLiveness); ok && !l.Alive() {
			dead++
		}
	}
	if dead > 0 {
		return fmt.Errorf("%d of %d sessions did not live until the end", dead, len(c.sessions))
	}
	return nil
}

func (c *idleSessions) close() {
	_ = loadgen.Parallel(context.Background(), len(c.conns), func(_ context.Context, i int) error {
		if c.conns[i] != nil {
			_ = c.conns[i].Close()
		}
		return nil
	})
}
