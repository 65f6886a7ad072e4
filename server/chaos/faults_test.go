package chaos

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// faultCluster is a cluster to which faults happen while history clients work.
type faultCluster struct {
	t       *testing.T
	c       *cluster
	clients *actor
	net     *network          // instances a, b, c are hosts 0, 1, 2, and the history clients are host 3; nil: all are on this one
	disks   map[string]string // where the disk of an instance is mounted; empty: all are on this machine's
	r       *rand.Rand
}

// fault is something that happens to a cluster, and is over when it returns. The cluster may take a
// while to recover.
type fault struct {
	name    string
	network bool                       // it needs a host per instance
	disks   bool                       // it needs a disk per instance
	do      func(x *faultCluster) bool // false: it did not happen, for lack of a leader, for example
}

// wholeFaults are for a cluster of which each instance has a copy of everything.
func wholeFaults() []fault {
	return slices.Concat(processFaults, leaderFaults, networkFaults, diskFaults, clockFaults)
}

// spreadFaults are for a cluster of which each instance has a third of everything, while that
// moves.
func spreadFaults() []fault { return slices.Clone(moveFaults) }

// leader is the instance that leads most shards.
func (x *faultCluster) leader() (*instance, bool) {
	s, err := x.c.status()
	if err != nil || busiest(&s) == "" {
		return nil, false
	}
	return x.c.instances[busiest(&s)], true
}

// metaLeader is the instance on which the governor works.
func (x *faultCluster) metaLeader() (*instance, bool) {
	s, err := x.c.status()
	if err != nil || s.Meta.Leader == "" {
		return nil, false
	}
	return x.c.instances[s.Meta.Leader], true
}

func (x *faultCluster) any() (*instance, bool) {
	names := x.c.names()
	return x.c.instances[names[x.r.IntN(len(names))]], true
}

func (x *faultCluster) instances() (all []*instance) {
	for _, name := range x.c.names() {
		all = append(all, x.c.instances[name])
	}
	return all
}

// sleepBetween lets a fault last for a random time.
func (x *faultCluster) sleepBetween(least, most time.Duration) {
	time.Sleep(least + rand.N(most-least))
}

// restart kills instances and starts them again.
func restart(list ...*instance) {
	for _, in := range list {
		_ = in.cmd.Process.Kill()
	}
	for _, in := range list {
		in.kill()
		in.start()
	}
}

// pause stops processes for some time, as if the whole machine stood still except its clocks.
func (x *faultCluster) pause(least, most time.Duration, list ...*instance) {
	for _, in := range list {
		_ = in.cmd.Process.Signal(syscall.SIGSTOP)
	}
	x.sleepBetween(least, most)
	for _, in := range list {
		_ = in.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// onInstance is a fault of one instance, which is picked when it happens.
func onInstance(pick func(x *faultCluster) (*instance, bool), do func(x *faultCluster, in *instance)) func(x *faultCluster) bool {
	return func(x *faultCluster) bool {
		in, ok := pick(x)
		if ok {
			do(x, in)
		}
		return ok
	}
}

var processFaults = []fault{
	{name: "SIGKILL of the instance that leads most", do: onInstance((*faultCluster).leader, func(_ *faultCluster, in *instance) { restart(in) })},
	{name: "SIGKILL of any instance", do: onInstance((*faultCluster).any, func(_ *faultCluster, in *instance) { restart(in) })},
	{name: "SIGSTOP of the instance that leads most", do: onInstance((*faultCluster).leader, func(x *faultCluster, in *instance) { x.pause(500*time.Millisecond, 3500*time.Millisecond, in) })},
	{name: "SIGSTOP of any instance", do: onInstance((*faultCluster).any, func(x *faultCluster, in *instance) { x.pause(200*time.Millisecond, 2*time.Second, in) })},
	{name: "SIGSTOP of a follower while large values are written", do: func(x *faultCluster) bool {
		x.c.followerReturns()
		return true
	}},
	{name: "SIGKILL of any instance while nobody reads the logs of the others", do: onInstance((*faultCluster).any, func(x *faultCluster, in *instance) {
		for _, other := range x.instances() {
			if other != in {
				defer other.stickLog()()
			}
		}
		restart(in)
		x.sleepBetween(time.Second, 4*time.Second)
	})},
	{name: "SIGTERM and restart", do: onInstance((*faultCluster).any, func(_ *faultCluster, in *instance) {
		in.stop()
		in.start()
	})},
	{name: "SIGKILL of all instances at once", do: func(x *faultCluster) bool {
		restart(x.instances()...)
		return true
	}},
	{name: "SIGSTOP of all instances at once", do: func(x *faultCluster) bool {
		x.pause(200*time.Millisecond, 1500*time.Millisecond, x.instances()...)
		return true
	}},
	{name: "SIGSTOP of all clients", do: func(x *faultCluster) bool {
		_ = x.clients.cmd.Process.Signal(syscall.SIGSTOP)
		x.sleepBetween(500*time.Millisecond, 2*historyShortTimeout)
		return x.clients.cmd.Process.Signal(syscall.SIGCONT) == nil
	}},
}

var leaderFaults = []fault{
	{name: "leadership transferred", do: func(x *faultCluster) bool {
		s, err := x.c.status()
		if err != nil || len(s.Shards) == 0 {
			return false
		}
		shard := s.Shards[x.r.IntN(len(s.Shards))]
		i := slices.IndexFunc(shard.Replicas, func(o protocol.ClusterReplica) bool { return o.Instance != shard.Master })
		if i < 0 {
			return false
		}
		// refused while another is under way
		_, err = x.c.command("cluster", "transfer", strconv.FormatUint(shard.ID, 10), shard.Replicas[i].Instance, "--timeout", "5s")
		return err == nil
	}},
	{name: "drained, and let in again", do: func(x *faultCluster) bool {
		in, ok := x.leader()
		if !ok {
			return false
		}
		name := x.name(in)
		_, err := x.c.command("cluster", "drain", name, "--timeout", "20s")
		if _, undo := x.c.command("cluster", "undrain", name, "--timeout", waitLimit.String()); undo != nil {
			x.t.Fatal(undo)
		}
		return err == nil
	}},
}

// name is an instance's name.
func (x *faultCluster) name(in *instance) string {
	for name, o := range x.c.instances {
		if o == in {
			return name
		}
	}
	x.t.Fatal("no such instance")
	return ""
}
