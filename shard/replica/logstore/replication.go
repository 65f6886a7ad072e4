package logstore

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// MessageSize is the most bytes of entries that a leader sends to another replica in one message,
// unless one entry is larger. The engine must be set to it: a read with this bound is one for a
// message, and no other read has it.
const MessageSize = 1 << 20

const (
	// maxUnanswered bounds the bytes read for messages of one shard and not answered. It is
	// exceeded by less than a message.
	maxUnanswered = 4 << 20
	// answerTimeout is when a message counts as lost. Mostly that shows sooner: the replica rejects
	// the next message, or answers the first entry of the lost one, which is sent alone.
	answerTimeout = 5 * time.Second
)

// unanswered is a part of a log that was read to be sent.
type unanswered struct {
	first, last uint64
	bytes       uint64
	at          time.Time
}

// replication bounds the reads from the log for replicas that are behind. The engine reads whenever
// it hears of such a replica, or has anything new for it, and never waits for an answer. Its calls
// do not name the replica that they are for.
type replication struct {
	mu      sync.Mutex
	shards  map[uint64][]unanswered // none is empty
	waiting atomic.Bool             // shards is not empty
}

// admit reports whether a whole message may be read from an index on; otherwise one entry. The
// engine takes no less for an answer: it would send a snapshot.
func (r *replication) admit(shard, first uint64, now time.Time) bool {
	if !r.waiting.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(shard, func(u unanswered) bool { return now.Sub(u.at) < answerTimeout })
	bytes := uint64(0)
	for _, u := range r.shards[shard] {
		if bytes += u.bytes; u.first <= first && first <= u.last {
			return false // it is on its way
		}
	}
	return bytes < maxUnanswered
}

// read records a read for a message.
func (r *replication) read(shard uint64, u unanswered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shards == nil {
		r.shards = make(map[uint64][]unanswered)
	}
	r.shards[shard] = append(r.shards[shard], u)
	r.waiting.Store(true)
}

// answered notes the answer of a replica, which has entries up to an index. An answer beyond all
// that was read is from a replica that is not behind.
func (r *replication) answered(shard, index uint64, rejected bool) {
	if !r.waiting.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	last := uint64(0)
	for _, u := range r.shards[shard] {
		last = max(last, u.last)
	}
	if rejected {
		r.keep(shard, func(unanswered) bool { return false })
	} else if index <= last {
		r.keep(shard, func(u unanswered) bool { return u.first > index })
	}
}

// keep forgets all but some of a shard. The caller holds mu.
func (r *replication) keep(shard uint64, which func(unanswered) bool) {
	list := r.shards[shard]
	kept := list[:0]
	for _, u := range list {
		if which(u) {
			kept = append(kept, u)
		}
	}
	if len(kept) > 0 {
		r.shards[shard] = kept
		return
	}
	delete(r.shards, shard)
	r.waiting.Store(len(r.shards) > 0)
}

// ReplicateAnswered must be called for each answer of another replica to entries that it was sent.
func (s *Store) ReplicateAnswered(shard, index uint64, rejected bool) {
	s.replication.answered(shard, index, rejected)
}

// readMessage is IterateEntries for a message to another replica.
func (s *Store) readMessage(shard, replica, low, high uint64) ([]pb.Entry, uint64, error) {
	now := time.Now()
	if !s.replication.admit(shard, low, now) {
		list, _, err := s.Log.IterateEntries(nil, 0, shard, replica, low, low+1, MessageSize)
		// The engine takes fewer entries than it asked for only if they are too many bytes.
		return list, MessageSize + 1, err
	}
	list, size, err := s.Log.IterateEntries(nil, 0, shard, replica, low, high, MessageSize)
	if n := len(list); err == nil && n > 0 {
		last := list[n-1].Index
		if size > MessageSize && n > 1 {
			last-- // the engine leaves out the one that is too much
		}
		s.replication.read(shard, unanswered{low, last, size, now})
	}
	return list, size, err
}
