package loadgen

import "context"

// idleSessions: sessions that only live. What they cost the server is measured at its admin endpoint; whether they lived on is counted at the end.
var idleSessions = &Scenario{
	Name:   "idle-sessions",
	Short:  "hold sessions that do nothing; with --metrics, what each costs the server",
	Series: []string{"start"},
	Build: func(ctx context.Context, c *Crowd) (Workload, error) {
		rec := c.recorder()
		list, err := c.timedSessions(ctx, c.sessionCount(1000), func(_ int, d int64) { rec.note(0, always, d) })
		if err != nil {
			return nil, err
		}
		return &idleWork{c: c, sessions: list}, nil
	},
}

type idleWork struct {
	callers
	c        *Crowd
	sessions []Session
}

func (w *idleWork) Settle(_ context.Context, rec *Recorder) {
	for _, s := range w.sessions {
		if l, ok := s.(Lives); ok && !l.Alive() {
			rec.Fail(always, "session expired")
		}
	}
}

// Close ends the sessions one by one: closing their connections would not wait for so many.
func (w *idleWork) Close(ctx context.Context) error {
	return parallel(ctx, len(w.sessions), func(ctx context.Context, i int) error { return w.sessions[i].Close(ctx) })
}
