package logstore

import (
	"bytes"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"
)

// readFor reads as the engine does for a message to another replica: all up to the end of the log.
// It returns the first and last index of the message, as the engine would send it.
func (b *bed) readFor(k key, low, end uint64) (first, last uint64) {
	b.t.Helper()
	list, size, err := b.store.IterateEntries(make([]pb.Entry, 0, end+1-low), 0, k.shard, k.replica, low, end+1, MessageSize)
	if err != nil || len(list) == 0 {
		b.t.Fatalf("entries from %d on: %d, %v", low, len(list), err)
	}
	if uint64(len(list)) < end+1-low && size <= MessageSize {
		b.t.Fatalf("%d entries from %d on of %d bytes: the engine takes that for a gap", len(list), low, size)
	}
	if size > MessageSize && len(list) > 1 {
		list = list[:len(list)-1]
	}
	return list[0].Index, list[len(list)-1].Index
}

// TestMessagesAreBounded: what is read for messages to replicas that are behind is bounded, however
// often the engine reads, and goes on as they answer.
func TestMessagesAreBounded(t *testing.T) {
	const size = 30_000
	const inMessage = MessageSize / (size + 100)
	b := newBed(t, vfs.NewMem(), "/x")
	b.mustOpen()
	defer b.close()
	k, other, end := key{1, 1}, key{2, 1}, uint64(400)
	var list []pb.Entry
	for i := range end {
		list = append(list, pb.Entry{Index: i + 1, Term: 1, Cmd: bytes.Repeat([]byte{byte(i)}, size)})
	}
	for _, k := range []key{k, other} {
		b.bootstrap(k)
		b.save(update(k, 1, list))
	}
	whole := func(k key, low uint64) (last uint64) {
		t.Helper()
		first, last := b.readFor(k, low, end)
		if n := last - first + 1; first != low || n < inMessage-1 || n > inMessage+1 {
			t.Fatalf("from %d on there are %d to %d, not a whole message", low, first, last)
		}
		return last
	}
	one := func(k key, low uint64) {
		t.Helper()
		if first, last := b.readFor(k, low, end); first != low || last != low {
			t.Fatalf("from %d on there are %d to %d, not one entry", low, first, last)
		}
	}

	// The replica is silent: the engine reads the same again and again, or goes on.
	last := whole(k, 1)
	for range 3 {
		one(k, 1)
	}
	for range 3 {
		last = whole(k, last+1)
	}
	one(k, last+1)
	one(k, last+2)
	whole(other, 1) // another shard has a bound of its own

	// A replica that is not behind answers all the time. That frees nothing.
	b.store.ReplicateAnswered(k.shard, end, false)
	one(k, last+1)
	// An answer to the first message makes room for one more.
	b.store.ReplicateAnswered(k.shard, 1, false)
	next := whole(k, last+1)
	one(k, next+1)
	// So does an answer to the last one, for all.
	b.store.ReplicateAnswered(k.shard, next, false)
	for range 4 {
		next = whole(k, next+1)
	}
	one(k, next+1)
	// It misses one before: all that is on its way is of no use, and is read again.
	b.store.ReplicateAnswered(k.shard, end, true)
	whole(k, 30)

	// Other reads are not bounded.
	all, _, err := b.store.IterateEntries(nil, 0, k.shard, k.replica, 1, end+1, 64<<20)
	if err != nil || uint64(len(all)) != end {
		t.Errorf("%d entries are read back, %v", len(all), err)
	}
}

// TestLostMessagesTimeOut: messages that are never answered make room for others.
func TestLostMessagesTimeOut(t *testing.T) {
	var r replication
	now := time.Now()
	for i := range uint64(4) {
		if !r.admit(1, 10*i+1, now) {
			t.Fatalf("message %d is not read", i)
		}
		r.read(1, unanswered{10*i + 1, 10*i + 10, MessageSize, now})
	}
	if late := now.Add(answerTimeout - 1); r.admit(1, 41, late) || r.admit(1, 1, late) {
		t.Error("more is read than may be unanswered")
	}
	if late := now.Add(answerTimeout); !r.admit(1, 1, late) {
		t.Error("what was lost is never read again")
	}
	if r.waiting.Load() || len(r.shards) > 0 {
		t.Error("lost messages are kept")
	}
}
