package chaos

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// moving gives replicasets other weights, so that hundreds of buckets move, and has something happen at once, while they do. True: some have moved.
func moving(meanwhile func(x *trial)) func(x *trial) bool {
	return func(x *trial) bool {
		before, err := x.c.status()
		if err != nil || len(before.Replicasets) < 2 {
			return false
		}
		heavy := x.r.IntN(len(before.Replicasets)) // so that never all are empty
		for i := range before.Replicasets {
			s, weight := before.Replicasets[(heavy+i)%len(before.Replicasets)], []string{"0", "0.5", "1", "2"}[x.r.IntN(4)]
			if i == 0 { // first, since it may be 0 from the last time, and another is not allowed to become the last
				weight = "3"
			}
			if _, err := x.c.command("cluster", "weight", s.Name, weight, "--timeout", patience.String()); err != nil {
				x.t.Fatal(err)
			}
		}
		meanwhile(x)
		after := x.c.settled("after buckets moved", x.c.names()...)
		return fmt.Sprint(dealt(&before)) != fmt.Sprint(dealt(&after))
	}
}

// dealt is how many buckets each replicaset has.
func dealt(s *protocol.ClusterStatus) (list []uint64) {
	for _, r := range s.Replicasets {
		list = append(list, uint64(r.Buckets))
	}
	return list
}

var moveFaults = []fault{
	{name: "buckets move", do: moving(func(*trial) {})},
	{name: "buckets move, SIGKILL of any instance", do: moving(func(x *trial) {
		in, _ := x.any()
		restart(in)
	})},
	{name: "buckets move, SIGKILL of the governor", do: moving(func(x *trial) {
		if in, ok := x.metaLeader(); ok {
			restart(in)
		}
	})},
	{name: "buckets move, SIGKILL of all instances", do: moving(func(x *trial) { restart(x.instances()...) })},
	{name: "buckets move, SIGSTOP of any instance", do: moving(func(x *trial) {
		in, _ := x.any()
		x.pause(200*time.Millisecond, 3*time.Second, in)
	})},
	{name: "buckets move, SIGTERM and restart", do: moving(func(x *trial) {
		in, _ := x.any()
		in.stop()
		in.start()
	})},
	{name: "buckets move, the governor is drained and let in again", do: moving(func(x *trial) {
		if in, ok := x.metaLeader(); ok {
			_, _ = x.c.command("cluster", "drain", x.name(in), "--timeout", "5s")
			if _, err := x.c.command("cluster", "drain", x.name(in), "--undo", "--timeout", patience.String()); err != nil {
				x.t.Fatal(err)
			}
		}
	})},
	{name: "buckets move, any instance cut off from the others", network: true, do: moving(func(x *trial) {
		cutOff((*trial).any, func(x *trial, host int) { x.net.part(host, x.peersOf(host)...) })(x)
	})},
	{name: "buckets move, nothing arrives from one instance at another", network: true, do: moving(func(x *trial) {
		cutOff((*trial).any, func(x *trial, host int) { x.net.cut(host, x.peersOf(host)[0]) })(x)
	})},
	{name: "buckets move, packets lost at any instance", network: true, do: moving(func(x *trial) { lossy((*trial).any)(x) })},
	{name: "buckets move, an instance is started again on other clocks", do: moving(func(x *trial) {
		if in, ok := x.any(); ok && otherClocks() {
			jump(x, in)
		}
	})},
}
