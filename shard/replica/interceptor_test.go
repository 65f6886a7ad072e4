package replica

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestReturningReplica: a replica that is behind answers hundreds of heartbeats, while nothing that
// is sent to it arrives. What it lacks is not made again for each of them.
func TestReturningReplica(t *testing.T) {
	t.Parallel()
	const entries, size, answers = 40, 100_000, 100
	const most = 4 * entries * size // an answer makes one entry
	c := newClusterAt(t, defaultRTT, 3, 3, func(cfg *ShardConfig) {
		cfg.Sink.(*recorder).every = 16 // a digest reads megabytes
	})
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
		eventually(t, "the answers to be answered, or another term", func() bool {
			now := sent(term)
			if n := now.bytes - before.bytes; n > most {
				t.Fatalf("a replica that lacks %d bytes was sent %d", entries*size, n)
			}
			done = now.messages-before.messages > answers
			return done || s.Term() != term
		})
	}
	mu.Lock()
	lost = false
	mu.Unlock()
	c.converge()
}
