package loadgen

import (
	"context"
	"fmt"
)

// sessionStorm: sessions that start and end, on connections that stay.
var sessionStorm = &Scenario{
	Name:      "session-storm",
	Short:     "start and stop sessions",
	Series:    []string{"start", "stop", "session"},
	Operation: 2,
	Build: func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		if c.Connections == Each {
			return nil, fmt.Errorf("session-storm keeps its connections; give their number")
		}
		conns, err := c.assignConns(ctx, n)
		if err != nil {
			return nil, err
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
	conn Conn
}

func (s *sessionStarter) Do(ctx context.Context, rec *Recorder) error {
	t0 := s.c.Now()
	x, err := s.conn.Session(ctx)
	if err != nil {
		return err
	}
	t1 := s.c.Now()
	rec.Note(0, t1, t1-t0)
	if err := x.Close(ctx); err != nil {
		return err
	}
	t2 := s.c.Now()
	rec.Note(1, t2, t2-t1)
	return nil
}
