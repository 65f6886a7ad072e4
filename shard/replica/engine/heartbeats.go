package engine

import "github.com/lni/dragonboat/v4/raftpb"

// keptRounds is how many answers to heartbeats with a round are kept of those that come together.
const keptRounds = 8

// NewestHeartbeats leaves out, in place, answers to heartbeats that later ones of the same replica
// follow. A replica that was away answers hundreds at once, and the engine sends it entries with
// each. The newest answer without a round stands for all without one.
//
// Heartbeats of read-index rounds carry the round. A round that a majority has answered confirms the
// rounds before it. In a group of five that takes two answers to the same round. If only the newest
// of each replica were kept, two replicas whose answers come in other parcels would answer
// different rounds for as long as new ones begin. So some of the newest are kept: more than are on
// their way at once to a replica that answers.
func NewestHeartbeats(list []raftpb.Message) []raftpb.Message {
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
