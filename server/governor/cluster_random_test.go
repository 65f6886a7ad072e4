package governor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestAnyClusterConverges is the search over everything at once:
//
//   - Instances join, die, come back, go offline, are drained and expelled. Shards elect other
//     leaders, weights and numbers of shards change, and clients write.
//   - Two governors, both of which may believe that they lead, carry out steps of old and new plans
//     in any order, and forget everything at any moment.
//   - Requests and answers are lost, or come late.
//
// A cluster may begin with tiers that are to be restored, by instances that end in the middle of
// it.
//
// No bucket is ever served twice, in part, or loses a write. No group that can decide is changed
// into one that cannot. When the faults end, a governor that knows nothing brings everything to
// where it is wanted, and then has nothing to do.
func TestAnyClusterConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		factor := rapid.Uint32Range(1, 3).Draw(t, "factor")
		var more []meta.TierSpec
		if rapid.Bool().Draw(t, "cold") {
			more = []meta.TierSpec{{Name: "cold", Buckets: 12, ReplicationFactor: rapid.Uint32Range(1, 2).Draw(t, "cold factor"),
				ShardsPerReplicaset: 1, CanVote: rapid.Bool().Draw(t, "vote")}}
		}
		restored := rapid.Bool().Draw(t, "restored")
		if restored && len(more) > 0 {
			more[0].ReplicationFactor = 1
		}
		var c *cluster
		if restored {
			c = newRestoredCluster(24, 2, more...)
		} else {
			c = newCluster(24, factor, 2, more...)
		}
		c.violation = func(text string) { t.Fatal(text) }
		faults := rapid.IntRange(0, 6).Draw(t, "faults")
		c.nextDelivery = func() delivery {
			if f := rapid.IntRange(0, 20).Draw(t, "fate"); f < faults {
				return delivery(1 + f%3)
			}
			return delivered
		}
		r := &randomCluster{
			cluster: c, t: t, gov: c.governor(),
			progress: []*Progress{NewProgress(), NewProgress()}, plans: make([][]Step, 2),
		}
		for range rapid.IntRange(50, 300).Draw(t, "events") {
			r.event()
			c.checkBuckets()
		}
		c.nextDelivery = func() delivery { return delivered }
		for _, f := range c.late {
			f()
		}
		if restored && rapid.Bool().Draw(t, "to the end") {
			for _, i := range c.machine.Instances() {
				r.restore(i.ID, 2)
			}
		}
		r.converge()
	})
}

type randomCluster struct {
	*cluster
	t        *rapid.T
	gov      *Governor
	progress []*Progress
	plans    [][]Step
}

func (r *randomCluster) event() {
	t := r.t
	g := rapid.IntRange(0, 1).Draw(t, "governor")
	instances := r.machine.Instances()
	some := func() uint64 { return rapid.SampledFrom(instances).Draw(t, "instance").ID }
	switch rapid.IntRange(0, 26).Draw(t, "event") {
	case 0:
		if len(instances) < 9 && r.ensureLeader(meta.MetaShardID) {
			domain := rapid.SampledFrom([]string{"", "", "DC=A", "DC=B", "DC=C"}).Draw(t, "domain")
			tiers := []string{"", "", "", "arbiter", "mute"}
			if len(r.machine.Tiers()) > coldTier {
				tiers = append(tiers, "cold", "cold", "cold")
			}
			tier := rapid.SampledFrom(tiers).Draw(t, "tier")
			r.join(fmt.Sprintf("i%d", len(instances)+1), tier, "", domain)
		}
	case 1:
		r.kill(some())
	case 2, 3:
		r.start(some())
	case 4: // a shutdown
		id := some()
		if r.ensureLeader(meta.MetaShardID) {
			r.apply(&meta.InstanceUpdate{Instance: id, Target: meta.Offline, Reason: meta.ReasonShutdown})
		}
	case 5:
		if id := some(); r.ensureLeader(meta.MetaShardID) && rapid.IntRange(0, 3).Draw(t, "really") == 0 &&
			expelRefusal(r.view(r.progress[g]), id) == "" {
			r.apply(&meta.InstanceUpdate{Instance: id, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: true})
		}
	case 6:
		if id := some(); r.ensureLeader(meta.MetaShardID) {
			r.apply(&meta.InstanceDrain{Instance: id, Drained: rapid.Bool().Draw(t, "drained")})
		}
	case 7:
		if sets := r.machine.Replicasets(); r.ensureLeader(meta.MetaShardID) {
			set := rapid.SampledFrom(sets).Draw(t, "set")
			r.apply(&meta.WeightSet{Replicaset: set.ID, Weight: rapid.Uint32Range(0, 3).Draw(t, "weight") * 500, ByUser: true})
		}
	case 24:
		if r.ensureLeader(meta.MetaShardID) {
			r.apply(&meta.TierReplicationFactor{Tier: r.dataTier(), ReplicationFactor: rapid.Uint32Range(1, 3).Draw(t, "factor")})
		}
	case 25:
		if r.ensureLeader(meta.MetaShardID) {
			r.apply(&meta.TierShards{Tier: r.dataTier(), Shards: rapid.Uint32Range(1, 4).Draw(t, "shards")})
		}
	case 26:
		r.restore(some(), byte(rapid.IntRange(1, 2).Draw(t, "chunks")))
	case 8: // an election
		x := rapid.SampledFrom(append([]meta.Shard{r.machine.MetaShard()}, r.machine.Shards()...)).Draw(t, "shard")
		if r.ensureLeader(x.ID) {
			r.elect(x.ID, rapid.SampledFrom(r.liveVoters(x.ID)).Draw(t, "leader"))
		}
	case 9:
		r.progress[g] = NewProgress()
		if rapid.IntRange(0, 3).Draw(t, "pause") == 0 {
			for range 2 * int(FreezeLimit/time.Second) {
				r.heartbeat()
			}
			_ = r.view(r.progress[1-g])
		}
	case 10:
		if len(r.late) > 0 {
			i := rapid.IntRange(0, len(r.late)-1).Draw(t, "late")
			f := r.late[i]
			r.late = slices.Delete(r.late, i, i+1)
			f()
		}
	case 11, 12:
		r.write(r.dataTier(), rapid.Uint32Range(0, 23).Draw(t, "bucket"))
	case 13, 14, 15:
		r.heartbeat()
		r.detectFailures()
	case 16, 17:
		r.plans[g] = Plan(r.view(r.progress[g]))
	case 18, 19, 20: // a governor's good day
		for _, s := range Plan(r.view(r.progress[g])) {
			r.executeOne(r.progress[g], &s)
		}
	default:
		if len(r.plans[g]) > 0 {
			s := rapid.SampledFrom(r.plans[g]).Draw(t, "step")
			r.executeOne(r.progress[g], &s)
		}
	}
}

// restore has an instance restore its tier, if it can. A tier is restored once, by any instance
// that gets to the end.
func (r *randomCluster) restore(instance uint64, chunks byte) {
	i, _ := r.machine.Instance(instance)
	before, _ := r.machine.Tier(i.Tier)
	err := r.cluster.restore(instance, chunks)
	if after, _ := r.machine.Tier(i.Tier); (err == nil) != (before.ToBeRestored() && after.Bootstrapped) {
		r.t.Fatalf("tier %s is %+v after %v", after.Name, after, err)
	}
}

// coldTier is the id of the second tier with data, where there is one.
const coldTier = 3

// dataTier draws a tier with data.
func (r *randomCluster) dataTier() uint8 {
	if len(r.machine.Tiers()) > coldTier && rapid.Bool().Draw(r.t, "of cold") {
		return coldTier
	}
	return 0
}

func (r *randomCluster) executeOne(p *Progress, s *Step) {
	if s.At > r.now {
		return
	}
	began := r.now
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if answer, err := r.gov.execute(ctx, s); err == nil {
		p.Done(s, began, r.now, answer)
	}
}

// converge lets everybody come back, and a new governor finish.
func (r *randomCluster) converge() {
	for id := range r.procs {
		r.start(id)
	}
	for _, i := range r.machine.Instances() {
		r.apply(&meta.InstanceDrain{Instance: i.ID})
	}
	p := NewProgress()
	quiet := 0
	var plan []Step
	for range 1500 {
		r.heartbeat()
		r.detectFailures()
		plan = Plan(r.view(p))
		for _, s := range plan {
			r.executeOne(p, &s)
			r.checkBuckets()
		}
		if quiet++; len(plan) > 0 {
			quiet = 0
		}
		if quiet > 8 { // more than the rest after a move that was given up, or a heartbeat
			break
		}
	}
	e := Explain(r.view(p))
	if len(plan) > 0 {
		g := r.groups[meta.MetaShardID]
		r.t.Fatalf("plans do not end: %s\nwaits: %v\nmeta shard: voters %v, record %+v",
			strings.Join(e.Next, "; "), e.Waits, g.voters, r.machine.MetaShard())
	}
	for _, w := range e.Waits {
		if w.Kind == Underway {
			r.t.Fatalf("an operator who waits for the plan waits for ever: %v", e.Waits)
		}
	}
	if why := r.notConverged(); why != "" {
		r.t.Fatalf("%s\nwaits: %v", why, e.Waits)
	}
	steps := Plan(r.view(NewProgress()))
	// A shard that waits for its buckets is told of all nodes by each governor.
	if steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Kind == SyncNodes }); len(steps) > 0 {
		r.t.Fatalf("a new governor does not leave what the last one settled: %v", steps)
	}
}

// notConverged is what is not as it is wanted, empty for nothing.
func (c *cluster) notConverged() string {
	s := &c.machine.State
	sets := map[uint64]int{}
	members, voting := 0, 0
	for _, i := range s.Instances() {
		if i.Expelled() {
			continue
		}
		if i.Current != i.Target {
			// The last one with a vote cannot go, and the last of the last replicaset has no place
			// for its buckets.
			if i.Target.Variant == meta.Expelled && c.stuck(&i) {
				continue
			}
			return fmt.Sprintf("instance %d is %s, to be %s", i.ID, i.Current, i.Target)
		}
		sets[i.Replicaset]++
		members++
		if t, _ := s.Tier(i.Tier); t.CanVote {
			voting++
		}
	}
	for _, x := range append([]meta.Shard{s.MetaShard()}, s.Shards()...) {
		if why := c.shardNotConverged(&x, sets, members, voting); why != "" {
			return why
		}
	}
	if len(s.Moves()) > 0 {
		return fmt.Sprintf("moves are left: %+v", s.Moves())
	}
	for _, t := range s.Tiers() {
		if t.Buckets == 0 {
			continue
		}
		if why := cmp.Or(c.copyMissing(&t), c.bucketsNotConverged(&t)); why != "" {
			return "tier " + t.Name + ": " + why
		}
	}
	return ""
}

// copyMissing names an instance without use and a replicaset with data that could have it.
func (c *cluster) copyMissing(t *meta.Tier) string {
	s := &c.machine.State
	members, used := map[uint64][]meta.Instance{}, map[uint64]bool{}
	for _, i := range s.Instances() {
		if i.Target.Variant != meta.Expelled {
			members[i.Replicaset] = append(members[i.Replicaset], i)
		}
	}
	for _, run := range t.Runs {
		x, _ := s.Shard(run.Shard)
		used[x.Replicaset] = true
	}
	for _, set := range s.Replicasets() {
		have := len(members[set.ID])
		if !used[set.ID] || set.Phase >= meta.ToBeExpelled || have == 0 || have >= int(t.ReplicationFactor) {
			continue
		}
		for _, i := range s.Instances() {
			from, _ := s.Replicaset(i.Replicaset)
			if i.Tier != set.Tier || !online(&i) || used[i.Replicaset] ||
				from.Phase >= meta.ToBeExpelled || len(members[i.Replicaset]) >= int(t.ReplicationFactor) {
				continue
			}
			apart := func(m meta.Instance) bool { return meta.Intersect(m.Domain, i.Domain) }
			if !slices.ContainsFunc(members[set.ID], apart) {
				return fmt.Sprintf("instance %d of replicaset %s is free, and replicaset %s has %d members",
					i.ID, from.Name, set.Name, have)
			}
		}
	}
	return ""
}

// stuck reports whether an instance's expel cannot end: nobody else can have its replicaset's
// buckets.
func (c *cluster) stuck(i *meta.Instance) bool {
	set, _ := c.machine.Replicaset(i.Replicaset)
	t, _ := c.machine.Tier(set.Tier)
	return set.Phase == meta.ToBeExpelled && t.Bootstrapped && !otherHasWeight(&c.machine.State, &set)
}

func (c *cluster) shardNotConverged(x *meta.Shard, sets map[uint64]int, members, voting int) string {
	if x.ID != meta.MetaShardID {
		members, voting = sets[x.Replicaset], sets[x.Replicaset]
		if set, _ := c.machine.Replicaset(x.Replicaset); set.Phase == meta.ToBeExpelled {
			return ""
		}
	}
	g := c.groups[x.ID]
	leaders := map[uint64]int{}
	for _, y := range c.machine.Shards() {
		if y.Replicaset == x.Replicaset && !y.Surplus(&c.machine.State) {
			leaders[y.Master]++
		}
	}
	leader, _ := x.Replica(g.leader)
	switch stuck := len(x.Replicas) - members; {
	case stuck != 0 && !(x.ID == meta.MetaShardID && stuck > 0 && stuck <= len(c.machine.Instances())-members):
		return fmt.Sprintf("shard %d has %d replicas, %d members", x.ID, len(x.Replicas), members)
	case len(g.voters) != VoterCount(voting) && stuck == 0:
		return fmt.Sprintf("shard %d has %d voters, %d members", x.ID, len(g.voters), members)
	case leader.Instance != x.Master || (x.ID != meta.MetaShardID && x.TargetMaster != x.Master):
		return fmt.Sprintf("shard %d is led by %d, by the map %d, wanted %d", x.ID, leader.Instance, x.Master, x.TargetMaster)
	}
	for _, r := range x.Replicas {
		_, votes := g.voters[r.Replica]
		_, listens := g.nonVotings[r.Replica]
		if r.Role != r.TargetRole || votes != (r.Role == meta.RoleVoter) || listens != (r.Role == meta.RoleNonVoting) {
			return fmt.Sprintf("shard %d: replica %+v, votes %t, listens %t", x.ID, r, votes, listens)
		}
		if x.ID == meta.MetaShardID || !votes {
			continue
		}
		for _, o := range x.Replicas {
			to, _ := c.machine.Instance(o.Instance)
			if leaders[r.Instance]-leaders[o.Instance] > 1 && o.Role == meta.RoleVoter && stays(&to) {
				return fmt.Sprintf("leaderships of replicaset %d: %v", x.Replicaset, leaders)
			}
		}
	}
	return ""
}

func (c *cluster) bucketsNotConverged(t *meta.Tier) string {
	if !t.Bootstrapped {
		return ""
	}
	counts := map[uint64]uint32{}
	for _, run := range t.Runs {
		counts[run.Shard] += run.Count
		for b := run.First; b < run.First+run.Count; b++ {
			if y := c.data[run.Shard].copies[b]; y == nil || y.state != 'a' || y.epoch != run.Epoch {
				return fmt.Sprintf("bucket %d is not active in shard %d under epoch %d: %+v", b, run.Shard, run.Epoch, y)
			}
		}
	}
	var list []replicasetLoad
	for _, set := range c.machine.Replicasets() {
		if set.Tier != t.ID {
			continue
		}
		o := replicasetLoad{replicaset: set.ID}
		if set.Phase == meta.ReplicasetReady {
			o.weight = uint64(set.Weight)
		}
		for _, x := range c.machine.Shards() {
			if x.Replicaset == set.ID {
				o.shards = append(o.shards, shardLoad{x.ID, counts[x.ID], x.Surplus(&c.machine.State)})
			}
		}
		list = append(list, o)
	}
	targets := bucketTargets(t.Buckets, list)
	for x, n := range targets {
		if counts[x] != n {
			return fmt.Sprintf("shard %d has %d buckets, not %d", x, counts[x], n)
		}
	}
	for _, set := range c.machine.Replicasets() {
		// Without a weight in the tier, buckets of surplus shards have nowhere to go.
		n := len(c.machine.ShardsOf(set.ID))
		if set.Tier == t.ID && set.Phase == meta.ReplicasetReady && n > 0 && targets != nil && n != int(t.ShardsPerReplicaset) {
			return fmt.Sprintf("replicaset %s has %d shards, not %d", set.Name, n, t.ShardsPerReplicaset)
		}
	}
	for _, x := range c.machine.Shards() {
		if set, _ := c.machine.Replicaset(x.Replicaset); x.Tier == t.ID && !x.Ready && set.Phase != meta.ToBeExpelled {
			return fmt.Sprintf("shard %d is not ready", x.ID)
		}
	}
	return ""
}
