package guests

import (
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

const shards = 3

// bucket numbers.
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

// What is known of the session at a home. Ended ones are unknown, and ids are not used again.
const (
	unborn = iota
	alive
	ended
)

// What a leader believes of the guest.
const (
	noRecord  = iota // nothing is held for it here, or its home is ACTIVE here
	toAsk            // a question is to be sent
	asked            // it was sent
	sure             // it was answered: the home tells when the session is gone
	goneKnown        // the release is proposed
	trusted          // faults only: taken for subscribed without any reason
)

// copyOf is a shard's copy of a bucket. Epoch stays as a tombstone when the copy goes.
type copyOf struct {
	is, epoch, pending uint8
	session, attach    uint8 // home: the session, and its attach epoch
	held               uint8 // semaphore: the session holds
}

// belief of the present leader of a shard. Stale: the leadership that answered is not the home's present one, which this leader does not know.
type belief struct{ is, home, epoch, stale uint8 }

// shard is the state of one, with the soft state of its present leader.
type shard struct {
	copies [2]copyOf
	attach uint8 // highest attach epoch the guest record knows
	tomb   uint8 // a release was applied: the id is refused
	belief belief
	subs   [shards]uint8 // soft: subscribed for shard i: 0 no, 1 under its present attempt, 2 under an older one
	knows  [2]uint8      // version of the map, per bucket
	ghost  copyOf        // faults only: the home table of a deposed leader that still answers
	haunts uint8
}

// question and answer. Present: it is about the present record of the guest under its present leadership. Link: it belongs to the present attempt of the link.
type question struct{ is, from, to, epoch, present, link uint8 }

type answer struct{ is, from, to, attach, present, leader uint8 }

// news that a home owes a guest. A home repeats them until they are confirmed, so they are not lost while both leaderships last.
type news struct{ is, from, to, attach, lossy uint8 }

const (
	sayAlive = 1
	sayGone  = 2
	sayRetry = 3
)

// move of a bucket.
type move struct{ phase, to, epoch uint8 }

const (
	resting   = iota
	begun     // freeze goes to the owner
	isFrozen  // the first chunk goes to the target
	isHalf    // the last chunk goes to the target
	isThere   // the map may be committed
	committed // activate goes to the target
	activated // drop goes to the former owner
	aborted   // a new epoch is committed for the owner: activate goes to it
	returned  // drop goes to the target
)

// command of a move, kept to be applied a second time.
type command struct {
	is, bucket, at, epoch uint8
	data                  copyOf
	attach, gone          uint8 // what the source knows of the session as a guest
}

const (
	cmdFreeze = 1 + iota
	cmdChunk  // an import begins
	cmdImport // its last chunk
	cmdActivate
	cmdDrop
)

const versions = 6 // of a bucket's place in the map

// state is everything. It has only bytes, so that it can be hashed as it lies.
type state struct {
	shards [shards]shard

	// the map
	owners [2][versions]uint8
	epochs [2][versions]uint8
	newest [2]uint8
	nextEp [2]uint8
	moves  [2]move

	// the truth
	born, gone, attach uint8
	owned              uint8 // the living session was granted the semaphore, and did not release it
	broken             uint8

	// the network
	acquires  [3]uint8 // in flight, by attach epoch
	questions [2]question
	answers   [2]answer
	news      [4]news
	dup       command
	unsub     question // faults only
	lookup    answer   // faults only

	// what may still happen
	left budget
}

type budget struct {
	acquires, releases, attaches, ends, leaders, homeMoves, semMoves, aborts, dups, resets uint8
}

// Ways to be broken.
const (
	fine = iota
	lost
	twoOwners
	grantedGone
	leaked
	oldEpoch
	stuck
)

var breaks = [...]string{
	fine:        "",
	lost:        "a living session's holding was released",
	twoOwners:   "a bucket is active in two shards",
	grantedGone: "a session was granted something by a shard that had been told it is gone",
	leaked:      "everything is delivered and stable, and something is held for a session that is gone",
	oldEpoch:    "everything is delivered and stable, and a guest would obey a client that was taken over",
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
	s.shards[c.HomeAt].copies[home] = copyOf{is: active, epoch: 1, session: alive, attach: 1}
	s.shards[c.SemAt].copies[sem] = copyOf{is: active, epoch: 1}
	if c.Unborn {
		s.shards[c.HomeAt].copies[home].session = unborn
	} else {
		s.born = 1
	}
	s.attach = 1
	s.owners[home][0], s.owners[sem][0] = c.HomeAt, c.SemAt
	s.epochs[home][0], s.epochs[sem][0] = 1, 1
	s.nextEp = [2]uint8{2, 2}
	s.left = budget{c.Acquires, c.Releases, c.Attaches, c.Ends, c.Leaders, c.HomeMoves, c.SemMoves, c.Aborts, c.Dups, c.Resets}
	return s
}

// activeAt is the shard whose copy of a bucket is active, or shards.
func (s *state) activeAt(b uint8) uint8 {
	for i := range s.shards {
		if s.shards[i].copies[b].is == active {
			return uint8(i)
		}
	}
	return shards
}

func (s *state) local(i uint8) bool { return s.shards[i].copies[home].is == active }

// guest says whether the session is a guest of the shard: something is held for it, and its home is not active here.
func (s *state) guest(i uint8) bool {
	m := &s.shards[i].copies[sem]
	return m.is == active && m.held == 1 && !s.local(i)
}

// sort orders the messages under way, which have no order, so that equal states are equal bytes.
func (s *state) sort() {
	q, a, n := &s.questions, &s.answers, &s.news
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

func (q question) key() uint64 { return pack(q.is, q.from, q.to, q.epoch, q.present, q.link) }
func (a answer) key() uint64   { return pack(a.is, a.from, a.to, a.attach, a.present, a.leader) }
func (n news) key() uint64     { return pack(n.is, n.from, n.to, n.attach, n.lossy) }
