package remotesession

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

const shards = 3

const (
	home = 0
	sem  = 1
)

// What a copy of a bucket is.
const (
	absent = iota
	active
	frozen
	imported
	importing // a part of it has come
)

// What a home knows of the session. Ended ones are unknown, and ids are not used again.
const (
	notStarted = iota
	alive
	ended
)

// What a leader believes of the remote session.
const (
	noRecord   = iota // nothing is held for it here, or its home is ACTIVE here
	toAsk             // a question is to be sent
	asked             // it was sent
	subscribed        // it was answered: the home will notify this shard when the session is gone
	toRelease         // the release is proposed
	assumed           // faults only: counts as subscribed without any reason
)

// bucketCopy is a shard's copy of a bucket. Epoch stays as a tombstone when the copy goes.
type bucketCopy struct {
	state, epoch, pending uint8
	session, attach       uint8 // home: the session, and its attach epoch
	held                  uint8 // semaphore: the session holds
}

// belief of the present leader of a shard. Stale: the leadership that answered is no longer the
// home's, and this leader does not know it.
type belief struct{ state, home, epoch, stale uint8 }

// shard is the state of one, with the soft state of its present leader.
type shard struct {
	copies       [2]bucketCopy
	attach       uint8 // highest attach epoch in the remote session's record
	tombstone    uint8 // a release was applied: the id is refused
	belief       belief
	subs         [shards]uint8 // soft: subscribed for shard i: 0 no, 1 under its present attempt, 2 under an older one
	knows        [2]uint8      // version of the map, per bucket
	deposedTable bucketCopy    // faults only: the home table of a deposed leader that still answers
	deposed      uint8
}

// question and answer. current: it is about the present record of the remote session under its
// present leadership. link: it belongs to the present attempt of the link.
type question struct{ sent, from, to, epoch, current, link uint8 }

type answer struct{ verdict, from, to, attach, current, leader uint8 }

// notice that a home owes a subscriber. A home repeats it until it is confirmed, so it is not lost
// while both leaderships last.
type notice struct{ verdict, from, to, attach, lossy uint8 }

const (
	verdictAlive = 1
	verdictGone  = 2
	verdictRetry = 3
)

// move of a bucket.
type move struct{ phase, to, epoch uint8 }

const (
	moveNone        = iota
	moveFreeze      // freeze goes to the owner
	moveImportFirst // the first chunk goes to the target
	moveImportLast  // the last chunk goes to the target
	moveCommit      // the map may be committed
	moveActivate    // activate goes to the target
	moveDrop        // drop goes to the former owner
	moveAborted     // a new epoch is committed for the owner: activate goes to it
	moveDropAborted // drop goes to the target
)

// command of a move, kept to be applied a second time.
type command struct {
	kind, bucket, at, epoch uint8
	data                    bucketCopy
	attach, gone            uint8 // what the source knows of the remote session
}

const (
	cmdFreeze = 1 + iota
	cmdChunk  // an import begins
	cmdImport // its last chunk
	cmdActivate
	cmdDrop
)

const maxVersions = 6 // of a bucket's place in the map

// state is everything. It has only bytes, so that it can be hashed as it is in memory.
type state struct {
	shards [shards]shard

	// the map
	owners [2][maxVersions]uint8
	epochs [2][maxVersions]uint8
	newest [2]uint8
	nextEp [2]uint8
	moves  [2]move

	// the truth
	started, gone, attach uint8
	owned                 uint8 // the living session was granted the semaphore, and did not release it
	violation             uint8

	// the network
	acquires    [3]uint8 // in flight, by attach epoch
	questions   [2]question
	answers     [2]answer
	notices     [4]notice
	duplicate   command
	unsubscribe question // faults only
	lookup      answer   // faults only

	// what may still happen
	budget budget
}

type budget struct {
	acquires, releases, attaches, ends, leaders, homeMoves, semMoves, aborts, dups, resets uint8
}

const (
	noViolation = iota
	lost
	twoOwners
	grantedGone
	leaked
	oldEpoch
	stuck
)

var violations = [...]string{
	noViolation: "",
	lost:        "a living session's holding was released",
	twoOwners:   "a bucket is active in two shards",
	grantedGone: "a session was granted something by a shard that was notified of its end",
	leaked:      "everything is delivered and stable, and something is held for a session that is gone",
	oldEpoch:    "everything is delivered and stable, and a remote session would obey a client that was taken over",
	stuck:       "everything is delivered and stable, and the protocol does not come to rest",
}

func (s *state) hash() uint64 {
	return xxhash.Sum64(unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
}

func start(c *Scenario) state {
	var s state
	for i := range s.shards {
		s.shards[i].belief.home = shards
	}
	s.shards[c.HomeAt].copies[home] = bucketCopy{state: active, epoch: 1, session: alive, attach: 1}
	s.shards[c.SemAt].copies[sem] = bucketCopy{state: active, epoch: 1}
	if c.Unstarted {
		s.shards[c.HomeAt].copies[home].session = notStarted
	} else {
		s.started = 1
	}
	s.attach = 1
	s.owners[home][0], s.owners[sem][0] = c.HomeAt, c.SemAt
	s.epochs[home][0], s.epochs[sem][0] = 1, 1
	s.nextEp = [2]uint8{2, 2}
	s.budget = budget{c.Acquires, c.Releases, c.Attaches, c.Ends, c.Leaders, c.HomeMoves, c.SemMoves, c.Aborts, c.Dups, c.Resets}
	return s
}

// activeAt is the shard whose copy of a bucket is active, or shards.
func (s *state) activeAt(b uint8) uint8 {
	for i := range s.shards {
		if s.shards[i].copies[b].state == active {
			return uint8(i)
		}
	}
	return shards
}

func (s *state) local(i uint8) bool { return s.shards[i].copies[home].state == active }

// isRemote reports whether the session is remote here: something is held for it, and its home is
// not active here.
func (s *state) isRemote(i uint8) bool {
	m := &s.shards[i].copies[sem]
	return m.state == active && m.held == 1 && !s.local(i)
}

// sort orders the messages in flight, which have no order, so that equal states are equal bytes.
func (s *state) sort() {
	q, a, n := &s.questions, &s.answers, &s.notices
	if q[0].key() < q[1].key() {
		q[0], q[1] = q[1], q[0]
	}
	if a[0].key() < a[1].key() {
		a[0], a[1] = a[1], a[0]
	}
	for i := 1; i < len(n); i++ {
		for k := i; k > 0 && n[k-1].key() < n[k].key(); k-- {
			n[k-1], n[k] = n[k], n[k-1]
		}
	}
}

func pack(v ...uint8) (k uint64) {
	for _, x := range v {
		k = k<<8 | uint64(x)
	}
	return k
}

func (q question) key() uint64 { return pack(q.sent, q.from, q.to, q.epoch, q.current, q.link) }
func (a answer) key() uint64   { return pack(a.verdict, a.from, a.to, a.attach, a.current, a.leader) }
func (n notice) key() uint64   { return pack(n.verdict, n.from, n.to, n.attach, n.lossy) }
