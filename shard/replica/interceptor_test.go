package replica

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// The engine's settings are found by their names, which another version may change silently.
func TestEngineHasTheSizeOfItsMessages(t *testing.T) {
	if engineMaxMessage <= maxMessage || maxMessage != logstore.MessageSize {
		t.Fatalf("the engine's messages had at most %d bytes, and have %d; look for the settings of engine_memory.go in this version of the engine",
			engineMaxMessage, maxMessage)
	}
}

func TestNewestHeartbeats(t *testing.T) {
	heartbeat := func(shard, from, term, round uint64) raftpb.Message {
		return raftpb.Message{Type: raftpb.HeartbeatResp, ShardID: shard, From: from, To: 1, Term: term, Hint: round}
	}
	answer := func(index uint64) raftpb.Message {
		return raftpb.Message{Type: raftpb.ReplicateResp, ShardID: 1, From: 2, To: 1, Term: 5, LogIndex: index}
	}
	list := []raftpb.Message{
		heartbeat(1, 2, 4, 0), // of an older term
		heartbeat(1, 2, 5, 0), // -
		answer(7),
		heartbeat(1, 2, 5, 11),
		heartbeat(1, 3, 5, 11), // of another replica
		heartbeat(2, 2, 5, 0),  // of another shard
		heartbeat(1, 2, 5, 0),  // -
		answer(8),
		heartbeat(1, 2, 5, 12),
		heartbeat(1, 2, 5, 0),
		answer(9),
	}
	want := slices.Clone(list)
	for _, i := range []int{6, 1} {
		want = slices.Delete(want, i, i+1)
	}
	if got := newestHeartbeats(list); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it leaves\n%v\nnot\n%v", got, want)
	}
	var away []raftpb.Message // a replica that was away, and reads at the leader meanwhile
	for round := range uint64(300) {
		away = append(away, heartbeat(1, 2, 5, round+1), heartbeat(1, 2, 5, 0))
	}
	if got := newestHeartbeats(away); len(got) != keptRounds+1 || got[len(got)-2].Hint != 300 {
		t.Errorf("of 300 rounds it leaves %v", got)
	}
	few := []raftpb.Message{answer(1), heartbeat(1, 2, 5, 0), answer(2)}
	if got := newestHeartbeats(few); len(got) != 3 {
		t.Errorf("of one heartbeat it leaves %v", got)
	}
}

// TestRoundsOfFive: in a group of five, two followers whose answers to read-index rounds come in
// other parcels confirm each round as soon as both have answered it.
func TestRoundsOfFive(t *testing.T) {
	answered := map[uint64]int{} // by round
	come := func(follower uint64, rounds ...uint64) {
		var parcel []raftpb.Message
		for _, round := range rounds {
			parcel = append(parcel, raftpb.Message{Type: raftpb.HeartbeatResp, ShardID: 1, From: follower, To: 1, Term: 5, Hint: round})
		}
		for _, m := range newestHeartbeats(parcel) {
			answered[m.Hint]++
		}
	}
	come(2, 1)
	for round := uint64(1); round < 100; round += 2 {
		come(3, round, round+1)
		if answered[round] != 2 {
			t.Fatalf("round %d is confirmed by %d of two followers that have answered it", round, answered[round])
		}
		come(2, round+1, round+2)
		if answered[round+1] != 2 {
			t.Fatalf("round %d is confirmed by %d of two followers that have answered it", round+1, answered[round+1])
		}
	}
}

// TestReturningReplica: a replica that is behind answers hundreds of heartbeats, while nothing that
// is sent to it arrives. What it lacks is not made again for each of them.
func TestReturningReplica(t *testing.T) {
	const entries, size, answers = 40, 100_000, 100
	const most = 4 * entries * size // an answer makes one entry
	c := newClusterAt(t, defaultRTT, 3, 3, nil)
	c.populate()
	behind := (c.leader() + 1) % 3

	// What is sent to it, by term: an election may come at any time on a busy machine.
	var mu sync.Mutex
	type stream struct {
		bytes, messages int
		last            uint64 // the entry before those of the newest message
	}
	lost, streams := true, map[uint64]stream{}
	c.net.dropMessages(func(m *raftpb.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if m.Type != raftpb.Replicate || m.To != c.ids[behind] {
			return false
		}
		x := streams[m.Term]
		for i := range m.Entries {
			x.bytes += len(m.Entries[i].Cmd)
		}
		x.messages++
		x.last = m.LogIndex
		streams[m.Term] = x
		return lost
	})
	sent := func(term uint64) stream {
		mu.Lock()
		defer mu.Unlock()
		return streams[term]
	}
	for i := 0; i < entries; {
		if c.writer == nil {
			c.make(fmt.Sprint("writer ", i))
		}
		x := c.writer
		if res, ok := x.try(shard.CmdCreate, x.createWith(fmt.Sprint("entry ", i), make([]byte, size))); !ok {
			c.writer = nil // an election came
		} else if res.status != protocol.StatusOK {
			t.Fatalf("entry %d is not written: %+v", i, res)
		} else {
			x.low = x.seq + 1
			i++
		}
	}

	// It says what it lacks, and answers heartbeats. Each answer is a batch of its own.
	for done := false; !done; {
		leader := c.leader(behind)
		s, h := c.shards[leader], c.hosts[leader]
		term := s.Term()
		before := sent(term)
		if before.messages == 0 {
			continue // it will send something with its next heartbeat
		}
		deliver := func(m raftpb.Message) {
			m.ShardID, m.From, m.To, m.Term = 1, c.ids[behind], c.ids[leader], term
			h.campaigner.interceptor.receive(raftpb.MessageBatch{DeploymentId: h.cfg.deployment,
				BinVer: raftio.TransportBinVersion, Requests: []raftpb.Message{m}})
		}
		deliver(raftpb.Message{Type: raftpb.ReplicateResp, Reject: true, LogIndex: before.last, Hint: 1})
		for range answers {
			deliver(raftpb.Message{Type: raftpb.HeartbeatResp})
		}
		for s.Term() == term && !done {
			now := sent(term)
			if n := now.bytes - before.bytes; n > most {
				t.Fatalf("a replica that lacks %d bytes was sent %d", entries*size, n)
			}
			done = now.messages-before.messages > answers
			time.Sleep(time.Millisecond) // the engine has no one place to wait at
		}
	}
	mu.Lock()
	lost = false
	mu.Unlock()
	c.converge()
}
