package bench

import (
	"context"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// benchmark is work that is done in one visit to a server, by each system that the bars or the
// README compare in it.
type benchmark struct {
	name     string
	subjects []string
	slow     bool // takes long, and compares with nothing that drifts: a few rounds are enough
	run      func(v *trial, ctx context.Context) error
}

var benchmarks = []benchmark{
	{name: "pairs", subjects: []string{Signalbox, Etcd, ZooKeeper, Rueidis}, run: (*trial).pairs},
	{name: "own", subjects: []string{Signalbox, Echo, GoRedis}, run: (*trial).ownConnections},
	{name: "alone", subjects: []string{Dragonboat, Signalbox, Etcd, ZooKeeper, GoRedis}, run: (*trial).singleCaller},
	{name: "reads", subjects: []string{Signalbox, Etcd, ZooKeeper, Rueidis}, run: (*trial).reads},
	{name: "watches", subjects: []string{Signalbox, Etcd, ZooKeeper, GoRedis}, run: (*trial).watches},
	{name: "crowd", subjects: []string{Signalbox, GoRedis}, run: (*trial).manyConnections},
	{name: "three", subjects: []string{Signalbox, Etcd, ZooKeeper}, run: (*trial).cluster},
	{name: "idle", subjects: []string{Signalbox, Etcd, ZooKeeper, GoRedis}, slow: true, run: (*trial).idle},
	{name: "shards", subjects: []string{Signalbox}, slow: true, run: (*trial).shards},
	{name: "names", subjects: []string{Signalbox}, slow: true, run: (*trial).names},
	{name: "bytes", subjects: []string{Signalbox}, slow: true, run: (*trial).dataCost},
}

// pairs: P1, and P4 right after it on the same server, at half the rate it has just shown.
func (v *trial) pairs(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(LockPairs)
		if err != nil {
			return err
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers})
		if err != nil {
			return err
		}
		v.record("pairs-1024", PerSecond, o.Rate)
		v.record("pairs-1024-p50", Milliseconds, o.ms("pair", 50))
		v.record("pairs-1024-p99", Milliseconds, o.ms("pair", 99))
		if o.perCPU > 0 {
			v.record("pairs-1024-cpu", PerCPUSecond, o.perCPU)
			v.record("pairs-1024-written", Bytes, o.written)
		}
		plan.WarmUp = 0 // it has been warm
		half, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers, Rate: o.Rate / 2})
		if err != nil {
			return err
		}
		v.record("half-p99", Milliseconds, half.ms("pair", 99))
		v.record("half-rate", PerSecond, half.Rate)
		return nil
	})
}

// ownConnections: P2. Each connection carries one request at a time, as in a crowd of small
// processes.
func (v *trial) ownConnections(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(OwnConnections)
		if err != nil {
			return err
		}
		if v.peer.Name() == Echo {
			o, err := v.load(ctx, s, plan, "describe-strict", loadgen.Config{Callers: v.OwnCallers})
			if err != nil {
				return err
			}
			v.record("echo-256", PerSecond, o.Rate)
			return nil
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.OwnCallers})
		if err != nil {
			return err
		}
		v.record("pairs-256", PerSecond, o.Rate)
		v.record("pairs-256-p99", Milliseconds, o.ms("pair", 99))
		return nil
	})
}

// singleCaller: P3 and P5. Bare dragonboat measures itself.
func (v *trial) singleCaller(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(SingleCaller)
		if err != nil {
			return err
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: 1, Keys: 1})
		if err != nil {
			return err
		}
		v.record("pair-1", Milliseconds, o.ms("pair", 50))
		v.record("pair-1-p99", Milliseconds, o.ms("pair", 99))
		if plan, err = s.Plan(Handoffs); err != nil {
			return err
		}
		plan.WarmUp /= 2 // most of it has been running
		if o, err = v.load(ctx, s, plan, "contended-lock", loadgen.Config{Callers: v.Contenders, Keys: 1}); err != nil {
			return err
		}
		v.record("handoffs-64", PerSecond, o.Rate)
		v.record("handoffs-64-p99", Milliseconds, o.ms("handoff", 99))
		return nil
	})
}

// reads: P6, of a thousand names.
func (v *trial) reads(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(Reads)
		if err != nil {
			return err
		}
		c := loadgen.Config{Callers: v.Readers, Keys: 1000, DataSize: 64}
		o, err := v.load(ctx, s, plan, "describe-strict", c)
		if err != nil {
			return err
		}
		// What Redis answers has seen every write of its one server, but there is no other to agree
		// with: it stands in both rows.
		v.record("strict-256", PerSecond, o.Rate)
		plan.WarmUp = 0
		if o, err = v.load(ctx, s, plan, "describe-relaxed", c); err != nil {
			return err
		}
		v.record("relaxed-256", PerSecond, o.Rate)
		return nil
	})
}

// watches: P7 over few connections, where the system can share them.
func (v *trial) watches(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(Watchers)
		if err != nil {
			return err
		}
		o, err := v.fanOut(ctx, s, plan, "watch-5000", v.Watchers)
		if err != nil {
			return err
		}
		if o.perCPU > 0 {
			v.record("watch-5000-cpu", PerCPUSecond, o.perCPU*float64(v.Watchers))
		}
		if v.peer.Name() == Signalbox {
			_, err = v.fanOut(ctx, s, plan, "watch-20000", v.ManyWatchers)
		}
		return err
	})
}

// manyConnections: P7 with as many connections as there can be at both ends, the same for both.
func (v *trial) manyConnections(ctx context.Context) error {
	return v.withServer(ctx, v.peer, func(s Server) error {
		plan, err := s.Plan(ManyConnections)
		if err != nil {
			return err
		}
		plan.Connections = min(plan.Connections, v.ManyWatchers)
		_, err = v.fanOut(ctx, s, plan, "crowd-20000", v.ManyWatchers)
		return err
	})
}

func (v *trial) fanOut(ctx context.Context, s Server, plan Plan, work string, watchers int) (*outcome, error) {
	scenario := "watch-stream"
	if plan.Once {
		scenario = "watch-oneshot"
	}
	// A change may take a second to reach all: the time must see some of them.
	o, err := v.load(ctx, s, plan, scenario, loadgen.Config{Callers: 1, Watchers: watchers, DataSize: 64, Duration: 2 * v.Length})
	if err != nil {
		return nil, err
	}
	v.record(work+"-p50", Milliseconds, o.ms("seen", 50))
	v.record(work+"-p99", Milliseconds, o.ms("seen", 99))
	return o, nil
}
