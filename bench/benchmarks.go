// How fast are pairs, hand-offs, reads and watches, on one server and on three?

package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// benchmark is work that is done in a visit to a server, by each system that the bars or the
// README compare in it.
type benchmark struct {
	name     string
	subjects []string
	slow     bool // takes long, and compares with nothing that drifts: a few rounds are enough
	turns    bool // its bars are nearer than a machine's drift in a visit: a round is Settings.Turns short visits
	run      func(ctx context.Context, v *trial) error
}

var benchmarks = []benchmark{
	{name: "pairs", subjects: []string{Signalbox, Etcd, ZooKeeper, Rueidis}, run: measurePairs},
	{name: "own", subjects: []string{Signalbox, Echo, GoRedis}, turns: true, run: measureOwnConnections},
	{name: "alone", subjects: []string{Dragonboat, Signalbox, Etcd, ZooKeeper, GoRedis}, turns: true, run: measureSingleCaller},
	{name: "rates", subjects: []string{Signalbox, Etcd, ZooKeeper, Rueidis}, run: measureRates},
	{name: "reads", subjects: []string{Signalbox, Etcd, ZooKeeper, Rueidis}, run: measureReads},
	{name: "watches", subjects: []string{Signalbox, Etcd, GoRedis}, run: measureWatches},
	{name: "each", subjects: []string{Signalbox, Etcd, ZooKeeper, GoRedis}, run: measureOwnWatchers},
	{name: "starts", subjects: []string{Signalbox, Etcd, ZooKeeper, GoRedis}, run: measureSessionStarts},
	{name: "three", subjects: []string{Signalbox, Etcd, ZooKeeper}, turns: true, run: measureCluster},
	{name: "idle", subjects: []string{Signalbox, Echo, Etcd, ZooKeeper, GoRedis}, slow: true, run: measureIdle},
}

func benchmarkNames() []string {
	names := make([]string, len(benchmarks))
	for i, b := range benchmarks {
		names[i] = b.name
	}
	return names
}

// measurePairs measures pairs over few connections.
func measurePairs(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, LockPairs, func(s *Server, plan Plan) error {
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers})
		if err != nil {
			return err
		}
		v.recordPairs("pairs-1024", o)
		return nil
	})
}

// measureOwnConnections measures pairs with a connection for each caller: it carries one request at
// a time, as with many small processes.
func measureOwnConnections(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, OwnConnections, func(s *Server, plan Plan) error {
		echo := v.system.Name() == Echo
		scenario := "lock-pairs"
		if echo {
			scenario = "describe-strict"
		}
		o, err := v.load(ctx, s, plan, scenario, loadgen.Config{Callers: v.OwnCallers})
		switch {
		case err != nil:
			return err
		case echo:
			v.record("echo-256", o.Rate)
		default:
			v.record("pairs-256", o.Rate)
			v.record("pairs-256-p99", o.ms("pair", 99))
			if o.perCPU > 0 {
				v.record("pairs-256-cpu", 1e6/o.perCPU)
			}
			v.record("pairs-256-client-cpu", o.Own.CPUPerOperationUS)
		}
		return nil
	})
}

// measureSingleCaller measures pairs of one caller alone, and hand-offs. Bare dragonboat measures
// itself.
func measureSingleCaller(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, SingleCaller, func(s *Server, plan Plan) error {
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: 1, Keys: 1})
		if err != nil {
			return err
		}
		v.record("pair-1", o.ms("pair", 50))
		v.record("pair-1-p99", o.ms("pair", 99))
		if plan, err = s.Plan(Handoffs); err != nil {
			return err
		}
		if o, err = v.load(ctx, s, plan, "contended-lock", loadgen.Config{Callers: v.Contenders, Keys: 1}); err != nil {
			return err
		}
		v.record("handoffs-64", o.Rate)
		v.record("handoffs-64-p99", o.ms("handoff", 99))
		return nil
	})
}

// measureReads measures reads of a thousand names. What Redis answers has seen every write of its
// one server, but there is no other to agree with: it stands in both rows.
func measureReads(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, Reads, func(s *Server, plan Plan) error {
		for _, kind := range []string{"strict", "relaxed"} {
			o, err := v.load(ctx, s, plan, "describe-"+kind, loadgen.Config{Callers: v.Readers, Keys: 1000, DataSize: 64})
			if err != nil {
				return err
			}
			v.record(kind+"-256", o.Rate)
		}
		return nil
	})
}

// measureWatches measures a change until all watchers have it, over few connections.
func measureWatches(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, Watchers, func(s *Server, plan Plan) error {
		o, err := fanOut(ctx, v, s, plan, "watch-5000", v.Watchers)
		if err != nil {
			return err
		}
		if o.perCPU > 0 {
			v.record("watch-5000-cpu", o.perCPU*float64(v.Watchers))
		}
		_, err = fanOut(ctx, v, s, plan, "watch-20000", v.ManyWatchers)
		return err
	})
}

// spareFiles are the open files of the load and of a server that are not connections of watchers. A
// starved client connects again before the old connection is closed.
const spareFiles = 2000

// measureOwnWatchers is measureWatches with a connection for each watcher. Where open files do not
// suffice, some connections carry two watchers.
func measureOwnWatchers(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, OwnWatchers, func(s *Server, plan Plan) error {
		for _, x := range []struct {
			metric   string
			watchers int
		}{{"each-5000", v.Watchers}, {"each-20000", v.ManyWatchers}} {
			if plan.Sessions > 0 && x.watchers > plan.Sessions {
				continue
			}
			own := plan
			if files := int(openFiles()); files > 0 && x.watchers > files-spareFiles {
				own.Connections = files - spareFiles
			}
			o, err := fanOut(ctx, v, s, own, x.metric, x.watchers)
			if err != nil {
				return err
			}
			if o.perCPU > 0 {
				v.record(x.metric+"-cpu", 1e3/o.perCPU)
				v.record(x.metric+"-client-cpu", o.Own.CPUPerOperationUS/1e3)
			}
		}
		return nil
	})
}

func fanOut(ctx context.Context, v *trial, s *Server, plan Plan, metric string, watchers int) (*outcome, error) {
	// A change may take a second to reach all: the time must see some of them.
	o, err := v.load(ctx, s, plan, "watch-stream",
		loadgen.Config{Callers: 1, Watchers: watchers, DataSize: 64, Duration: 2 * v.Length})
	if err != nil {
		return nil, err
	}
	v.record(metric+"-p50", o.ms("seen", 50))
	v.record(metric+"-p99", o.ms("seen", 99))
	return o, nil
}

// measureCluster measures pairs, one caller, hand-offs and reads on three servers. The result is
// the cost of three copies on one machine: the three servers and the load share its cores and its
// disk. On three machines each would have its own.
func measureCluster(ctx context.Context, v *trial) error {
	system, ok := v.system.(ClusterSystem)
	if !ok {
		return fmt.Errorf("%s is one server only", v.system.Name())
	}
	return v.withServer(ctx, system.StartCluster, func(s *Server) error {
		plan, err := s.Plan(LockPairs)
		if err != nil {
			return err
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers})
		if err != nil {
			return err
		}
		v.recordPairs("three-1024", o)
		for _, x := range []struct {
			use      Workload
			scenario string
			cfg      loadgen.Config
			record   func(o *outcome)
		}{
			{SingleCaller, "lock-pairs", loadgen.Config{Callers: 1, Keys: 1},
				func(o *outcome) { v.record("three-pair-1", o.ms("pair", 50)) }},
			{Handoffs, "contended-lock", loadgen.Config{Callers: v.Contenders, Keys: 1},
				func(o *outcome) { v.record("three-handoffs-64", o.Rate) }},
			{Reads, "describe-strict", loadgen.Config{Callers: v.Readers, Keys: 1000, DataSize: 64},
				func(o *outcome) { v.record("three-strict-256", o.Rate) }},
		} {
			switch plan, err = s.Plan(x.use); {
			case errors.Is(err, ErrUnsupported):
				continue
			case err != nil:
				return err
			}
			if o, err = v.load(ctx, s, plan, x.scenario, x.cfg); err != nil {
				return fmt.Errorf("three servers: %w", err)
			}
			x.record(o)
		}
		return nil
	})
}
