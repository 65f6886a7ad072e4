package governor

import (
	"fmt"
	"maps"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Progress is a governor's memory of the steps that it has executed: facts that stay true under any
// leader. It is soft state: a governor that starts with an empty one repeats steps, with the same
// result. It holds only facts about pending parts of the meta state.
type Progress struct {
	activated     map[bucketsKey]bool
	nodeRevisions map[shardNodeKey]uint64 // the highest revision of the node that the shard has applied
	leaderEpochs  map[uint64]epochSpan    // by shard
	floors        map[uint64]floor        // by node

	// highestToken is not below any fencing token that a shard gave out for a node which it has
	// dropped. A bucket may have moved from a shard that had not dropped the node yet to one that
	// had: so nodes dropped before shardLost, when a shard was last found gone, are dropped again.
	highestToken uint64
	shards       map[uint64]bool
	shardLost    time.Duration

	syncedTo     map[uint64]string             // by new shard: the first path that it does not have
	moves        map[meta.MoveRef]moveProgress // of the moves under way
	moveBackoffs map[uint64]moveBackoff        // by shard, after an aborted move
	moveSizes    map[uint8]uint32              // by tier: the bucket count of the next move, see moveSize
	catchUpMarks map[uint64]catchUpMark        // by shard
	goingOffline map[uint64]time.Duration      // by instance: since when it is to go offline
	expelling    map[uint64]time.Duration      // by instance: since when it is being expelled
	transfers    map[uint64]transferred        // by shard: the last transfer; heartbeats with its term are older
}

// moveProgress is the finished part of a move.
type moveProgress struct {
	since                                time.Duration // when this governor first saw it
	freezing                             time.Duration // when the freeze began; 0: unknown
	frozen, copied, activated, discarded bool
}

// transferred is a leadership that was transferred.
type transferred struct {
	term uint64
	at   time.Duration
}

// moveBackoff is the pause before the next move of a shard, after aborts aborted moves in a row.
type moveBackoff struct {
	until  time.Duration
	aborts int
}

// catchUpMark is the end of a shard's log some time ago: a replica that has applied it has caught
// up.
type catchUpMark struct {
	index uint64
	next  uint64 // index of the next mark
	at    time.Duration
}

// catchUpPeriod is the least age of a mark, except for the first.
const catchUpPeriod = time.Second

type bucketsKey struct {
	shard uint64
	first uint32
}

type shardNodeKey struct {
	shard uint64
	node  uint64
}

// revisionDropped is the revision of a dropped node, above that of every put.
const revisionDropped = ^uint64(0)

// epochSpan is a time in which a shard had one leader epoch. Epochs never come back: if two reads
// see the same one, it was there in between.
type epochSpan struct {
	epoch uint64
	first time.Duration // when the first read of it ended
	last  time.Duration // when the last read of it began
}

// floor is since when every shard has had the config with this revision, which lowered the grace
// period.
type floor struct {
	revision uint64
	since    time.Duration
}

// NewProgress is the memory of a governor that has done nothing yet.
func NewProgress() *Progress {
	return &Progress{
		activated:     make(map[bucketsKey]bool),
		nodeRevisions: make(map[shardNodeKey]uint64),
		leaderEpochs:  make(map[uint64]epochSpan),
		floors:        make(map[uint64]floor),
		shards:        make(map[uint64]bool),
		syncedTo:      make(map[uint64]string),
		moves:         make(map[meta.MoveRef]moveProgress),
		moveBackoffs:  make(map[uint64]moveBackoff),
		moveSizes:     make(map[uint8]uint32),
		catchUpMarks:  make(map[uint64]catchUpMark),
		goingOffline:  make(map[uint64]time.Duration),
		expelling:     make(map[uint64]time.Duration),
		transfers:     make(map[uint64]transferred),
	}
}

// Update forgets facts that are not pending any more, and records when new pending items appear.
func (p *Progress) Update(v View) {
	s, now := v.State, v.Now
	p.updateShards(s, now)
	p.updateNodes(s, now)
	maps.DeleteFunc(p.syncedTo, func(id uint64, _ string) bool { x, ok := s.Shard(id); return !ok || x.Ready })
	seen := make(map[meta.MoveRef]moveProgress)
	for _, m := range s.Moves() {
		done, ok := p.moves[m.Ref()]
		if !ok {
			done.since = now
		}
		seen[m.Ref()] = done
	}
	p.moves = seen
	for _, i := range s.Instances() {
		noteSince(p.goingOffline, i.ID, i.Target.Variant == meta.Offline && i.Current.Variant != meta.Offline, now)
		noteSince(p.expelling, i.ID, i.Target.Variant == meta.Expelled && i.Current.Variant != meta.Expelled, now)
	}
	v.Progress = p
	for _, x := range append([]meta.Shard{s.MetaShard()}, s.Shards()...) {
		leader, ok := v.leader(&x)
		if !ok {
			continue
		}
		h, _ := v.replicaHealth(&leader, x.ID)
		m, ok := p.catchUpMarks[x.ID]
		switch {
		case !ok:
			p.catchUpMarks[x.ID] = catchUpMark{h.Applied, h.Applied, now}
		case now-m.at >= catchUpPeriod:
			p.catchUpMarks[x.ID] = catchUpMark{m.next, h.Applied, now}
		}
	}
	for id := range p.catchUpMarks {
		if _, ok := s.Shard(id); !ok {
			delete(p.catchUpMarks, id)
			delete(p.moveBackoffs, id)
		}
	}
	maps.DeleteFunc(p.transfers, func(id uint64, _ transferred) bool { _, ok := s.Shard(id); return !ok })
}

// noteSince keeps since when something is true of an instance.
func noteSince(since map[uint64]time.Duration, instance uint64, is bool, now time.Duration) {
	_, was := since[instance]
	switch {
	case !is:
		delete(since, instance)
	case !was:
		since[instance] = now
	}
}

// updateShards forgets who has dropped nodes when a shard is gone.
func (p *Progress) updateShards(s *meta.State, now time.Duration) {
	for id := range p.shards {
		if _, ok := s.Shard(id); !ok {
			delete(p.shards, id)
			p.shardLost = now
			maps.DeleteFunc(p.nodeRevisions, func(_ shardNodeKey, revision uint64) bool { return revision == revisionDropped })
		}
	}
	for _, x := range s.Shards() {
		p.shards[x.ID] = true
	}
}

func (p *Progress) updateNodes(s *meta.State, now time.Duration) {
	maps.DeleteFunc(p.activated, func(key bucketsKey, _ bool) bool {
		x, ok := s.Shard(key.shard)
		return !ok || x.Ready
	})
	for key := range p.nodeRevisions {
		if n, ok := s.Node(key.node); !ok || (n.Phase == meta.Ready && n.GraceFloor == 0) {
			delete(p.nodeRevisions, key)
		}
	}
	for id, f := range p.floors {
		if n, ok := s.Node(id); !ok || !hasFloor(&n) || n.Revision != f.revision {
			delete(p.floors, id)
		}
	}
	for n := range s.Pending() {
		if _, ok := p.floors[n.ID]; !ok && hasFloor(&n) {
			p.floors[n.ID] = floor{n.Revision, now}
		}
	}
	if len(p.floors) == 0 {
		clear(p.leaderEpochs)
	}
}

// hasFloor reports whether a node waits only for the end of its grace floor.
func hasFloor(n *meta.Node) bool { return n.Phase == meta.Ready && n.GraceFloor != 0 }

// Answer is the result of a step.
type Answer struct {
	Epoch uint64 // ReadLeaderEpoch
	Token uint64 // DropNode: the highest that the shard gave out
	Path  string // SyncNodes: the first path that was not sent
}

// Done records a step that was executed between began and ended.
func (p *Progress) Done(s *Step, began, ended time.Duration, answer Answer) {
	switch s.Kind {
	case ActivateBuckets:
		p.activated[bucketsKey{s.Shard, s.First}] = true
	case PutNode:
		p.noteRevision(s.Shard, s.Node, s.Revision)
	case DropNode:
		p.highestToken = max(p.highestToken, answer.Token)
		if began >= p.shardLost {
			p.noteRevision(s.Shard, s.Node, revisionDropped)
		}
	case ReadLeaderEpoch:
		l := p.leaderEpochs[s.Shard]
		if l.epoch != answer.Epoch {
			l = epochSpan{epoch: answer.Epoch, first: ended}
		}
		l.last = began
		p.leaderEpochs[s.Shard] = l
	case SyncNodes:
		p.syncedTo[s.Shard] = max(p.syncedTo[s.Shard], answer.Path)
	case TransferLeader:
		if s.Term >= p.transfers[s.Shard].term {
			p.transfers[s.Shard] = transferred{s.Term, ended}
		}
	case FreezeMove, CopyMove, CommitMove, AbortMove, ActivateMove, DiscardMove:
		p.moveDone(s, began, ended)
	}
}

func (p *Progress) moveDone(s *Step, began, now time.Duration) {
	for ref, done := range p.moves {
		if ref.Tier != s.Tier || ref.First != s.First {
			continue // a bucket is in one move at most
		}
		switch {
		case s.Kind == FreezeMove && s.Epoch == ref.Epoch:
			done.frozen, done.freezing = true, began
		case s.Kind == CopyMove && s.Epoch == ref.Epoch:
			done.copied = true
		case s.Kind == ActivateMove && s.Epoch >= ref.Epoch:
			done.activated = true
			if s.Epoch == ref.Epoch && done.freezing > 0 {
				p.fitMoveSize(s.Tier, s.Count, now-done.freezing)
			}
		case s.Kind == DiscardMove && s.Epoch >= ref.Epoch:
			done.discarded = true
		}
		p.moves[ref] = done
	}
	for _, id := range [2]uint64{s.Shard, s.To} {
		switch r := p.moveBackoffs[id]; s.Kind {
		case CommitMove:
			delete(p.moveBackoffs, id)
		case AbortMove:
			p.moveBackoffs[id] = moveBackoff{now + min(FreezeLimit<<min(r.aborts, 5), 5*time.Minute), r.aborts + 1}
		}
	}
}

// moveSize is how many buckets the next move of a tier has.
func (p *Progress) moveSize(tier uint8) uint32 { return max(minMoveBuckets, p.moveSizes[tier]) }

// fitMoveSize sizes the next move so that its buckets are frozen for moveTime, after a move of
// count buckets took took. It at most halves or doubles the size: a single move is weak evidence.
func (p *Progress) fitMoveSize(tier uint8, count uint32, took time.Duration) {
	fit := int64(count) * int64(moveTime) / max(int64(took), 1)
	now := int64(p.moveSize(tier))
	p.moveSizes[tier] = uint32(min(max(fit, now/2), 2*now, MoveBuckets))
}

func (p *Progress) noteRevision(shard, node, revision uint64) {
	key := shardNodeKey{shard, node}
	p.nodeRevisions[key] = max(p.nodeRevisions[key], revision)
}

// String is the step in a line, for logs and plans.
func (s Step) String() string {
	text := s.Kind.String()
	add := func(format string, args ...any) { text += " " + fmt.Sprintf(format, args...) }
	if s.Instance != 0 {
		add("instance=%d", s.Instance)
	}
	if s.Replicaset != 0 {
		add("replicaset=%d", s.Replicaset)
	}
	if s.Shard != 0 {
		add("shard=%d", s.Shard)
	}
	if s.Replica != 0 {
		add("replica=%d", s.Replica)
	}
	switch s.Kind {
	case ActivateBuckets:
		add("buckets=%d..%d of %d", s.First, s.First+s.Count-1, s.Total)
	case PutNode:
		add("node=%d revision=%d grace=%d", s.Node, s.Revision, s.Config.GracePeriod)
	case DropNode:
		add("node=%d", s.Node)
	case ClearGraceFloor:
		add("node=%d revision=%d", s.Node, s.Revision)
	case SyncNodes:
		if s.Path != "" {
			add("from=%s", s.Path)
		}
	case CommitNodes:
		for _, n := range s.Nodes {
			add("%d@%d", n.Node, n.Revision)
		}
	case SetCurrentState:
		add("state=%s", s.State)
	case SetTargetRole:
		add("role=%s", s.Role)
	case RaiseVersion:
		add("version=%s", s.Version)
	case AssignBuckets:
		add("tier=%d", s.Tier)
	case AddShard:
		add("has=%d", s.Count)
	case BeginMove, FreezeMove, CopyMove, CommitMove, AbortMove, ActivateMove, DiscardMove, EndMove:
		if s.To != 0 {
			add("to=%d", s.To)
		}
		add("buckets=%d..%d", s.First, s.First+s.Count-1)
		if s.Epoch != 0 {
			add("epoch=%d", s.Epoch)
		}
	}
	if s.At != 0 {
		add("at=%s", s.At)
	}
	return text
}
