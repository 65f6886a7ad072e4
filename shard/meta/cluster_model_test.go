package meta

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// clusterRun draws commands that have a chance.
type clusterRun struct {
	*rapid.T
	s *State
}

// pick is a number below n. A single draw prefers small ones.
func (r *clusterRun) pick(label string, n int) int {
	return (rapid.IntRange(0, n-1).Draw(r.T, label) + rapid.IntRange(0, 6*n).Draw(r.T, label+", more")) % n
}

func (r *clusterRun) instance() Instance {
	list := r.s.Instances()
	return list[r.pick("instance", len(list))]
}

func (r *clusterRun) group() Shard {
	list := append(slices.Clone(r.s.Shards()), r.s.MetaShard())
	return list[r.pick("group", len(list))]
}

func (r *clusterRun) replica() (Shard, uint64) {
	x := r.group()
	if len(x.Replicas) == 0 || r.pick("foreign replica", 10) == 0 {
		return x, uint64(r.pick("replica", 5))
	}
	return x, x.Replicas[r.pick("replica", len(x.Replicas))].Replica
}

func (r *clusterRun) replicaset() uint64 {
	list := r.s.Replicasets()
	return list[r.pick("replicaset", len(list))].ID
}

func (r *clusterRun) domain() []Label {
	return []Label{{"DC", string(rune('A' + r.pick("dc", 3)))},
		{"RACK", string(rune('A' + r.pick("rack", 3)))}}[:1+r.pick("labels", 12)/11]
}

func (r *clusterRun) move() MoveRef {
	list := r.s.Moves()
	if len(list) == 0 || r.pick("foreign move", 10) == 0 {
		return MoveRef{uint8(r.pick("tier", 2)), uint32(r.pick("first", 12)), uint64(1 + r.pick("epoch", 4))}
	}
	return list[r.pick("move", len(list))].Ref()
}

func (r *clusterRun) command() Command {
	version := Version{1, []uint32{2, 2, 2, 2, 2, 3, 3, 4}[r.pick("minor", 8)], 0}
	switch r.pick("what", 39) {
	case 0, 1, 2, 9:
		uuid := fmt.Sprintf("u%d", r.pick("uuid", 30))
		return &Join{
			UUID: uuid, Name: []string{"", "", "a", "b_1", "first_2"}[r.pick("name", 5)],
			Replicaset: []string{"", "", "mine", "first_1"}[r.pick("set", 4)],
			Address:    uuid, RaftAddress: uuid, Tier: []string{"", "second", "arbiter"}[r.pick("tier", 3)],
			Domain: r.domain(), Version: version,
		}
	case 3, 4, 5:
		i := r.instance()
		c := &InstanceUpdate{Instance: i.ID, Target: Variant(r.pick("target", 3)),
			Force: r.pick("force", 2) == 0, Reason: "r"}
		if c.Target == Online && r.pick("start", 2) == 0 {
			c.Start, c.Address, c.RaftAddress, c.Domain, c.Version =
				true, i.Address, i.RaftAddress, r.domain(), version
			if r.pick("moved", 4) == 0 {
				c.Address += "x"
			}
		}
		c.IfNotNeeded = c.Target == Offline && r.pick("if not needed", 2) == 0
		if r.pick("expect", 3) == 0 {
			c.Expected = i.Revision - uint64(r.pick("old", 2))
		}
		return c
	case 6, 7, 8:
		i := r.instance()
		if r.pick("stale", 6) == 0 {
			i.Target.Incarnation--
		}
		return &InstanceCurrent{i.ID, i.Target}
	case 29:
		v := r.instance().Version
		for _, i := range r.s.Instances() { // the highest that all have
			if !i.Expelled() && i.Version.Compare(v) < 0 && r.pick("legal", 4) > 0 {
				v = i.Version
			}
		}
		return &ClusterVersion{v}
	case 10:
		return &ReplicasetIsReady{r.replicaset()}
	case 11:
		return &WeightSet{r.replicaset(), uint32(r.pick("weight", 4) * 700), r.pick("user", 2) == 0}
	case 12:
		return &ReplicasetExpel{r.replicaset()}
	case 13, 14:
		return &ReplicasetIsExpelled{r.replicaset(), 1}
	case 15:
		return &TierReplicationFactor{uint8(r.pick("tier", 3)), uint32(1 + r.pick("rf", 3)), r.s.Revision() % 3}
	case 16:
		i := r.instance()
		return &ShardsCreate{i.Replicaset, i.ID}
	case 17, 18:
		return &ReplicaAdd{r.group().ID, r.instance().ID, Role(1 + r.pick("role", 4)%3)}
	case 19:
		x, id := r.replica()
		return &ReplicaTarget{x.ID, id, Role(r.pick("role", 5) % 3)}
	case 20, 21:
		x, id := r.replica()
		c := &ReplicaRole{x.ID, id, Role(r.pick("role", 3))}
		if replica, ok := x.Replica(id); ok && r.pick("right", 4) > 0 {
			c.Role = replica.TargetRole
		}
		return c
	case 22:
		x, id := r.replica()
		replica, _ := x.Replica(id)
		for _, o := range x.Replicas {
			if o.Role == RoleVoter && o.TargetRole == RoleVoter && o.Instance != x.TargetMaster {
				replica = o
			}
		}
		return &MasterTarget{x.ID, replica.Instance}
	case 23:
		x, id := r.replica()
		replica, _ := x.Replica(id)
		return &MasterCurrent{x.ID, replica.Instance}
	case 24:
		return &BucketsAssign{uint8(r.pick("tier", 3))}
	case 25:
		x := r.group()
		return &ShardReady{Shard: x.ID, Expected: x.Revision - uint64(r.pick("old", 4)/3)}
	case 26, 27:
		c := &MoveBegin{Tier: uint8(r.pick("tier", 5) / 4), First: uint32(r.pick("first", 12)),
			Count: uint32(r.pick("count", 6)), To: r.group().ID}
		owner, _ := r.s.Route(c.Tier, c.First)
		for _, x := range r.s.Shards() {
			if x.Tier == c.Tier && x.ID != owner && r.pick("there", 3) > 0 {
				c.To = x.ID
			}
		}
		if r.pick("expect", 3) == 0 {
			c.From = owner
		}
		return c
	case 31, 32:
		i := r.instance()
		return &InstanceReassign{i.ID, i.Revision - uint64(r.pick("old", 4)/3), r.replicaset()}
	case 33:
		return &ShardsRemove{r.replicaset()}
	case 35:
		return &TierShards{uint8(r.pick("tier", 4) / 3), uint32(r.pick("shards", 5))}
	case 36:
		i := r.instance()
		return &ShardAdd{i.Replicaset, i.ID, uint32(len(r.s.ShardsOf(i.Replicaset)) - r.pick("old", 4)/3)}
	case 37:
		x := r.group()
		for _, o := range r.s.Shards() {
			if o.Surplus(r.s) && r.pick("surplus", 2) == 0 {
				x = o
			}
		}
		return &ShardRemove{x.ID}
	case 38:
		tier, _ := r.s.Tier(uint8(r.pick("tier", 3)))
		c := &TierRestored{Tier: tier.ID, Backup: restoredBackup + uint64(r.pick("other", 4)/3)}
		for _, x := range r.s.Shards() {
			if other := r.pick("other shard", 10) == 0; (x.Tier == tier.ID) != other {
				c.Shards = append(c.Shards, x.ID)
			}
		}
		return c
	case 28, 30:
		if r.pick("abort", 2) == 0 {
			return &MoveAbort{r.move()}
		}
		return &MoveCommit{r.move()}
	default:
		return &MoveEnd{r.move()}
	}
}

// TestClusterInvariants applies random commands, and looks after each whether the state keeps its
// own rules, whether it changed in the ways it may, and whether a machine that is saved and
// restored now and then agrees.
func TestClusterInvariants(t *testing.T) {
	form.Checks(t, form.Size(25, 100, 100))
	done := map[Kind]int{}
	for tier := range uint8(2) { // of the first instance
		rapid.Check(t, func(t *rapid.T) { randomCluster(t, tier, nil, done) })
		rapid.Check(t, func(t *rapid.T) { randomCluster(t, tier, clusterOfTwoTiers(tier), done) })
	}
	if !form.Is(form.Full) {
		return // a quarter of the histories is too few for each kind to come
	}
	for _, k := range []Kind{
		KindJoin, KindInstanceUpdate, KindInstanceCurrent, KindClusterVersion, KindReplicasetIsReady,
		KindWeightSet, KindReplicasetExpel, KindReplicasetIsExpelled,
		KindTierReplicationFactor, KindTierShards, KindShardsCreate,
		KindShardAdd, KindShardRemove, KindShardsRemove,
		KindInstanceReassign, KindReplicaAdd, KindReplicaTarget, KindReplicaRole, KindMasterTarget,
		KindMasterCurrent, KindBucketsAssign, KindTierRestored, KindShardReady,
		KindMoveBegin, KindMoveCommit, KindMoveAbort, KindMoveEnd,
	} {
		if done[k] == 0 {
			t.Errorf("no command of kind %d did anything; the test draws unlikely ones", k)
		}
	}
	t.Log(done)
}

// restoredBackup is the digest of the backups that random clusters are restored from.
const restoredBackup = 77

// clusterOfTwoTiers is the map of a cluster with data in both tiers of random clusters.
func clusterOfTwoTiers(tier uint8) []byte {
	m := New()
	for i, c := range []Command{
		&Bootstrap{
			Cluster: "old", Instance: 1, UUID: "o1", Name: "o1", RaftAddress: "o1", Tier: "first", TierID: tier, CanVote: true, Buckets: 12,
			Tiers:  []TierSpec{{Name: "second", Buckets: 5, ShardsPerReplicaset: 1}, {Name: "arbiter"}},
			Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig(),
		},
		&Join{UUID: "o2", RaftAddress: "o2", Tier: "second"},
		&ReplicasetIsReady{2}, &ShardsCreate{2, 2}, &BucketsAssign{1 - tier},
		&NodeCreate{Path: "/a", Tier: 1 - tier, Config: protocol.DefaultNodeConfig()},
	} {
		if res := m.apply(AppendCommand(nil, OpID{9, byte(i)}, c)); res.Status != protocol.StatusOK {
			panic(res.Message)
		}
	}
	var b bytes.Buffer
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// randomCluster is one history of a new cluster, or of one that is restored from a map. done counts
// the commands in it that changed something.
func randomCluster(t *rapid.T, tier uint8, from []byte, done map[Kind]int) {
	a, b := New(), New()
	index := uint64(0)
	apply := func(c Command, op OpID) Result {
		index++
		entry := AppendCommand(nil, op, c)
		got := a.Apply(index, entry)
		if !bytes.Equal(got, b.Apply(index, entry)) {
			t.Fatalf("the restored machine answers %#v otherwise", c)
		}
		res, err := DecodeResult(got)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	rf := uint32(rapid.IntRange(1, 2).Draw(t, "rf"))
	begin := &Bootstrap{
		Cluster: "c", Instance: 1, UUID: "u0", Name: "one", Address: "one", RaftAddress: "one",
		Tier: "first", TierID: tier, CanVote: true, Buckets: 12, ReplicationFactor: rf,
		Tiers: []TierSpec{{Name: "second", Buckets: 5, ReplicationFactor: 1,
			ShardsPerReplicaset: 2, CanVote: true}, {Name: "arbiter"}},
		Shards: []uint64{2, 3}, Version: Version{1, 2, 0}, NodeConfig: protocol.DefaultNodeConfig(),
	}
	if from != nil {
		begin.Shards, begin.ReplicationFactor, begin.ShardsPerReplicaset = nil, 1, 2
		begin.Restored, begin.RestoredEpoch, begin.RestoredBackup = from, FirstEpoch+1, restoredBackup
	}
	if res := apply(begin, OpID{}); res.Status != protocol.StatusOK {
		t.Fatal(res.Message)
	}
	models := map[uint8]*bucketModel{}
	assigned := func(s *State) {
		for _, tier := range s.Tiers() {
			m := &bucketModel{owner: make([]uint64, tier.Buckets), epoch: make([]uint64, tier.Buckets)}
			for b := range m.owner {
				m.owner[b], m.epoch[b] = s.Route(tier.ID, uint32(b))
			}
			if old := models[tier.ID]; old == nil || (len(old.owner) > 0 && old.owner[0] == 0) {
				models[tier.ID] = m
			}
		}
	}
	assigned(&a.State)
	if from == nil && rapid.Bool().Draw(t, "ready") {
		apply(&ShardReady{Shard: 2}, OpID{})
		apply(&ShardReady{Shard: 3}, OpID{})
	}
	for step := range rapid.IntRange(60, 180).Draw(t, "steps") {
		before := a.State
		save := rapid.IntRange(0, 5).Draw(t, "save") == 0
		digest := uint64(0)
		if save {
			digest = before.Digest()
		}
		run := clusterRun{t, &before}
		c := run.command()
		want, version := protocol.Status(0xff), uint64(0)
		switch c := c.(type) {
		case *MoveBegin:
			m := models[c.Tier]
			legal, again := m.mayBegin(&before, c)
			if legal && !again {
				version = m.begin(c)
			}
			if legal {
				want = protocol.StatusOK
			}
		case *MoveCommit:
			want = models[c.Tier].decide(c.MoveRef, Committed)
		case *MoveAbort:
			want = models[c.Tier].decide(c.MoveRef, Aborted)
		case *MoveEnd:
			want = models[c.Tier].end(c.MoveRef)
		}
		op := OpID{1, byte(step + 1)}
		res := apply(c, op)
		if _, begin := c.(*MoveBegin); want != 0xff && res.Status != want ||
			begin && want == 0xff && res.Status == protocol.StatusOK {
			t.Fatalf("%#v: %s %s, the model says %d", c, res.Status, res.Message, want)
		}
		if version != 0 && res.Version != version {
			t.Fatalf("%#v: epoch %d, want %d", c, res.Version, version)
		}
		if res.Status == protocol.StatusOK && a.Revision() > before.Revision() {
			done[c.kind()]++
		}
		if again := apply(c, op); again != res {
			t.Fatalf("%#v again: %+v, want %+v", c, again, res)
		}
		if res.Status == protocol.StatusOK {
			switch c.(type) {
			case *BucketsAssign, *TierRestored:
				assigned(&a.State)
			}
		}
		checkRestores(t, c, &before, &a.State)
		if err := a.Check(); err != nil {
			t.Fatalf("after %#v: %v", c, err)
		}
		if save && before.Digest() != digest {
			t.Fatalf("%#v changed a state that was", c)
		}
		compareStates(t, c, &before, &a.State, &res)
		for tier, m := range models {
			for bucket := range m.owner {
				if owner, epoch := a.Route(tier, uint32(bucket)); owner != m.owner[bucket] ||
					epoch != m.epoch[bucket] {
					t.Fatalf("after %#v bucket %d of tier %d is shard %d's under %d, want %d under %d",
						c, bucket, tier, owner, epoch, m.owner[bucket], m.epoch[bucket])
				}
			}
		}
		if save {
			b = restored(t, b)
			if a.Digest() != b.Digest() {
				t.Fatal("digests differ")
			}
		}
	}
}

// checkRestores: the buckets of a tier that is to be restored have no owner, and the tier stays as
// the restore found it. The mark goes when all buckets get their owners, under its epoch.
func checkRestores(t *rapid.T, c Command, before, after *State) {
	for _, old := range before.Tiers() {
		x, _ := after.Tier(old.ID)
		_, restored := c.(*TierRestored)
		switch {
		case !old.ToBeRestored():
			if x.ToBeRestored() {
				t.Fatalf("%#v: tier %s is to be restored again", c, x.Name)
			}
		case x.ToBeRestored():
			if x.Bootstrapped || x.Restore != old.Restore || x.ShardsPerReplicaset != old.ShardsPerReplicaset ||
				x.ReplicationFactor != old.ReplicationFactor || len(x.Runs) != 1 || x.Runs[0].Shard != 0 {
				t.Fatalf("%#v: tier %+v was %+v", c, x, old)
			}
		default:
			for b := range x.Buckets {
				if owner, epoch := x.Route(b); !restored || owner == 0 || epoch != old.Restore.Epoch {
					t.Fatalf("%#v: bucket %d of tier %s is shard %d's under %d", c, b, x.Name, owner, epoch)
				}
			}
		}
	}
}

// checkShardCounts: a shard is added only where one is missing. It is removed only if its
// replicaset has too many, and as many older ones as are to stay, and if nothing is left in it.
func checkShardCounts(t *rapid.T, before, after *State, c Command) {
	count := func(s *State, replicaset uint64) (n int) {
		for _, x := range s.Shards() {
			if x.Replicaset == replicaset {
				n++
			}
		}
		return n
	}
	for _, x := range after.Shards() {
		if _, had := before.Shard(x.ID); had {
			continue
		}
		if tier, _ := before.Tier(x.Tier); count(after, x.Replicaset) > int(tier.ShardsPerReplicaset) {
			t.Fatalf("%#v: replicaset %d has %d shards, the tier says %d", c, x.Replicaset,
				count(after, x.Replicaset), tier.ShardsPerReplicaset)
		}
	}
	if remove, ok := c.(*ShardRemove); ok {
		x, _ := before.Shard(remove.Shard)
		tier, _ := before.Tier(x.Tier)
		older := 0
		for _, o := range before.Shards() {
			if o.Replicaset == x.Replicaset && o.ID < x.ID {
				older++
			}
		}
		moves := slices.ContainsFunc(before.Moves(), func(m Move) bool { return m.From == x.ID || m.To == x.ID })
		if older < int(tier.ShardsPerReplicaset) || owned(before, x.ID) > 0 || moves {
			t.Fatalf("%#v: shard %d was not to go, or had something left", c, x.ID)
		}
	}
	if restored, ok := c.(*TierRestored); ok {
		was, _ := before.Tier(restored.Tier)
		now, _ := after.Tier(restored.Tier)
		for _, x := range before.Shards() {
			_, stays := after.Shard(x.ID)
			filled := x.Tier != now.ID || slices.Contains(restored.Shards, x.ID)
			if overtaken := was.ToBeRestored() && !now.ToBeRestored() && !filled; stays == overtaken {
				t.Fatalf("%#v: shard %d stays: %t", c, x.ID, stays)
			}
		}
	}
}

// owned counts the buckets of a shard, one by one.
func owned(s *State, shard uint64) (n int) {
	for _, tier := range s.Tiers() {
		for b := range tier.Buckets {
			if owner, _ := tier.Route(b); owner == shard {
				n++
			}
		}
	}
	return n
}

// reassignable reports whether an instance may move to a replicaset: it holds no replica of a
// shard, and the replicaset has room for it, and nobody it may fail together with.
func reassignable(s *State, i *Instance, to uint64) bool {
	set, _ := s.Replicaset(to)
	tier, _ := s.Tier(i.Tier)
	size := 0
	for _, o := range s.Instances() {
		if o.Replicaset != to || o.Target.Variant == Expelled {
			continue
		}
		size++
		for _, a := range o.Domain {
			for _, b := range i.Domain {
				if a == b {
					return false
				}
			}
		}
	}
	for _, x := range s.Shards() {
		if _, has := x.On(i.ID); has {
			return false
		}
	}
	return set.Tier == i.Tier && set.Phase < ToBeExpelled && size < int(tier.ReplicationFactor) &&
		i.Target.Variant != Expelled
}

// compareStates looks at what one command did.
func compareStates(t *rapid.T, c Command, before, after *State, res *Result) {
	if after.Revision() == before.Revision() {
		plain := *after
		plain.applied, plain.ops, plain.opOrder, plain.opCount =
			before.applied, before.ops, before.opOrder, before.opCount
		if !reflect.DeepEqual(&plain, before) {
			t.Fatalf("%#v changed something, and the revision is as it was", c)
		}
		return
	}
	if res.Status != protocol.StatusOK {
		t.Fatalf("%#v was refused, and changed something", c)
	}
	if (after.MapVersion() != before.MapVersion()) != (routing(after) != routing(before)) {
		t.Fatalf("%#v: map version %d, was %d; what clients route by is\n%swas\n%s", c,
			after.MapVersion(), before.MapVersion(), routing(after), routing(before))
	}
	var events []string
	for _, i := range after.Instances() {
		old, known := before.Instance(i.ID)
		if !known && i.ID <= before.nextInstance {
			t.Fatalf("%#v: instance id %d came back", c, i.ID)
		}
		if _, may := c.(*InstanceReassign); known && old.Replicaset != i.Replicaset &&
			!(may && reassignable(before, &old, i.Replicaset)) {
			t.Fatalf("%#v: instance %+v is in replicaset %d by now", c, old, i.Replicaset)
		}
		if known && (old.UUID != i.UUID || old.Name != i.Name || old.Tier != i.Tier) {
			t.Fatalf("%#v: instance %+v became %+v", c, old, i)
		}
		if old.Expelled() && !reflect.DeepEqual(old, i) {
			t.Fatalf("%#v: instance %d is expelled, and changed", c, i.ID)
		}
		if i.Target != old.Target {
			events = append(events, "change_target_state "+i.Target.String())
			switch i.Target.Variant {
			case Online:
				if i.Target.Incarnation != old.Target.Incarnation+1 {
					t.Fatalf("%#v: target %s became %s", c, old.Target, i.Target)
				}
			default:
				if i.Target.Incarnation != old.Current.Incarnation {
					t.Fatalf("%#v: current %s, target %s", c, old.Current, i.Target)
				}
			}
		}
		if i.Current != old.Current {
			events = append(events, "change_current_state "+i.Current.String())
			if i.Current != i.Target {
				t.Fatalf("%#v: current became %s, target is %s", c, i.Current, i.Target)
			}
		}
	}
	var audited []string
	for _, ev := range Audit(before, after, after.AppliedIndex()) {
		if ev.State != "" {
			audited = append(audited, ev.Title+" "+ev.State)
		}
	}
	if !slices.Equal(events, audited) {
		t.Fatalf("%#v: audited %q, want %q", c, audited, events)
	}
	for _, x := range append(slices.Clone(after.Shards()), after.MetaShard()) {
		old, known := before.Shard(x.ID)
		if !known && x.ID <= before.nextShard {
			t.Fatalf("%#v: shard id %d came back", c, x.ID)
		}
		for _, r := range x.Replicas {
			was, there := old.Replica(r.Replica)
			if !there && known && r.Replica <= old.NextReplica {
				t.Fatalf("%#v: replica id %d of shard %d came back", c, r.Replica, x.ID)
			}
			if there && (was.Instance != r.Instance || r.Role < was.Role || (was.TargetRole == RoleNone && r.TargetRole != RoleNone)) {
				t.Fatalf("%#v: replica %+v of shard %d became %+v", c, was, x.ID, r)
			}
		}
	}
	if remove, ok := c.(*ShardsRemove); ok {
		for _, x := range before.Shards() {
			if x.Replicaset != remove.Replicaset {
				continue
			}
			if n := owned(before, x.ID); n > 0 ||
				slices.ContainsFunc(before.Moves(), func(m Move) bool { return m.From == x.ID || m.To == x.ID }) {
				t.Fatalf("%#v: shard %d with %d buckets is gone", c, x.ID, n)
			}
		}
	}
	checkShardCounts(t, before, after, c)
	if _, commit := c.(*MoveCommit); !commit {
		for _, tier := range before.Tiers() {
			for bucket := range tier.Buckets {
				owner, epoch := tier.Route(bucket)
				if now, newer := after.Route(tier.ID, bucket); owner != 0 && now != owner || newer < epoch {
					t.Fatalf("%#v: bucket %d was shard %d's under %d, is %d's under %d",
						c, bucket, owner, epoch, now, newer)
				}
			}
		}
	}
}
