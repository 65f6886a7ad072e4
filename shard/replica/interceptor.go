package replica

import (
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// interceptor receives the transport's messages before the engine does.
type interceptor struct {
	next       config.TransportFactory
	campaigner *campaigner
	answered   func(shard, index uint64, rejected bool) // of the log store
	handler    raftio.MessageHandler                    // set once, before the engine starts a group
}

func (r *interceptor) Create(
	c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler,
) raftio.ITransport {
	r.handler = messages
	return r.next.Create(c, r.receive, chunks)
}

func (r *interceptor) Validate(address string) bool { return r.next.Validate(address) }

func (r *interceptor) receive(b raftpb.MessageBatch) {
	for i := range b.Requests {
		switch m := &b.Requests[i]; m.Type {
		case raftpb.TimeoutNow:
			// The engine may reuse the batch, so copy what is needed first.
			defer r.campaigner.add(campaign{campaignKey: campaignKey{shard: m.ShardID, from: m.From,
				to: m.To, term: m.Term}, next: time.Now().Add(repeatDelays[0])})
		case raftpb.ReplicateResp:
			r.answered(m.ShardID, m.LogIndex, m.Reject)
		}
	}
	b.Requests = newestHeartbeats(b.Requests)
	r.handler(b)
}

// newestHeartbeats leaves out, in place, each answer to a heartbeat that a later one of the same
// replica follows. A replica that was away answers hundreds at once, and the engine sends it
// entries with each. Heartbeats of read-index rounds carry the round, and an answer confirms the
// rounds before it too. So the newest answer with a round, and the newest without one, stand for
// all.
func newestHeartbeats(list []raftpb.Message) []raftpb.Message {
	answers := 0
	for i := range list {
		if list[i].Type == raftpb.HeartbeatResp {
			answers++
		}
	}
	if answers < 2 {
		return list
	}
	type answer struct {
		shard, from, to, term uint64
		round                 bool
	}
	seen := make(map[answer]bool)
	kept := len(list)
	for i := len(list) - 1; i >= 0; i-- {
		m := &list[i]
		if m.Type == raftpb.HeartbeatResp {
			k := answer{m.ShardID, m.From, m.To, m.Term, m.Hint != 0}
			if seen[k] {
				continue
			}
			seen[k] = true
		}
		kept--
		list[kept] = *m
	}
	return list[kept:]
}
