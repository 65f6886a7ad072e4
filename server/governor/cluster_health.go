package governor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Observation is one instance's view of its cluster: its copy of the map, and the heartbeats that
// it receives.
type Observation struct {
	View
	Self      uint64        // the instance whose view it is
	Leader    uint64        // the instance that leads the meta shard as far as its replica there knows, or 0
	Confirmed bool          // a majority of the meta shard has confirmed the map just now
	Age       time.Duration // how long ago a majority confirmed it last, unless Confirmed
	Wall      time.Time
}

// Assess returns what works and what may be lost, as one instance sees it. It is pure. An instance
// counts if its heartbeat came within FreshLimit; the map's own marks do not count.
func Assess(o Observation) protocol.ClusterHealth { return assess(o).out }

func assess(o Observation) *assessment {
	a := &assessment{Observation: o, out: protocol.ClusterHealth{
		State: protocol.HealthHealthy, Confirmed: o.Confirmed, Problems: []string{}, Shards: []protocol.ClusterGroup{},
		Replicasets: []protocol.ClusterReplicasetCopies{}, Unreachable: []protocol.ClusterUnreachable{},
		NextLoss: []protocol.ClusterLoss{},
	}}
	a.domains = failureDomains(o.State)
	for i := range a.domains {
		a.out.Domains = append(a.out.Domains, a.domains[i].String())
	}
	a.out.AnsweredBy = a.name(o.Self)
	if !o.Confirmed {
		a.out.AgeMS = uint64(max(o.Age, 0) / time.Millisecond)
	}
	a.buckets = make(map[uint64]uint32)
	for _, t := range o.State.Tiers() {
		for _, run := range t.Runs {
			a.buckets[run.Shard] += run.Count
		}
	}
	a.findUnheard()
	a.findUnreached()
	a.findRefusals()
	a.assessMeta()
	for _, set := range o.State.Replicasets() {
		if set.Phase != meta.ReplicasetExpelled {
			a.assessReplicaset(&set)
		}
	}
	for _, t := range o.State.Tiers() {
		switch {
		case t.ToBeRestored():
			a.problem(protocol.HealthBroken,
				"tier %s serves no requests yet: its data is to be restored from the backup with digest %016x",
				t.Name, t.Restore.Backup)
		case t.Buckets > 0 && !t.Bootstrapped:
			a.problem(protocol.HealthBroken,
				"tier %s serves no requests yet: its buckets are assigned when a replicaset of it is full", t.Name)
		}
	}
	for _, i := range o.State.Instances() {
		if i.Drained && !i.Expelled() {
			a.out.Drained = append(a.out.Drained, i.Name)
		}
	}
	a.out.Upgrade = upgradeText(o.State)
	a.findLosses()
	a.findDomainLosses()
	a.out.Losses = lossText(a.out.NextLoss)
	a.out.Problems = append(a.broken, a.degraded...)
	if a.out.Problems == nil {
		a.out.Problems = []string{}
	}
	return a
}

// NeededForTolerance returns which groups the loss of the observer would stop, or keep stopped, by
// the rules of Assess; empty: none. Groups of one or two voters do not count: they never survive
// the loss of a voter.
func NeededForTolerance(o Observation) string {
	a := assess(o)
	needed := func(x meta.Shard, g *protocol.ClusterGroup) bool {
		own, ok := x.On(o.Self)
		return ok && own.Role == meta.RoleVoter && g.Voters >= 3 && g.FaultTolerance == 0 && !g.Idle
	}
	loss := protocol.ClusterLoss{Instance: a.name(o.Self), Meta: needed(o.State.MetaShard(), &a.out.Meta)}
	for i := range a.out.Shards {
		g := &a.out.Shards[i]
		if x, _ := o.State.Shard(g.Shard); needed(x, g) {
			loss.Shards = append(loss.Shards, g.Shard)
		}
	}
	if !loss.Meta && len(loss.Shards) == 0 {
		return ""
	}
	return lossText([]protocol.ClusterLoss{loss})[0]
}

type assessment struct {
	Observation
	out              protocol.ClusterHealth
	domains          []failureDomain
	buckets          map[uint64]uint32 // by shard
	broken, degraded []string
}

func (a *assessment) name(instance uint64) string {
	i, ok := a.State.Instance(instance)
	if !ok && instance != 0 {
		return fmt.Sprintf("instance %d", instance)
	}
	return i.Name
}

// problem adds a sentence, and sets the state at least as bad.
func (a *assessment) problem(state, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if state == protocol.HealthBroken {
		a.out.State = state
		a.broken = append(a.broken, text)
		return
	}
	if a.out.State == protocol.HealthHealthy {
		a.out.State = state
	}
	a.degraded = append(a.degraded, text)
}

// isHeard reports whether an instance's heartbeat came a moment ago. The observer hears itself.
func (a *assessment) isHeard(instance uint64) bool {
	if instance == a.Self {
		return true
	}
	h, ok := a.Health[instance]
	return ok && a.Now-h.Heard <= FreshLimit
}

// heardReplica returns the current report of a replica.
func (a *assessment) heardReplica(r *meta.Replica, shard uint64) (ShardReport, bool) {
	if !a.isHeard(r.Instance) {
		return ShardReport{}, false
	}
	h, ok := a.Health[r.Instance].Shards[shard]
	return h, ok && h.Replica == r.Replica
}

// Tolerance is how many voters a group of this many instances may lose.
func Tolerance(instances int) int { return max(0, (VoterCount(instances)-1)/2) }

// group assesses the raft group of a shard that is to survive the loss of this many voters.
func (a *assessment) group(x *meta.Shard, promised int) protocol.ClusterGroup {
	g := protocol.ClusterGroup{ConfiguredTolerance: promised}
	term := uint64(0)
	for i := range x.Replicas {
		r := &x.Replicas[i]
		h, runs := a.heardReplica(r, x.ID)
		if r.Role == meta.RoleVoter {
			g.Voters++
			if runs {
				g.Reachable++
			}
		}
		if runs && h.Leader == r.Replica && h.Term >= term {
			g.Leader, term = a.name(r.Instance), h.Term
		}
	}
	g.Majority = isQuorum(g.Voters, g.Reachable)
	g.FaultTolerance = max(0, g.Reachable-g.Voters/2-1)
	if !g.Majority {
		g.Leader = "" // a leader without followers may not know it yet
	}
	return g
}

// assessMeta assesses the meta shard, whose voters VoterCount determines.
func (a *assessment) assessMeta() {
	x, can := a.State.MetaShard(), 0
	for _, i := range a.State.Instances() {
		if t, _ := a.State.Tier(i.Tier); t.CanVote && !i.Expelled() && i.Target.Variant != meta.Expelled {
			can++
		}
	}
	g := a.group(&x, Tolerance(can))
	if g.Leader = ""; a.Confirmed {
		// A majority has answered, whatever heartbeats arrive here.
		g.Leader, g.Majority = a.name(a.Leader), true
	}
	if keys := keysForVoters(a.State); len(keys) > 0 {
		a.assessDomains(&x, &g, keys)
	}
	a.out.Meta = g
	for _, d := range g.UnsafeDomains {
		a.problem(protocol.HealthDegraded, "the meta shard would not survive the loss of failure domain %s: %s", d,
			a.votersIn(&x, d))
	}
	switch {
	case a.Confirmed && g.FaultTolerance < g.ConfiguredTolerance:
		a.problem(protocol.HealthDegraded, "the meta shard may lose %s, and not %d as configured: %s",
			count(g.FaultTolerance, "voter"), g.ConfiguredTolerance, heardText(&g))
	case a.Confirmed:
	case g.Majority:
		a.problem(protocol.HealthBroken, "the meta shard does not answer, though %s: nothing is decided about the cluster",
			heardText(&g))
	default:
		a.problem(protocol.HealthBroken, "the meta shard has no majority: %s; nothing is decided about the cluster",
			heardText(&g))
	}
}

func heardText(g *protocol.ClusterGroup) string {
	return fmt.Sprintf("%d of %d voters %s heard", g.Reachable, g.Voters,
		map[bool]string{true: "is", false: "are"}[g.Reachable == 1])
}

// assessReplicaset assesses the shards of a replicaset and their copies. A replicaset without
// buckets is shown and is no problem: it has no data to lose.
func (a *assessment) assessReplicaset(set *meta.Replicaset) {
	tier, _ := a.State.Tier(set.Tier)
	if tier.Buckets == 0 {
		return
	}
	c := protocol.ClusterReplicasetCopies{Replicaset: set.Name, Tier: tier.Name, Configured: int(tier.ReplicationFactor)}
	type like struct {
		voters, heard int
		majority      bool
	}
	var stopped, leaderless, atRisk = map[like][]uint64{}, []uint64(nil), map[like][]uint64{}
	var kinds []like
	unsafe, domains := map[string][]uint64{}, []string(nil)
	note := func(in map[like][]uint64, k like, shard uint64) {
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
		in[k] = append(in[k], shard)
	}
	shards := a.State.ShardsOf(set.ID)
	for _, x := range shards {
		c.Buckets += a.buckets[x.ID]
	}
	first := true
	for _, x := range shards {
		// A new or a surplus shard beside others has nothing that could be lost.
		if copies := a.copies(&x); (first || copies < c.Copies) && (c.Buckets == 0 || a.buckets[x.ID] > 0) {
			c.Copies, first = copies, false
		}
		g := a.group(&x, Tolerance(c.Configured))
		g.Shard, g.Replicaset, g.Idle = x.ID, set.Name, a.buckets[x.ID] == 0
		if !g.Idle {
			a.assessDomains(&x, &g, nil)
		}
		for _, d := range g.UnsafeDomains {
			if unsafe[d] == nil {
				domains = append(domains, d)
			}
			unsafe[d] = append(unsafe[d], x.ID)
		}
		a.out.Shards = append(a.out.Shards, g)
		k := like{g.Voters, g.Reachable, g.Majority}
		switch {
		case g.Idle:
		case !g.Majority:
			note(stopped, k, x.ID)
		case g.Leader == "":
			leaderless = append(leaderless, x.ID)
		case g.FaultTolerance < g.ConfiguredTolerance:
			note(atRisk, k, x.ID)
		}
	}
	if c.Buckets > 0 {
		c.SinceMS = a.copiesMissingSince(set, &tier, shards, c.Configured-c.Copies)
	}
	if now := a.wallMS(); c.SinceMS > 0 {
		c.ForMS = max(1, now-min(now, c.SinceMS))
	}
	a.out.Replicasets = append(a.out.Replicasets, c)
	for _, k := range kinds {
		g := protocol.ClusterGroup{Voters: k.voters, Reachable: k.heard}
		if list := stopped[k]; list != nil {
			a.problem(protocol.HealthBroken, "%s of replicaset %s %s no majority: %s; %s",
				shardList(list), set.Name, hasOrHave(list), heardText(&g), a.unservedBuckets(list))
		}
	}
	if leaderless != nil {
		a.problem(protocol.HealthBroken, "%s of replicaset %s %s no leader; %s",
			shardList(leaderless), set.Name, hasOrHave(leaderless), a.unservedBuckets(leaderless))
	}
	if c.Buckets == 0 {
		return
	}
	if c.Copies < c.Configured {
		text := ""
		if c.SinceMS > 0 {
			text = " since " + time.UnixMilli(int64(min(c.SinceMS, 1<<62))).UTC().Format(time.RFC3339)
		}
		a.problem(protocol.HealthDegraded, "replicaset %s has %d of %d copies%s", set.Name, c.Copies, c.Configured, text)
	}
	for _, k := range kinds {
		g := protocol.ClusterGroup{Voters: k.voters, Reachable: k.heard}
		if list := atRisk[k]; list != nil {
			a.problem(protocol.HealthDegraded,
				"%s of replicaset %s may lose %s, and not %d as configured: %s", shardList(list), set.Name,
				count(max(0, k.heard-k.voters/2-1), "voter"), Tolerance(c.Configured), heardText(&g))
		}
	}
	for _, d := range domains {
		x, _ := a.State.Shard(unsafe[d][0])
		a.problem(protocol.HealthDegraded,
			"%s of replicaset %s would not survive the loss of failure domain %s: %s", shardList(unsafe[d]), set.Name, d,
			a.votersIn(&x, d))
	}
}

// votersIn returns, in words, how many of a shard's voters are in a failure domain.
func (a *assessment) votersIn(x *meta.Shard, domain string) string {
	n := slices.IndexFunc(a.domains, func(d failureDomain) bool { return d.String() == domain })
	in, _ := a.inDomain(x, &a.domains[n])
	g := a.group(x, 0)
	return fmt.Sprintf("it has %d of %d voters", in, g.Voters)
}

// copies counts the running replicas of a shard on instances that stay. A non-voting replica counts
// once its instance is Online: before, it has not caught up.
func (a *assessment) copies(x *meta.Shard) (n int) {
	for i := range x.Replicas {
		r := &x.Replicas[i]
		if _, runs := a.heardReplica(r, x.ID); !runs || r.TargetRole == meta.RoleNone || r.Role == meta.RoleNone {
			continue
		}
		in, _ := a.State.Instance(r.Instance)
		if in.Target.Variant == meta.Online && (r.Role == meta.RoleVoter || in.Current.Variant == meta.Online) {
			n++
		}
	}
	return n
}

// copiesMissingSince returns when a replicaset came to have fewer copies than configured, in ms
// since 1970; 0: it has them all, or the time is unknown. Members that do not run are missing for
// certain. Of the members that were expelled, and of the copies that were configured later, the
// last ones are missing: the others were replaced or filled up.
func (a *assessment) copiesMissingSince(
	set *meta.Replicaset, tier *meta.Tier, shards []meta.Shard, missing int,
) uint64 {
	var lost []uint64
	later := slices.Clone(tier.RaisedAt)
	for _, i := range a.State.Instances() {
		if i.Replicaset != set.ID {
			continue
		}
		switch since, unheard := a.unheardSince(i.Name); {
		case i.Target.Incarnation == 0 && !i.Expelled(): // it has not started yet
		case unheard && since > 0:
			lost = append(lost, since)
		case i.Expelled():
			later = append(later, i.ChangedAt)
		case i.Target.Variant != meta.Online:
			lost = append(lost, i.ChangedAt)
		case unheard:
			return 0
		case i.Current.Variant == meta.Online && !a.runsAll(&i, shards):
			return 0 // something has stopped there
		}
	}
	if missing <= 0 || missing > len(lost)+len(later) {
		return 0
	}
	slices.Sort(later)
	lost = append(lost, later[len(later)-max(0, missing-len(lost)):]...)
	slices.Sort(lost)
	return lost[len(lost)-missing]
}

// unheardSince reports whether an instance is not heard, and since when; 0: that is not known.
func (a *assessment) unheardSince(name string) (since uint64, unheard bool) {
	for _, u := range a.out.Unreachable {
		if u.Instance == name {
			return u.SinceMS, true
		}
	}
	return 0, false
}

// runsAll reports whether an instance runs a replica of each of the shards that have buckets.
func (a *assessment) runsAll(i *meta.Instance, shards []meta.Shard) bool {
	for _, x := range shards {
		r, ok := x.On(i.ID)
		if ok {
			_, ok = a.heardReplica(&r, x.ID)
		}
		if !ok && a.buckets[x.ID] > 0 {
			return false
		}
	}
	return true
}

func (a *assessment) wallMS() uint64 { return uint64(max(0, a.Wall.UnixMilli())) }

// unservedBuckets returns, in words, how many buckets are not served.
func (a *assessment) unservedBuckets(shards []uint64) string {
	n := uint32(0)
	for _, x := range shards {
		n += a.buckets[x]
	}
	return bucketsAre(n) + " not served"
}

// bucketsAre begins a sentence about n buckets.
func bucketsAre(n uint32) string {
	if n == 1 {
		return "1 bucket is"
	}
	return fmt.Sprintf("%d buckets are", n)
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func hasOrHave(shards []uint64) string {
	if len(shards) == 1 {
		return "has"
	}
	return "have"
}

// shardList is like "shards 2-5, 9". The list is in order.
func shardList(list []uint64) string {
	word := "shards "
	if len(list) == 1 {
		word = "shard "
	}
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch {
		case j > i:
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[j]))
		default:
			parts = append(parts, fmt.Sprint(list[i]))
		}
		i = j + 1
	}
	return word + strings.Join(parts, ", ")
}

// findUnheard lists the instances without a recent heartbeat, and since when.
func (a *assessment) findUnheard() {
	for _, i := range a.State.Instances() {
		if i.Expelled() || a.isHeard(i.ID) {
			continue
		}
		u := protocol.ClusterUnreachable{Instance: i.Name, State: i.Current.Variant.String(), Reason: i.Reason,
			Unreached: a.describeUnreached(&i, "it")}
		now := a.wallMS()
		if h, ok := a.Health[i.ID]; ok {
			u.ForMS = uint64(max(1, (a.Now-h.Heard)/time.Millisecond))
		} else if i.Target.Variant == meta.Offline && i.ChangedAt > 0 && i.ChangedAt <= now {
			u.ForMS = max(1, now-i.ChangedAt)
		}
		if u.ForMS > 0 {
			u.SinceMS = now - min(now, u.ForMS)
		}
		a.out.Unreachable = append(a.out.Unreachable, u)
	}
}

// findUnreached names the instances that are heard, and not reached at their raft address: they do
// not receive the decisions of their shards.
func (a *assessment) findUnreached() {
	for _, i := range a.State.Instances() {
		if text := a.describeUnreached(&i, i.Name); text != "" && i.ID != a.Self && a.isHeard(i.ID) {
			a.problem(protocol.HealthDegraded, "%s", text)
		}
	}
}

// findRefusals names the instances that new connections do not reach by their own doing.
func (a *assessment) findRefusals() {
	for _, i := range a.State.Instances() {
		if i.Expelled() || !a.isHeard(i.ID) {
			continue
		}
		for _, text := range a.Health[i.ID].Refusals {
			a.problem(protocol.HealthDegraded, "%s: %s", i.Name, text)
		}
	}
}

// findLosses lists what each instance's loss would stop, besides the groups that have stopped.
func (a *assessment) findLosses() {
	for _, i := range a.State.Instances() {
		if i.Expelled() || !a.isHeard(i.ID) {
			continue
		}
		loss := protocol.ClusterLoss{Instance: i.Name, Shards: []uint64{}}
		x := a.State.MetaShard()
		loss.Meta = a.out.Meta.Majority && a.out.Meta.FaultTolerance == 0 && a.hasLiveVote(&x, i.ID)
		for n := range a.out.Shards {
			g := &a.out.Shards[n]
			if x, _ = a.State.Shard(g.Shard); g.Majority && g.FaultTolerance == 0 && !g.Idle && a.hasLiveVote(&x, i.ID) {
				loss.Shards = append(loss.Shards, g.Shard)
			}
		}
		if loss.Meta || len(loss.Shards) > 0 {
			a.out.NextLoss = append(a.out.NextLoss, loss)
		}
	}
}

// hasLiveVote reports whether an instance runs a voter of the shard.
func (a *assessment) hasLiveVote(x *meta.Shard, instance uint64) bool {
	r, ok := x.On(instance)
	if !ok || r.Role != meta.RoleVoter {
		return false
	}
	_, runs := a.heardReplica(&r, x.ID)
	return runs
}

// lossText describes what the loss of one more instance or failure domain would stop.
func lossText(losses []protocol.ClusterLoss) []string {
	type what struct {
		domain, meta bool
		shards       string
	}
	var kinds []what
	who := map[what][]string{}
	for _, l := range losses {
		w := what{domain: l.Domain != "", meta: l.Meta}
		if len(l.Shards) > 0 {
			w.shards = shardList(l.Shards)
		}
		if who[w] == nil {
			kinds = append(kinds, w)
		}
		name := l.Instance
		if w.domain {
			name = fmt.Sprintf("%s (%s)", l.Domain, count(len(l.Instances), "instance"))
		}
		who[w] = append(who[w], name)
	}
	list := []string{}
	for _, w := range kinds {
		stops := w.shards
		if w.meta {
			stops = strings.TrimSuffix("the meta shard and "+w.shards, " and ")
		}
		whose := oneOf(who[w])
		if w.domain {
			whose = "failure domain " + whose
		}
		list = append(list, fmt.Sprintf("the loss of %s would stop %s", whose, stops))
	}
	return list
}

// oneOf is like "a, b or c".
func oneOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
