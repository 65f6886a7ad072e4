package meta

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]Version{
		"1.2.3": {1, 2, 3}, "v0.10": {0, 10, 0}, "2.0.1-rc1+build.7": {2, 0, 1}, "v1.4.0+dirty": {1, 4, 0},
	} {
		if got, err := ParseVersion(text); err != nil || got != want {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "1.2.3.4", "1.x", "-1.2", "1.4294967296", "(devel)", "1..2"} {
		if got, err := ParseVersion(text); err == nil {
			t.Errorf("%q was read as %s", text, got)
		}
	}
	if (Version{1, 2, 3}).Compare(Version{1, 2, 4}) >= 0 || (Version{1, 10, 0}).Compare(Version{1, 9, 9}) <= 0 ||
		(Version{1, 2, 3}).String() != "1.2.3" {
		t.Error("versions are compared otherwise")
	}
}

func TestFailureDomains(t *testing.T) {
	domain := func(text string) []Label {
		d, err := ParseDomain(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if got := formatDomain(domain("rack=a1, Dc=msk")); got != "DC=MSK,RACK=A1" {
		t.Errorf("written as %s", got)
	}
	for _, text := range []string{"dc", "dc=", "=msk", "dc=msk,DC=spb", ","} {
		if d, err := ParseDomain(text); err == nil {
			t.Errorf("%q was read as %v", text, d)
		}
	}
	for _, c := range []struct {
		a, b      string
		distance  int
		intersect bool
	}{
		{"", "", 0, false},
		{"", "dc=msk", 1, false},
		{"dc=msk", "dc=msk", 0, true},
		{"dc=msk", "dc=spb", 1, false},
		{"dc=msk,rack=1", "dc=spb,rack=1", 1, true},
		{"dc=msk,rack=1", "dc=spb,rack=2", 2, false},
		{"dc=msk,rack=1", "dc=msk,floor=1", 2, true},
		{"a=1,c=1", "b=1,d=1", 4, false},
		{"dc=a,rack=1", "rack=1,os=x", 2, true},
		{"a=1", "b=1", 2, false},
	} {
		a, b := domain(c.a), domain(c.b)
		if Distance(a, b) != c.distance || Distance(b, a) != c.distance || Intersect(a, b) != c.intersect ||
			Intersect(b, a) != c.intersect {
			t.Errorf("%q and %q: distance %d, intersect %t", c.a, c.b, Distance(a, b), Intersect(a, b))
		}
	}
}

func mustApply(t *testing.T, m *Machine, c Command) Result {
	t.Helper()
	res := m.apply(AppendCommand(nil, OpID{}, c))
	if res.Status != protocol.StatusOK {
		t.Fatalf("%#v: %s", c, res.Message)
	}
	return res
}

// TestExpelledRecordsAreEvicted: a cluster whose instances come and go for ever does not fill up;
// and ids go on rising.
func TestExpelledRecordsAreEvicted(t *testing.T) {
	m := New()
	mustApply(t, m, &Bootstrap{
		Cluster: "c", Instance: 1, Name: "one", Tier: "default", CanVote: true, Buckets: 4,
		Shards: []uint64{2}, Tiers: []TierSpec{{Name: "arbiter"}},
	})
	for n := uint64(2); n <= maxInstances-2; n++ { // as a long life would leave them
		state := InstanceState{Variant: Expelled}
		m.instances = append(m.instances, Instance{ID: n, UUID: fmt.Sprint(n), Name: fmt.Sprint(n),
			Tier: 1, Replicaset: n, Current: state, Target: state})
		m.replicasets = append(m.replicasets,
			Replicaset{ID: n, Name: fmt.Sprint(n), Tier: 1, Phase: ReplicasetExpelled})
		m.nextInstance, m.nextReplicaset = n, n
	}
	m.metaShard.Replicas = append(m.metaShard.Replicas, Replica{Instance: 2, Replica: 2, Role: RoleNonVoting})
	m.metaShard.NextReplica = 2
	for n := uint64(maxInstances - 1); n < maxInstances+5; n++ {
		res := mustApply(t, m, &Join{UUID: fmt.Sprint(n), Tier: "arbiter"})
		if res.Instance != n {
			t.Fatalf("instance %d is the %dth", res.Instance, n)
		}
		i, _ := m.Instance(n)
		mustApply(t, m, &InstanceUpdate{Instance: n, Target: Expelled})
		mustApply(t, m, &ReplicasetExpel{i.Replicaset})
		mustApply(t, m, &ReplicasetIsExpelled{Replicaset: i.Replicaset})
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.Instances()) != maxInstances || len(m.Replicasets()) > maxInstances {
		t.Fatalf("%d instances, %d replicasets are remembered", len(m.Instances()), len(m.Replicasets()))
	}
	// A replica keeps the record of its instance.
	for id, want := range map[uint64]bool{1: true, 2: true, 3: false, 4: false, maxInstances: true} {
		if _, ok := m.Instance(id); ok != want {
			t.Errorf("instance %d is remembered: %t", id, ok)
		}
	}
	restored(t, m)
}

// TestRaisedAt: a tier knows since when each of its last copies is configured.
func TestRaisedAt(t *testing.T) {
	m := New()
	mustApply(t, m, &Bootstrap{
		Cluster: "c", Instance: 1, Name: "one", Tier: "default", CanVote: true,
		Buckets: 16, ReplicationFactor: 2, Shards: []uint64{2},
	})
	for _, step := range []struct {
		factor uint32
		wall   uint64
		want   []uint64
	}{
		{4, 10, []uint64{10, 10}},
		{4, 20, []uint64{10, 10}},
		{5, 30, []uint64{10, 10, 30}},
		{3, 40, []uint64{10}},
		{5, 50, []uint64{10, 50, 50}},
		{1, 60, nil},
		{2, 70, []uint64{70}},
		{3, 0, nil}, // without a time
		{4, 80, []uint64{80}},
	} {
		mustApply(t, m, &TierReplicationFactor{ReplicationFactor: step.factor, Wall: step.wall})
		again := restored(t, m)
		for _, s := range []*State{&m.State, &again.State} {
			if tier, _ := s.Tier(0); tier.ReplicationFactor != step.factor || !slices.Equal(tier.RaisedAt, step.want) {
				t.Errorf("after %+v there are %d copies of times %v", step, tier.ReplicationFactor, tier.RaisedAt)
			}
		}
	}
}

// TestSharesAddUp: whatever the weights are, every bucket has a share, replicasets differ from
// their exact part by less than one bucket, and the shards of one replicaset from each other by one
// at most.
func TestSharesAddUp(t *testing.T) {
	for _, weights := range [][]uint32{{1000}, {1000, 1000, 1000}, {1, maxWeight}, {333, 333, 334, 0}, {500, 1000, 1500, 7, 7, 7}} {
		m := New()
		mustApply(t, m, &Bootstrap{
			Cluster: "c", Instance: 1, Name: "one", Tier: "default", CanVote: true,
			Buckets: 4096, ReplicationFactor: 1, Shards: []uint64{2, 3, 4},
		})
		total := uint64(0)
		for i, w := range weights {
			if i > 0 {
				res := mustApply(t, m, &Join{UUID: fmt.Sprint(i)})
				mustApply(t, m, &ShardsCreate{uint64(i + 1), res.Instance})
				mustApply(t, m, &ReplicasetIsReady{uint64(i + 1)})
			}
			mustApply(t, m, &WeightSet{uint64(i + 1), w, true})
			total += uint64(w)
		}
		sum, of := uint32(0), map[uint64][]uint32{}
		for _, share := range m.Shares(0) {
			x, _ := m.Shard(share.Shard)
			of[x.Replicaset] = append(of[x.Replicaset], share.Buckets)
			sum += share.Buckets
		}
		if sum != 4096 {
			t.Errorf("%v: shares of %d buckets", weights, sum)
		}
		for i, w := range weights {
			own, set := uint64(0), of[uint64(i+1)]
			for _, n := range set {
				own += uint64(n)
			}
			if exact := 4096 * uint64(w) / total; own < exact || own > exact+1 {
				t.Errorf("%v: replicaset %d has %d buckets, its part is %d", weights, i+1, own, exact)
			}
			if len(set) > 0 && slices.Max(set)-slices.Min(set) > 1 {
				t.Errorf("%v: replicaset %d spreads %v", weights, i+1, set)
			}
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	t := Tier{Buckets: MaxBuckets}
	for first := range uint32(MaxBuckets / 8) {
		t.Runs = append(t.Runs, Run{First: first * 8, Count: 8, Shard: uint64(2 + first%2), Epoch: uint64(1 + first)})
	}
	s := State{tierTable: tierTable{tiers: []Tier{t}}}
	bucket := uint32(0)
	for b.Loop() {
		bucket = (bucket + 40_503) % MaxBuckets
		if shard, _ := s.Route(0, bucket); shard == 0 {
			b.Fatal("no shard")
		}
	}
}
