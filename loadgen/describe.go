// How fast are reads?

package loadgen

import "context"

var describeStrict = &Scenario{
	Name:   "describe-strict",
	Short:  "read semaphores, seeing every change acknowledged before",
	Series: []string{"describe"},
	Build:  buildDescribe(true),
}

var describeRelaxed = &Scenario{
	Name:   "describe-relaxed",
	Short:  "read semaphores as a replica's memory has them",
	Series: []string{"describe"},
	Build:  buildDescribe(false),
}

// buildDescribe reads persistent semaphores, 1,000 unless the load says otherwise, with data of the
// load's size.
func buildDescribe(strict bool) func(context.Context, *Env) (Workload, error) {
	return func(ctx context.Context, c *Env) (Workload, error) {
		n := c.callerCount()
		names := c.names(1000)
		list := names.all()
		sessions, err := c.StartSessions(ctx, c.sessionCount(n))
		if err != nil {
			return nil, err
		}
		readers, err := sessionsAs[CanRead](c.Target, "read", sessions)
		if err != nil {
			return nil, err
		}
		keepers, err := sessionsAs[CanStore](c.Target, "make names to read", sessions)
		if err != nil {
			return nil, err
		}
		w := &semaphoreWorkload{keepers: keepers, names: list}
		if err := createNames(ctx, keepers, list, c.data()); err != nil {
			_ = w.Close(ctx)
			return nil, err
		}
		cum := zipf(len(list), c.Skew)
		for i := range n {
			w.callers = append(w.callers, &describer{c, readers[i%len(readers)].Reader(strict), names,
				newPicker(c.Seed, i, names.n, cum)})
		}
		return w, nil
	}
}

type describer struct {
	c      *Env
	reader Reader
	names  nameSet
	pick   *picker
}

func (d *describer) Do(ctx context.Context, _ *Recorder) error {
	return d.c.read(ctx, d.reader, d.names.name(d.pick.next()))
}
