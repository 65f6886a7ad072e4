package bench

import (
	"context"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// block is work that is done in one visit to a server, by each system that the bars or the README compare in it.
type block struct {
	name     string
	subjects []string
	slow     bool // takes long, and compares with nothing that drifts: a few rounds are enough
	run      func(v *visit, ctx context.Context) error
}

var blocks = []block{
	{name: "pairs", subjects: []string{Box, Etcd, ZooKeeper, Rueidis}, run: (*visit).pairs},
	{name: "own", subjects: []string{Box, Echo, GoRedis}, run: (*visit).own},
	{name: "alone", subjects: []string{Dragonboat, Box, Etcd, ZooKeeper, GoRedis}, run: (*visit).alone},
	{name: "reads", subjects: []string{Box, Etcd, ZooKeeper, Rueidis}, run: (*visit).reads},
	{name: "watches", subjects: []string{Box, Etcd, ZooKeeper, GoRedis}, run: (*visit).watches},
	{name: "crowd", subjects: []string{Box, GoRedis}, run: (*visit).crowd},
	{name: "three", subjects: []string{Box, Etcd, ZooKeeper}, run: (*visit).three},
	{name: "idle", subjects: []string{Box, Etcd, ZooKeeper, GoRedis}, slow: true, run: (*visit).idle},
	{name: "shards", subjects: []string{Box}, slow: true, run: (*visit).shards},
	{name: "names", subjects: []string{Box}, slow: true, run: (*visit).names},
	{name: "bytes", subjects: []string{Box}, slow: true, run: (*visit).bytes},
}

// pairs: P1, and P4 right after it on the same server, at half the rate it has just shown.
func (v *visit) pairs(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Crowded)
		if err != nil {
			return err
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers})
		if err != nil {
			return err
		}
		v.note("pairs-1024", PerSecond, o.Rate)
		v.note("pairs-1024-p50", Milliseconds, o.ms("pair", 50))
		v.note("pairs-1024-p99", Milliseconds, o.ms("pair", 99))
		if o.perCPU > 0 {
			v.note("pairs-1024-cpu", PerCPUSecond, o.perCPU)
			v.note("pairs-1024-written", Bytes, o.written)
		}
		plan.WarmUp = 0 // it has been warm
		half, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers, Rate: o.Rate / 2})
		if err != nil {
			return err
		}
		v.note("half-p99", Milliseconds, half.ms("pair", 99))
		v.note("half-rate", PerSecond, half.Rate)
		return nil
	})
}

// own: P2. Each connection carries one request at a time, as in a crowd of small processes.
func (v *visit) own(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Own)
		if err != nil {
			return err
		}
		if v.peer.Name() == Echo {
			o, err := v.load(ctx, s, plan, "describe-strict", loadgen.Config{Callers: v.OwnCallers})
			if err != nil {
				return err
			}
			v.note("echo-256", PerSecond, o.Rate)
			return nil
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.OwnCallers})
		if err != nil {
			return err
		}
		v.note("pairs-256", PerSecond, o.Rate)
		v.note("pairs-256-p99", Milliseconds, o.ms("pair", 99))
		return nil
	})
}

// alone: P3 and P5. Bare dragonboat measures itself.
func (v *visit) alone(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Alone)
		if err != nil {
			return err
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: 1, Keys: 1})
		if err != nil {
			return err
		}
		v.note("pair-1", Milliseconds, o.ms("pair", 50))
		v.note("pair-1-p99", Milliseconds, o.ms("pair", 99))
		if plan, err = s.Drive(Handoffs); err != nil {
			return err
		}
		plan.WarmUp /= 2 // most of it has been running
		if o, err = v.load(ctx, s, plan, "contended-lock", loadgen.Config{Callers: v.Contenders, Keys: 1}); err != nil {
			return err
		}
		v.note("handoffs-64", PerSecond, o.Rate)
		v.note("handoffs-64-p99", Milliseconds, o.ms("handoff", 99))
		return nil
	})
}

// reads: P6, of a thousand names.
func (v *visit) reads(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Reads)
		if err != nil {
			return err
		}
		c := loadgen.Config{Callers: v.Readers, Keys: 1000, DataSize: 64}
		o, err := v.load(ctx, s, plan, "describe-strict", c)
		if err != nil {
			return err
		}
		// What Redis answers has seen every write of its one server, but there is no other to agree with: it stands in both rows.
		v.note("strict-256", PerSecond, o.Rate)
		plan.WarmUp = 0
		if o, err = v.load(ctx, s, plan, "describe-relaxed", c); err != nil {
			return err
		}
		v.note("relaxed-256", PerSecond, o.Rate)
		return nil
	})
}

// watches: P7 over few connections, where the system can share them.
func (v *visit) watches(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Watching)
		if err != nil {
			return err
		}
		o, err := v.fanOut(ctx, s, plan, "watch-5000", v.Watchers)
		if err != nil {
			return err
		}
		if o.perCPU > 0 {
			v.note("watch-5000-cpu", PerCPUSecond, o.perCPU*float64(v.Watchers))
		}
		if v.peer.Name() == Box {
			_, err = v.fanOut(ctx, s, plan, "watch-20000", v.ManyWatchers)
		}
		return err
	})
}

// crowd: P7 with as many connections as there can be at both ends, the same for both.
func (v *visit) crowd(ctx context.Context) error {
	return v.with(ctx, v.peer, func(s Server) error {
		plan, err := s.Drive(Crowd)
		if err != nil {
			return err
		}
		plan.Connections = min(plan.Connections, v.ManyWatchers)
		_, err = v.fanOut(ctx, s, plan, "crowd-20000", v.ManyWatchers)
		return err
	})
}

func (v *visit) fanOut(ctx context.Context, s Server, plan Plan, work string, watchers int) (*outcome, error) {
	scenario := "watch-stream"
	if plan.Once {
		scenario = "watch-oneshot"
	}
	// A change may take a second to reach all: the time must see some of them.
	o, err := v.load(ctx, s, plan, scenario, loadgen.Config{Callers: 1, Watchers: watchers, DataSize: 64, Duration: 2 * v.Length})
	if err != nil {
		return nil, err
	}
	v.note(work+"-p50", Milliseconds, o.ms("seen", 50))
	v.note(work+"-p99", Milliseconds, o.ms("seen", 99))
	return o, nil
}
