// What do sessions cost that only live?

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

// Close ends the sessions one by one: closing their connections would not wait for so many.
func (w *idleWorkload) Close(ctx context.Context) error {
	return Parallel(ctx, len(w.sessions), func(ctx context.Context, i int) error { return w.sessions[i].Close(ctx) })
}
