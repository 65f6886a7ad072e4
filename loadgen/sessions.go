// What do sessions cost that only live, and how fast do they start and end?

package loadgen

import "context"

// idleSessions: sessions that only live. What they cost the server is measured at its admin
// endpoint; whether they lived on is counted at the end.
var idleSessions = &Scenario{
	Name:   "idle-sessions",
	Short:  "hold sessions that do nothing; with --metrics, what each costs the server",
	Series: []string{"start"},
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		rec := c.recorder()
		list, err := c.timedSessions(ctx, c.sessionCount(1000), func(_ int, d int64) { rec.note(0, afterWarmUp, d) })
		if err != nil {
			return nil, err
		}
		return &idleWorkload{c: c, sessions: list}, nil
	},
}

type idleWorkload struct {
	callers
	c        *Env
	sessions []Session
}

func (w *idleWorkload) Drain(_ context.Context, rec *Recorder) {
	for _, s := range w.sessions {
		if l, ok := s.(CanReportLiveness); ok && !l.Alive() {
			rec.Fail(afterWarmUp, "session expired")
		}
	}
}

// Close ends the sessions one by one: closing their connections would not wait for all of them.
func (w *idleWorkload) Close(ctx context.Context) error {
	return Parallel(ctx, len(w.sessions), func(ctx context.Context, i int) error { return w.sessions[i].Close(ctx) })
}

// sessionStorm: sessions that start and end, on connections that stay or on a new one for each.
var sessionStorm = &Scenario{
	Name:      "session-storm",
	Short:     "start and stop sessions; with --connections each, on a new connection each time",
	Series:    []string{"start", "stop", "session"},
	Operation: 2,
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		conns := make([]Conn, n)
		if c.Connections != Each {
			var err error
			if conns, err = c.assignConns(ctx, n); err != nil {
				return nil, err
			}
		}
		w := make(callers, n)
		for i := range w {
			w[i] = &sessionStarter{c, conns[i]}
		}
		return w, nil
	},
}

type sessionStarter struct {
	c    *Env
	conn Conn // nil: each session has one of its own, which the start includes
}

func (s *sessionStarter) Do(ctx context.Context, rec *Recorder) error {
	t0 := s.c.Now()
	conn := s.conn
	if conn == nil {
		var err error
		if conn, err = s.c.open(ctx); err != nil {
			return err
		}
		defer conn.Close()
	}
	x, err := s.c.startSession(ctx, conn)
	if err != nil {
		return err
	}
	t1 := s.c.Now()
	rec.Note(0, t1, t1-t0)
	if err := s.c.endSession(ctx, x); err != nil {
		return err
	}
	t2 := s.c.Now()
	rec.Note(1, t2, t2-t1)
	return nil
}
