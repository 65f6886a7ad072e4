package bench

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Servers is how many of them make the smallest cluster that survives the loss of one.
const Servers = 3

// ClusterPeer is a Peer that can be several servers, of which each has a copy of everything.
type ClusterPeer interface {
	Peer

	// StartCluster starts three servers that keep their data in folders of their own below an empty
	// one, and waits until they are one cluster with nothing left to do: three voters, leaders
	// where they are to stay.
	StartCluster(ctx context.Context, dir string) (Server, error)
}

// clusterPeer is a Clustered as a Peer that starts as three servers.
type clusterPeer struct{ ClusterPeer }

func (t clusterPeer) Start(ctx context.Context, dir string) (Server, error) {
	return t.StartCluster(ctx, dir)
}

// cluster: P10. What is measured is what three copies cost on one machine: whatever the three
// servers and the load do comes out of the same cores and the same disk. On three machines each
// would have its own.
func (v *trial) cluster(ctx context.Context) error {
	p, ok := v.peer.(ClusterPeer)
	if !ok {
		return fmt.Errorf("%s is one server only", v.peer.Name())
	}
	return v.withServer(ctx, clusterPeer{p}, func(s Server) error {
		plan, err := s.Plan(LockPairs)
		if err != nil {
			return err
		}
		if v.round < v.SlowRounds {
			idle, err := v.watchIdle(ctx, s, v.IdleLength/2)
			if err != nil {
				return err
			}
			v.record("three-empty-cpu", Microseconds, idle.cpu/Servers)
		}
		o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.Callers})
		if err != nil {
			return err
		}
		v.record("three-1024", PerSecond, o.Rate)
		v.record("three-1024-p50", Milliseconds, o.ms("pair", 50))
		v.record("three-1024-p99", Milliseconds, o.ms("pair", 99))
		if o.perCPU > 0 {
			v.record("three-1024-cpu", PerCPUSecond, o.perCPU)
			v.record("three-1024-written", Bytes, o.written)
		}
		return nil
	})
}
