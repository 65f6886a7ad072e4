// How many sessions start in a second?

package bench

import (
	"context"
	"time"
)

// measureSessionStarts measures starts of sessions, as when a fleet restarts. Each session has a
// new connection, and all stay until the last one has started.
func measureSessionStarts(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, SessionStarts, func(s *Server, plan Plan) error {
		n := v.SessionStarts
		if plan.Sessions > 0 {
			n = min(n, plan.Sessions)
		}
		for began := time.Now(); ; {
			if _, _, err := startSessions(ctx, s, plan, (n+9)/10); err != nil {
				return err
			}
			if time.Since(began) >= plan.WarmUp {
				break
			}
		}
		took, cpu, err := startSessions(ctx, s, plan, n)
		if err != nil {
			return err
		}
		v.record("starts", float64(n)/took.Seconds())
		v.record("starts-cpu", float64(cpu.Nanoseconds())/1e3/float64(n))
		return nil
	})
}

// startSessions starts n sessions on new connections, and returns how long that took and the CPU
// time that the server used. It closes them before it returns.
func startSessions(ctx context.Context, s *Server, plan Plan, n int) (took, cpu time.Duration, err error) {
	before, err := s.Usage()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	c, err := openIdleSessions(ctx, plan, n)
	defer c.close()
	if err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := s.Usage()
	if err != nil {
		return 0, 0, err
	}
	return took, after.CPU - before.CPU, c.checkAlive()
}
