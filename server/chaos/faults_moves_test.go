package chaos

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// whileBucketsMove gives replicasets other weights, so that hundreds of buckets move, and calls
// meanwhile. True: some have moved.
func whileBucketsMove(meanwhile func(x *faultCluster)) func(x *faultCluster) bool {
	return func(x *faultCluster) bool {
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
			if _, err := x.c.command("cluster", "weight", s.Name, weight, "--timeout", waitLimit.String()); err != nil {
				x.t.Fatal(err)
			}
		}
		meanwhile(x)
		after := x.c.awaitReady("after buckets moved", x.c.names()...)
		return fmt.Sprint(bucketsPerReplicaset(&before)) != fmt.Sprint(bucketsPerReplicaset(&after))
	}
}

// bucketsPerReplicaset is how many buckets each replicaset has.
func bucketsPerReplicaset(s *protocol.ClusterStatus) (list []uint64) {
	for _, r := range s.Replicasets {
		list = append(list, uint64(r.Buckets))
	}
	return list
}

// whileShardsChange has each replicaset get one shard more or lose one, and calls meanwhile. It
// waits until that is done.
func whileShardsChange(meanwhile func(x *faultCluster)) func(x *faultCluster) bool {
	return func(x *faultCluster) bool {
		before, err := x.c.status()
		if err != nil || len(before.Tiers) == 0 {
			return false
		}
		n := before.Tiers[0].ShardsPerReplicaset + 1
		if n > 3 && (n > 5 || x.r.IntN(2) == 0) {
			n -= 2
		}
		if _, err := x.c.command("cluster", "shards", fmt.Sprint(n), "--timeout", waitLimit.String()); err != nil {
			x.t.Fatal(err)
		}
		meanwhile(x)
		x.c.await(fmt.Sprintf("%d shards in each replicaset", n), func(s *protocol.ClusterStatus) string {
			counts := map[string]uint32{}
			for _, y := range s.Shards {
				counts[y.Replicaset]++
			}
			for set, has := range counts {
				if has != n {
					return fmt.Sprintf("replicaset %s has %d", set, has)
				}
			}
			return ""
		})
		x.c.awaitReady("after the number of shards changed", x.c.names()...)
		return true
	}
}

var moveFaults = []fault{
	{name: "a shard more or less", do: whileShardsChange(func(*faultCluster) {})},
	{name: "a shard more or less, SIGKILL of any instance", do: whileShardsChange(func(x *faultCluster) {
		in, _ := x.any()
		restart(in)
	})},
	{name: "a shard more or less, SIGKILL of the governor", do: whileShardsChange(func(x *faultCluster) {
		if in, ok := x.metaLeader(); ok {
			restart(in)
		}
	})},
	{name: "buckets move", do: whileBucketsMove(func(*faultCluster) {})},
	{name: "buckets move, SIGKILL of any instance", do: whileBucketsMove(func(x *faultCluster) {
		in, _ := x.any()
		restart(in)
	})},
	{name: "buckets move, SIGKILL of the governor", do: whileBucketsMove(func(x *faultCluster) {
		if in, ok := x.metaLeader(); ok {
			restart(in)
		}
	})},
	{name: "buckets move, SIGKILL of all instances", do: whileBucketsMove(func(x *faultCluster) { restart(x.instances()...) })},
	{name: "buckets move, SIGSTOP of any instance", do: whileBucketsMove(func(x *faultCluster) {
		in, _ := x.any()
		x.pause(200*time.Millisecond, 3*time.Second, in)
	})},
	{name: "buckets move, SIGTERM and restart", do: whileBucketsMove(func(x *faultCluster) {
		in, _ := x.any()
		in.stop()
		in.start()
	})},
	{name: "buckets move, the governor is drained and let in again", do: whileBucketsMove(func(x *faultCluster) {
		if in, ok := x.metaLeader(); ok {
			_, _ = x.c.command("cluster", "drain", x.name(in), "--timeout", "5s")
			if _, err := x.c.command("cluster", "undrain", x.name(in), "--timeout", waitLimit.String()); err != nil {
				x.t.Fatal(err)
			}
		}
	})},
	{name: "buckets move, any instance cut off from the others", network: true, do: whileBucketsMove(func(x *faultCluster) {
		cutOff((*faultCluster).any, func(x *faultCluster, host int) { x.net.part(host, x.peersOf(host)...) })(x)
	})},
	{name: "buckets move, nothing arrives from one instance at another", network: true, do: whileBucketsMove(func(x *faultCluster) {
		cutOff((*faultCluster).any, func(x *faultCluster, host int) { x.net.cut(host, x.peersOf(host)[0]) })(x)
	})},
	{name: "buckets move, packets lost at any instance", network: true, do: whileBucketsMove(func(x *faultCluster) { losePackets((*faultCluster).any)(x) })},
	{name: "buckets move, an instance is started again on other clocks", do: whileBucketsMove(func(x *faultCluster) {
		if in, ok := x.any(); ok && timeNamespaces() {
			restartWithOtherClocks(x, in)
		}
	})},
}
