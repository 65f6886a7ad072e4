package shardhost

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// TestRoundWriter: what is written with a shared list is what the message alone would be, whatever
// was written before.
func TestRoundWriter(t *testing.T) {
	var w roundWriter
	lists := [][]protocol.ProcessMember{{{Session: 1, Order: 1, Key: "a", Data: []byte("x")},
		{Session: 2, Order: 3, Identity: "me", Weight: 7}}, nil, {{Session: 2, Order: 3}}, {{Session: 5, Order: 4}}}
	for i, k := range []int{1, 0, 0, 2, 3, 1, 3, 0} {
		e := &shard.Event{Session: uint64(10 + i), Name: []byte("p"), Process: &process.MemberEvent{
			Kind: process.EventPrepare, Epoch: uint64(i + 1), Coordinator: 1, Token: uint64(i + 1), CompletedEpoch: 9,
			Members: lists[k], Result: []byte("r"), Text: "t",
		}}
		w.take(e)
		var want protocol.ProcessRound
		shard.ProcessRound(e, &want)
		want.Members = lists[k]
		if got := w.AppendBody(nil); !bytes.Equal(got, protocol.AppendBody(nil, &want)) {
			t.Fatalf("round %d with %d members: %x, want %x", i, len(lists[k]), got, protocol.AppendBody(nil, &want))
		}
	}
}

// BenchmarkRoundToThousand is one round told to a thousand members.
func BenchmarkRoundToThousand(b *testing.B) {
	var w roundWriter
	list := make([]protocol.ProcessMember, protocol.MaxProcessMembers)
	for i := range list {
		list[i] = protocol.ProcessMember{Session: 1<<40 + uint64(i), Order: uint64(i), Identity: "anonymous", Data: []byte("host-123:8080")}
	}
	e := &shard.Event{Name: []byte("queue"), Process: &process.MemberEvent{Kind: process.EventPrepare, Epoch: 7, Members: list}}
	buf := make([]byte, 0, 1<<20)
	for b.Loop() {
		for i := range list {
			e.Session = list[i].Session
			w.take(e)
			buf = protocol.AppendFrame(buf[:0], protocol.KindProcessRound, 0, 1, &w)
		}
	}
}
