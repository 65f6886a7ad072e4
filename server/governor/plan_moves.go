package governor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

const (
	// MaxMoves is how many moves of buckets of a tier run at a time. More at once take longer each,
	// with all that shares a machine or a shard with them. With four, the longest write while a
	// cluster grows takes twice as long.
	MaxMoves = 1
	// MoveBuckets is how many buckets a move has at most: all of them are frozen at once. How many
	// the next one has follows from how long the last one took. After an aborted move it is half as
	// many.
	MoveBuckets = 32
	// minMoveBuckets is how many the first move has, and each one however long they take. With
	// fewer, nearly all of a move's time goes for its four commits.
	minMoveBuckets = 8
	// moveTime is how long buckets should be frozen. A request may meet two moves, one of its
	// session's home and one of its name, and some moves take twice as long as the one before.
	moveTime = 60 * time.Millisecond
	// FreezeLimit is how long buckets may be frozen before the move is aborted and the source
	// serves them again. Leases of sessions at home in frozen buckets are not renewed. A client
	// with the default timeout of 10 s believes in its lease for 8.5 s after a keep-alive, which
	// may be 2.5 s old when the freeze begins. It must be attached again in the remaining time.
	FreezeLimit = 4 * time.Second
)

// planMoves continues the moves under way, and begins new ones where buckets are not as the weights
// say.
func planMoves(p *planner) {
	for _, m := range p.State.Moves() {
		planMove(p, &m)
	}
	for _, t := range p.State.Tiers() {
		if t.Bootstrapped {
			planBalance(p, &t)
		}
	}
}

// planMove plans the next one or two steps of a move.
func planMove(p *planner, m *meta.Move) {
	done := p.Progress.moves[m.Ref()]
	step := Step{Tier: m.Tier, First: m.First, Count: m.Count, Shard: m.From, To: m.To, Epoch: m.Epoch}
	if t, ok := p.State.Tier(m.Tier); ok {
		step.Total = t.Buckets
	}
	add := func(kind StepKind) {
		step.Kind = kind
		p.add(step)
	}
	at := func(kind StepKind, shard uint64) {
		p.add(Step{Kind: kind, Tier: m.Tier, First: m.First, Count: m.Count, Total: step.Total,
			Shard: shard, Epoch: m.OwnerEpoch()})
	}
	what := fmt.Sprintf("buckets %d..%d to move from shard %d to shard %d", m.First, m.First+m.Count-1, m.From, m.To)
	switch m.Phase {
	case meta.Moving:
		switch {
		case done.copied:
			add(CommitMove)
		case p.Now-done.since >= FreezeLimit:
			add(AbortMove)
			p.addWait(Underway, what, "it took more than %s to copy them; it is given up and tried again", FreezeLimit)
		case !done.frozen:
			add(FreezeMove)
		default:
			add(CopyMove)
		}
	case meta.Committed, meta.Aborted:
		owner, other := m.To, m.From
		if m.Phase == meta.Aborted {
			owner, other = other, owner
		}
		if !done.activated {
			at(ActivateMove, owner)
		}
		// After a commit the old copy goes last: until the new copy serves, it is the one to
		// inspect.
		if !done.discarded && (done.activated || m.Phase == meta.Aborted) {
			at(DiscardMove, other)
		}
		if done.activated && done.discarded {
			add(EndMove)
		}
	}
}

// planBalance begins moves until each shard has the buckets due by its replicaset's weight, and
// surplus shards have none.
func planBalance(p *planner, t *meta.Tier) {
	under := 0
	counts := make(map[uint64]uint32)
	for _, run := range t.Runs {
		counts[run.Shard] += run.Count
	}
	for _, m := range p.State.Moves() {
		if m.Tier != t.ID {
			continue
		}
		if blocksNextMove(p, &m) {
			under++
		}
		if m.Phase == meta.Moving {
			counts[m.From] -= m.Count
			counts[m.To] += m.Count
		}
	}
	var sets []replicasetLoad
	for _, set := range p.State.Replicasets() {
		if set.Tier != t.ID {
			continue
		}
		o := replicasetLoad{replicaset: set.ID}
		if set.Phase == meta.ReplicasetReady && !p.removingShards[set.ID] {
			o.weight = uint64(set.Weight)
		}
		for i := range p.shards {
			if x := &p.shards[i]; x.ID != meta.MetaShardID && x.Replicaset == set.ID {
				o.shards = append(o.shards, shardLoad{x.ID, counts[x.ID], p.surplus[x.ID]})
			}
		}
		sets = append(sets, o)
	}
	usable := func(shard uint64, gets bool) bool { return !p.changingVotes && moveBlockedBy(p, shard, gets) == "" }
	all := func(uint64, bool) bool { return true }
	want := bucketFlows(sets, t.Buckets, 1<<10, all)
	if len(want) == 0 {
		explainNoTarget(p, t, sets)
		return
	}
	for _, f := range want {
		what := fmt.Sprintf("buckets of tier %s to move from shard %d to shard %d", t.Name, f.from, f.to)
		if why := moveBlockedBy(p, f.from, false) + moveBlockedBy(p, f.to, true); why != "" {
			kind := Follows
			if inMoveBackoff(p, f.from) || inMoveBackoff(p, f.to) {
				kind = Underway
			}
			p.addWait(kind, what, "%s", strings.TrimSuffix(why, "; "))
		} else if p.changingVotes {
			p.addDependentWait(what, "the votes of the meta shard change first")
		} else if under >= MaxMoves {
			p.addWait(Underway, what, "another move is under way")
		}
	}
	taken := movingBuckets(p, t)
	for _, f := range bucketFlows(sets, p.Progress.moveSize(t.ID), MaxMoves-under, usable) {
		// Each abort in a row halves the next move.
		aborts := max(p.Progress.moveBackoffs[f.from].aborts, p.Progress.moveBackoffs[f.to].aborts)
		f.count = min(f.count, uint32(max(1, p.Progress.moveSize(t.ID)>>min(aborts, 31))))
		for first, count := range pickBuckets(t, f, taken) {
			p.add(Step{Kind: BeginMove, Tier: t.ID, Shard: f.from, To: f.to, First: first, Count: count})
		}
	}
}

// blocksNextMove reports whether a move keeps the next one from beginning. The log of the source
// stands still for a moment while the old copy is discarded, and a request would meet that and then
// the next freeze. Where the owner has no leader nobody can be served anyway, and where the other
// shard has none, nothing is discarded now.
func blocksNextMove(p *planner, m *meta.Move) bool {
	if m.Phase == meta.Moving {
		return true
	}
	done, other := p.Progress.moves[m.Ref()], m.From
	if m.Phase == meta.Aborted {
		other = m.To
	}
	return !done.activated && isLed(p, m.Owner()) || !done.discarded && isLed(p, other)
}

// explainNoTarget explains why the buckets of a replicaset without a weight do not move.
func explainNoTarget(p *planner, t *meta.Tier, sets []replicasetLoad) {
	for _, set := range sets {
		if set.weight > 0 {
			return
		}
	}
	p.addWait(Outside, "buckets of tier "+t.Name+" to move",
		"no replicaset of it is ready and has a weight; give one a weight, or start instances for another")
}

// isLed reports whether a heartbeat names the shard's leader.
func isLed(p *planner, shard uint64) bool {
	return slices.ContainsFunc(p.shards, func(x shardView) bool { return x.ID == shard && x.led })
}

// moveBlockedBy returns why buckets cannot move from a shard, or to it, now; empty if they can.
func moveBlockedBy(p *planner, shard uint64, gets bool) string {
	i := slices.IndexFunc(p.shards, func(x shardView) bool { return x.ID == shard })
	switch {
	case i < 0:
		return fmt.Sprintf("there is no shard %d; ", shard)
	case !p.shards[i].Ready:
		return fmt.Sprintf("shard %d is not ready; ", shard)
	case !p.shards[i].led:
		return fmt.Sprintf("shard %d has no leader that this governor has heard of; ", shard)
	}
	if x := &p.shards[i]; gets && lacksVoters(p, x) {
		return fmt.Sprintf("shard %d has fewer voters than its replicaset has instances for; ", shard)
	}
	if p.reconfiguring[shard] {
		return fmt.Sprintf("the members of shard %d change first; ", shard)
	}
	if p.transferring[shard] {
		return fmt.Sprintf("the leadership of shard %d is transferred first; ", shard)
	}
	if rest := p.Progress.moveBackoffs[shard].until - p.Now; rest > 0 {
		return fmt.Sprintf("a move of shard %d was given up, the next one begins in %s; ", shard, rest.Round(time.Second))
	}
	return ""
}

// inMoveBackoff reports whether a shard's next move begins after a pause.
func inMoveBackoff(p *planner, shard uint64) bool {
	return p.Progress.moveBackoffs[shard].until > p.Now
}

// lacksVoters reports whether a shard has not got all its votes yet.
func lacksVoters(p *planner, x *shardView) bool {
	voters, members := 0, 0
	for _, r := range x.Replicas {
		if r.Role == meta.RoleVoter {
			voters++
		}
	}
	for _, i := range p.members(x) {
		if online(i) && stays(i) {
			members++
		}
	}
	return voters < VoterCount(members)
}

// movingBuckets returns the buckets of a tier that are in a move.
func movingBuckets(p *planner, t *meta.Tier) map[uint32]uint32 {
	taken := make(map[uint32]uint32)
	for _, m := range p.State.Moves() {
		if m.Tier == t.ID {
			taken[m.First] = m.Count
		}
	}
	return taken
}

// pickBuckets yields buckets of the source for a flow: neighbours with one epoch, none in a move,
// the last ones first. It marks them as taken.
func pickBuckets(t *meta.Tier, f bucketFlow, taken map[uint32]uint32) func(yield func(first, count uint32) bool) {
	return func(yield func(first, count uint32) bool) {
		for _, run := range slices.Backward(t.Runs) {
			if run.Shard != f.from {
				continue
			}
			first, count := lastFree(run, f.count, taken)
			if count == 0 {
				continue
			}
			taken[first] = count
			yield(first, count)
			return // one move for each flow; the rest is planned again
		}
	}
}

// lastFree is the last stretch of a run without buckets in a move, at most this long.
func lastFree(run meta.Run, most uint32, taken map[uint32]uint32) (first, count uint32) {
	end := run.First + run.Count
	for end > run.First {
		start := run.First
		moved := false
		for f, n := range taken {
			switch {
			case f < end && end <= f+n: // the bucket before end is taken
				end, moved = max(f, run.First), true
			case f+n <= end && f+n > start && f < end:
				start = f + n
			}
			if moved {
				break
			}
		}
		if moved {
			continue
		}
		count = min(most, end-start)
		return end - count, count
	}
	return 0, 0
}
