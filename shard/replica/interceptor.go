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

// keptRounds is how many answers to heartbeats with a round are kept of those that come together.
const keptRounds = 8

// newestHeartbeats leaves out, in place, answers to heartbeats that later ones of the same replica
// follow. A replica that was away answers hundreds at once, and the engine sends it entries with
// each. The newest answer without a round stands for all without one.
//
// Heartbeats of read-index rounds carry the round. A round that a majority has answered confirms the
// rounds before it. In a group of five that takes two answers to the same round. If only the newest
// of each replica were kept, two replicas whose answers come in other parcels would answer
// different rounds for as long as new ones begin. So some of the newest are kept: more than are on
// their way at once to a replica that answers.
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
	seen := make(map[answer]int)
	kept := len(list)
	for i := len(list) - 1; i >= 0; i-- {
		m := &list[i]
		if m.Type == raftpb.HeartbeatResp {
			k, most := answer{m.ShardID, m.From, m.To, m.Term, m.Hint != 0}, 1
			if k.round {
				most = keptRounds
			}
			if seen[k]++; seen[k] > most {
				continue
			}
		}
		kept--
		list[kept] = *m
	}
	return list[kept:]
}
