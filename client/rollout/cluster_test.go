package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// clusterSite is a track on a cluster, in real time, with six followers.
type clusterSite struct {
	*site
	cluster      *servertest.Cluster
	client       *client.Client
	incarnations map[string]uint64

	mu     sync.Mutex
	loaded map[string][]uint64 // by instance
}

var clusterLocations = []string{"SAS", "MAN", "VLA"}

// clusterDelay is long enough for a leader to die within it.
var clusterDelay = 500 * time.Millisecond

func init() {
	if form.Is(form.Full) {
		clusterDelay = time.Second
	}
}

func newClusterSite(t *testing.T, n int, opts ...servertest.Option) *clusterSite {
	t.Helper()
	k := &clusterSite{cluster: servertest.StartCluster(t, n, opts...), loaded: map[string][]uint64{}, incarnations: map[string]uint64{}}
	k.site = &site{t: t, ctx: t.Context(), addrs: k.cluster.Addrs()}
	s := k.session()
	k.client = k.clients[0]
	k.track = sdk.NewTrack(s, "geo/base")
	config := threeLocations()
	for i := range config.Locations[1:] {
		config.Locations[i+1].Delay = clusterDelay
	}
	if _, err := k.track.Create(k.ctx, config); err != nil {
		t.Fatal(err)
	}
	for _, location := range clusterLocations {
		for i := range 2 {
			id := fmt.Sprintf("%s-%d", location, i)
			k.follow(id, location, "", func(_ context.Context, v sdk.Version) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.loaded[id] = append(k.loaded[id], v.Number)
				return nil
			})
		}
	}
	k.until("six instances", func() bool { return k.status().NumInstances == 6 })
	for _, i := range k.status().Instances {
		k.incarnations[i.ID] = i.Incarnation
	}
	return k
}

// through publishes a version, has something happen when the first location has it, and waits until
// all have.
func (k *clusterSite) through(meanwhile func()) {
	k.t.Helper()
	v := k.publish()
	k.until("SAS to be given it", func() bool { return k.status().Locations[0].Target == v })
	meanwhile()
	for _, l := range clusterLocations {
		k.converged(l, v)
	}
	k.until("all to have it", func() bool { // a leader, not only those that its location counts
		return !slices.ContainsFunc(k.status().Instances, func(i sdk.InstanceStatus) bool { return i.Report.Current != v })
	})
}

// nothingButLatency looks at what happened: each location had each version once, in order and after
// its delay, for the ordinary reasons; instances are who they were.
func (k *clusterSite) nothingButLatency(versions ...uint64) {
	k.t.Helper()
	var before []sdk.HistoryEntry
	for _, location := range clusterLocations {
		rows := k.history(location)
		var had []uint64
		for i, r := range rows {
			had = append(had, r.Version)
			if want := protocol.ReasonAdvance; i == 0 && r.Reason != protocol.ReasonInitial ||
				i > 0 && r.Reason != want || r.Skip || !r.Converged {
				k.t.Errorf("%s had %+v", location, r)
			}
			if before != nil && i < len(before) && r.Log-before[i].Log < uint64(clusterDelay.Milliseconds()) {
				k.t.Errorf("%s was given %d at %d, the location before it at %d", location, r.Version, r.Log, before[i].Log)
			}
		}
		if !slices.Equal(had, versions) {
			k.t.Errorf("%s had %v", location, had)
		}
		before = rows
	}
	for _, i := range k.status().Instances {
		if k.incarnations[i.ID] != i.Incarnation {
			k.t.Errorf("%s was registered again", i.ID)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, list := range k.loaded {
		if !slices.Equal(list, versions) {
			k.t.Errorf("%s loaded %v", id, list)
		}
	}
}

// TestClusterFailover: the instance that leads the track's shard is killed in the middle of a
// rollout, and then the next one: nothing but latency.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	k := newClusterSite(t, 3, servertest.Shards(1))
	shard := k.cluster.Shards()[0]
	k.through(func() {})
	for range 2 {
		victim := 0
		k.through(func() {
			victim = k.cluster.Leader(shard)
			k.cluster.Kill(victim)
		})
		k.cluster.Restart(victim)
		k.cluster.WaitReady()
	}
	k.nothingButLatency(1, 2, 3)
}

// TestClusterBucketMoves: the track's bucket, and those of the sessions, go to another replicaset
// in the middle of a rollout, and back in that of another: nothing but latency.
func TestClusterBucketMoves(t *testing.T) {
	t.Parallel()
	k := newClusterSite(t, 2, servertest.Shards(1), servertest.Config(func(c *server.Config) { c.ReplicationFactor, c.Buckets = 1, 16 }))
	status := func() *admin.Status {
		t.Helper()
		s, err := admin.New(k.client).Status(k.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sets := status().Replicasets
	if len(sets) != 2 {
		t.Fatalf("replicasets: %+v", sets)
	}
	empty := func(from, to int) {
		t.Helper()
		// The target first: the weight of the last replicaset that has one stays.
		for _, w := range []struct {
			set    int
			weight float64
		}{{to, 1}, {from, 0}} {
			if _, err := admin.New(k.client).SetWeight(k.ctx, sets[w.set].Name, w.weight); err != nil {
				t.Fatal(err)
			}
		}
	}
	moved := func(from int) {
		t.Helper()
		k.until("the buckets to have moved", func() bool {
			s := status()
			return len(s.Moves) == 0 && slices.ContainsFunc(s.Replicasets, func(r protocol.ClusterReplicaset) bool {
				return r.Name == sets[from].Name && r.Buckets == 0
			})
		})
	}
	k.through(func() {})
	k.through(func() { empty(0, 1) })
	moved(0)
	k.through(func() { empty(1, 0) })
	moved(1)
	k.nothingButLatency(1, 2, 3)
}
