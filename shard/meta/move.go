package meta

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// MovePhase is the phase of a move. Numbers are stable.
type MovePhase uint8

const (
	Moving    MovePhase = 1 // From owns the buckets, frozen or not; To may have an inactive copy
	Committed MovePhase = 2 // To owns the buckets, under Epoch
	Aborted   MovePhase = 3 // From owns the buckets, under Epoch + 1
)

// String is the phase's word.
func (p MovePhase) String() string {
	return word(p, "", "moving", "committed", "aborted")
}

// Move is a change of the owner of some buckets, under way. Invariant: a bucket is in one move at
// most.
type Move struct {
	Tier  uint8
	First uint32
	Count uint32
	From  uint64
	To    uint64
	Epoch uint64 // of the freeze, the copy and the commit: above all earlier epochs of these buckets
	Phase MovePhase
}

// Owner is the shard that owns the buckets in the map now.
func (m *Move) Owner() uint64 {
	if m.Phase == Committed {
		return m.To
	}
	return m.From
}

// MoveRef identifies a move.
type MoveRef struct {
	Tier  uint8
	First uint32
	Epoch uint64
}

// Ref identifies the move.
func (m *Move) Ref() MoveRef { return MoveRef{m.Tier, m.First, m.Epoch} }

// OwnerEpoch is the epoch of the owner's buckets in the map once the move is decided.
func (m *Move) OwnerEpoch() uint64 {
	if m.Phase == Aborted {
		return m.Epoch + 1
	}
	return m.Epoch
}

// moveTable has the moves of buckets that are under way.
type moveTable struct {
	moves []Move // in order of tier and first bucket
}

// Moves under way, in order of tier and first bucket.
func (t *moveTable) Moves() []Move { return t.moves }

func (m *Move) order(o *Move) int {
	if c := cmp.Compare(m.Tier, o.Tier); c != 0 {
		return c
	}
	return cmp.Compare(m.First, o.First)
}

// findMove is the index of the move that begins with a bucket, or where it would be.
func findMove(list []Move, tier uint8, first uint32) int {
	key := Move{Tier: tier, First: first}
	at, _ := slices.BinarySearchFunc(list, key, func(a, b Move) int { return a.order(&b) })
	return at
}

// MoveBegin decides that buckets are to move to another shard of their tier. Clients see no change
// yet. It may be repeated while the move is under way.
//
// ABORTED: buckets of the range are in a move, or not From's, or a shard is not ready. NOT_FOUND:
// no such tier or shard. BAD_REQUEST: no such buckets.
type MoveBegin struct {
	Tier  uint8
	First uint32
	Count uint32
	From  uint64 // the expected owner of all of them; 0 for any
	To    uint64
}

func (*MoveBegin) kind() Kind { return KindMoveBegin }

func (c *MoveBegin) fields(f *varint.Fields) {
	varint.Byte(f, &c.Tier)
	f.Uint32(&c.First, &c.Count)
	f.Uint(&c.From, &c.To)
}

func (c *MoveBegin) apply(s *State) Result {
	t, ok := s.Tier(c.Tier)
	if !ok {
		return refuse(protocol.StatusNotFound, "there is no tier %d", c.Tier)
	}
	if c.Count == 0 || uint64(c.First)+uint64(c.Count) > uint64(t.Buckets) {
		return refuse(protocol.StatusBadRequest, "tier %s has no %d buckets from %d; it has %d",
			t.Name, c.Count, c.First, t.Buckets)
	}
	to, ok := findShard(s.shards, c.To)
	if !ok {
		return refuse(protocol.StatusNotFound, "there is no shard %d", c.To)
	}
	at, after := findMove(s.moves, c.Tier, c.First), uint64(c.First)+uint64(c.Count)
	if at < len(s.moves) {
		if m := &s.moves[at]; m.Tier == c.Tier && m.First == c.First && m.Count == c.Count &&
			m.To == c.To && m.Phase == Moving && (c.From == 0 || c.From == m.From) {
			return Result{Revision: unchanged, Version: m.Epoch}
		}
		if m := &s.moves[at]; m.Tier == c.Tier && uint64(m.First) < after {
			return inMove(m)
		}
	}
	if at > 0 {
		if m := &s.moves[at-1]; m.Tier == c.Tier && uint64(m.First)+uint64(m.Count) > uint64(c.First) {
			return inMove(m)
		}
	}
	from, epoch := t.Route(c.First)
	for i := t.runAt(c.First); i < len(t.Runs) && uint64(t.Runs[i].First) < after; i++ {
		if t.Runs[i].Shard != from {
			return refuse(protocol.StatusAborted, "buckets %d to %d have more than one owner; move them one by one",
				c.First, after-1)
		}
		epoch = max(epoch, t.Runs[i].Epoch)
	}
	source, ok := findShard(s.shards, from)
	target := s.shards[to]
	set, _ := s.Replicaset(target.Replicaset)
	switch {
	case !ok:
		return refuse(protocol.StatusAborted, "the buckets of tier %s are not assigned yet", t.Name)
	case c.From != 0 && c.From != from:
		return refuse(protocol.StatusAborted, "bucket %d is shard %d's, not %d's; look again and retry",
			c.First, from, c.From)
	case target.Tier != t.ID || set.Phase >= ToBeExpelled:
		return refuse(protocol.StatusPreconditionFailed,
			"shard %d cannot have buckets of tier %s; choose another one", c.To, t.Name)
	case from == c.To:
		return refuse(protocol.StatusPreconditionFailed, "buckets %d to %d are shard %d's already",
			c.First, after-1, c.To)
	case !s.shards[source].Ready || !target.Ready:
		return refuse(protocol.StatusAborted, "shard %d or %d is not ready yet", from, c.To)
	case len(s.moves) >= maxMoves:
		return refuse(protocol.StatusAborted, "there are %d moves under way; wait until one has ended", maxMoves)
	}
	s.moves = slices.Insert(slices.Clone(s.moves), at,
		Move{Tier: c.Tier, First: c.First, Count: c.Count, From: from, To: c.To, Epoch: epoch + 1, Phase: Moving})
	return Result{Version: epoch + 1}
}

func inMove(m *Move) Result {
	return refuse(protocol.StatusAborted, "buckets %d to %d are in a move to shard %d",
		m.First, m.First+m.Count-1, m.To)
}

// MoveCommit gives the buckets of a move to its target. No other command changes an owner.
// PRECONDITION_FAILED if the move was aborted; NOT_FOUND if there is no such move any more.
type MoveCommit struct {
	MoveRef
}

func (*MoveCommit) kind() Kind { return KindMoveCommit }

func (c *MoveCommit) apply(s *State) Result { return c.decide(s, Committed) }

// MoveAbort leaves the buckets of a move with its source, under a still newer epoch with which the
// source activates them. PRECONDITION_FAILED if the move was committed; NOT_FOUND as with
// MoveCommit.
type MoveAbort struct {
	MoveRef
}

func (*MoveAbort) kind() Kind { return KindMoveAbort }

func (c *MoveAbort) apply(s *State) Result { return c.decide(s, Aborted) }

// MoveEnd forgets a decided move: both shards know of it. PRECONDITION_FAILED while the move is not
// decided. A move that is not there is ignored.
type MoveEnd struct {
	MoveRef
}

func (*MoveEnd) kind() Kind { return KindMoveEnd }

func (c *MoveEnd) apply(s *State) Result {
	at, ok := s.moveAt(&c.MoveRef)
	switch {
	case !ok:
		return Result{Revision: unchanged}
	case s.moves[at].Phase == Moving:
		return refuse(protocol.StatusPreconditionFailed,
			"the move of bucket %d is not decided; commit or abort it first", c.First)
	}
	s.moves = slices.Delete(slices.Clone(s.moves), at, at+1)
	return Result{}
}

func (c *MoveRef) fields(f *varint.Fields) {
	varint.Byte(f, &c.Tier)
	f.Uint32(&c.First)
	f.Uint(&c.Epoch)
}

func (t *moveTable) moveAt(ref *MoveRef) (int, bool) {
	at := findMove(t.moves, ref.Tier, ref.First)
	return at, at < len(t.moves) && t.moves[at].Ref() == *ref
}

// decide commits or aborts a move, once.
func (c *MoveRef) decide(s *State, phase MovePhase) Result {
	at, ok := s.moveAt(c)
	if !ok {
		return refuse(protocol.StatusNotFound, "there is no move of bucket %d under epoch %d", c.First, c.Epoch)
	}
	m := s.moves[at]
	switch {
	case m.Phase == phase:
		return Result{Revision: unchanged}
	case m.Phase != Moving:
		return refuse(protocol.StatusPreconditionFailed, "the move of bucket %d was %s", m.First, m.Phase)
	}
	m.Phase = phase
	s.moves = slices.Clone(s.moves)
	s.moves[at] = m
	owner := m.To
	if phase == Aborted {
		owner = m.From
	}
	t, _ := s.Tier(m.Tier)
	t.Runs = withOwner(t.Runs, m.First, m.Count, owner, m.OwnerEpoch())
	s.putTier(t)
	s.mapVersion = s.revision
	return Result{}
}

// withOwner is the runs with another owner of some buckets. It does not change the given runs.
func withOwner(runs []Run, first, count uint32, shard, epoch uint64) []Run {
	out := make([]Run, 0, len(runs)+2)
	add := func(from, to uint32, shard, epoch uint64) {
		if from >= to {
			return
		}
		if n := len(out); n > 0 && out[n-1].Shard == shard && out[n-1].Epoch == epoch {
			out[n-1].Count += to - from
			return
		}
		out = append(out, Run{First: from, Count: to - from, Shard: shard, Epoch: epoch})
	}
	end := first + count
	for _, run := range runs {
		after := run.First + run.Count
		add(run.First, min(after, first), run.Shard, run.Epoch)
		add(max(run.First, first), min(after, end), shard, epoch)
		add(max(run.First, end), after, run.Shard, run.Epoch)
	}
	return out
}
