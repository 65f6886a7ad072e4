package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"
)

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
	if got := NewestHeartbeats(list); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("it leaves\n%v\nnot\n%v", got, want)
	}
	var away []raftpb.Message // a replica that was away, and reads at the leader meanwhile
	for round := range uint64(300) {
		away = append(away, heartbeat(1, 2, 5, round+1), heartbeat(1, 2, 5, 0))
	}
	if got := NewestHeartbeats(away); len(got) != keptRounds+1 || got[len(got)-2].Hint != 300 {
		t.Errorf("of 300 rounds it leaves %v", got)
	}
	few := []raftpb.Message{answer(1), heartbeat(1, 2, 5, 0), answer(2)}
	if got := NewestHeartbeats(few); len(got) != 3 {
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
		for _, m := range NewestHeartbeats(parcel) {
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
