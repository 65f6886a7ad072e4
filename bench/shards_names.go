package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// measureShards measures what a pair costs on more shards. Each shard has as many callers, so that its batches are as
// large whatever their number; what a pair costs must not grow with it.
func measureShards(ctx context.Context, v *trial) error {
	system, ok := v.system.(ShardedSystem)
	if !ok {
		return fmt.Errorf("%s has no shards to choose", v.system.Name())
	}
	for _, n := range v.Shards {
		err := v.withServer(ctx, system.WithShards(n).Start, func(s *Server) error {
			plan, err := s.Plan(LockPairs)
			if err != nil {
				return err
			}
			o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: n * v.CallersPerShard})
			if err != nil {
				return err
			}
			return v.recordCPU(fmt.Sprintf("shards-%d", n), o)
		})
		if err != nil {
			return fmt.Errorf("%d shards: %w", n, err)
		}
	}
	return nil
}

// measureNames measures what a pair costs beside many names. One server holds a thousand names that nobody asks for, and
// another one a million. The same load goes to them in turns: a machine drifts while a million
// names are made.
func measureNames(ctx context.Context, v *trial) error {
	return v.withNames(ctx, v.FewNames, func(few *Server, plan Plan) error {
		return v.withNames(ctx, v.ManyNames, func(many *Server, planOfMany Plan) error {
			for range v.Turns {
				for _, x := range []struct {
					metric string
					server *Server
					plan   Plan
				}{{"names-few", few, plan}, {"names-many", many, planOfMany}} {
					o, err := v.load(ctx, x.server, x.plan, "lock-pairs",
						loadgen.Config{Callers: v.Callers, Duration: v.Length / time.Duration(v.Turns)})
					if err == nil {
						err = v.recordCPU(x.metric, o)
					}
					if err != nil {
						return fmt.Errorf("%s: %w", x.metric, err)
					}
				}
			}
			return nil
		})
	})
}

// withNames is withPlan for a server that holds so many names, and has nothing left to do for them.
func (v *trial) withNames(ctx context.Context, names int, do func(s *Server, plan Plan) error) error {
	return v.withPlan(ctx, ManyNames, func(s *Server, plan Plan) error {
		before, err := s.Process().Usage()
		if err != nil {
			return err
		}
		if err := raiseQuota(ctx, plan, names+v.Callers); err != nil {
			return err
		}
		if err := fill(ctx, plan, names, nil); err != nil {
			return err
		}
		// The measurement is of names that are there, not of making them: after that a snapshot may
		// still be under way, and the log is cut behind it.
		if err := pause(ctx, v.IdleDelay); err != nil {
			return err
		}
		// Without a collection memory says nothing.
		if collect := s.Process().Collect; collect != nil && names == v.ManyNames {
			if err := collect(ctx); err != nil {
				return err
			}
			after, err := s.Process().Usage()
			if err != nil {
				return err
			}
			v.record("names-memory", (float64(after.Resident)-float64(before.Resident))/float64(names))
		}
		return do(s, plan)
	})
}

// raiseQuota raises the node's quota where so many names, those that come and go among them, are
// more than it admits by default.
func raiseQuota(ctx context.Context, plan Plan, names int) error {
	t, ok := plan.Target.(*loadgen.Signalbox)
	if !ok || names < 1_000_000 {
		return nil
	}
	c, err := client.Open(ctx, t.Client)
	if err != nil {
		return err
	}
	defer c.Close()
	most := uint64(2 * names)
	_, err = admin.Nodes(c).Alter(ctx, "/default", admin.NodeConfig{MaxSemaphores: &most})
	return err
}

// fillConcurrency bounds how many names are made at a time.
const fillConcurrency = 2048

// fill makes names that stay, as many at a time as make full batches.
func fill(ctx context.Context, plan Plan, names int, data []byte) error {
	c, err := openIdleSessions(ctx, plan, 4)
	defer c.close()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	callers := min(fillConcurrency, names)
	var all sync.WaitGroup
	for k := range callers {
		all.Go(func() {
			keeper, ok := c.sessions[k%len(c.sessions)].(loadgen.CanStore)
			if !ok {
				cancel(fmt.Errorf("%s keeps no names", plan.Target.Name()))
			}
			for i := k; i < names && ctx.Err() == nil; i += callers {
				if err := keeper.Create(ctx, fmt.Sprintf("kept/%d", i), data); err != nil {
					cancel(fmt.Errorf("make name %d of %d: %w", i+1, names, err))
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
