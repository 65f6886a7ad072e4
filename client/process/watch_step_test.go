package process

import (
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestPages: a state comes in pages and is delivered complete; pages without a first one are
// dropped, and a first page begins again.
func TestPages(t *testing.T) {
	page := func(first, last bool, epoch uint64, members ...uint64) protocol.Message {
		m := &protocol.ProcessState{First: first, Last: last, Exists: true,
			Status: protocol.ProcessStatus{Index: 7, Name: []byte("queue"), Epoch: epoch}}
		for _, session := range members {
			m.Status.Members = append(m.Status.Members, protocol.ProcessMemberInfo{Member: protocol.ProcessMember{Session: session}})
		}
		return m
	}
	var p pageReader
	var states []*protocol.ProcessState
	for _, x := range []struct {
		kind protocol.Kind
		m    protocol.Message
		want core.Step
	}{
		{protocol.KindProcessState, page(false, true, 99, 9), core.Partial},
		{protocol.KindProcessState, page(true, false, 1, 8), core.Partial},
		{protocol.KindProcessState, page(true, false, 3, 1, 2), core.Partial},
		{protocol.KindProcessState, page(false, false, 0, 3), core.Partial},
		{protocol.KindProcessState, page(false, true, 0, 4), core.Replace},
		{protocol.KindProcessChanges, &protocol.ProcessChanges{Revision: 7, Changes: []protocol.ProcessChange{{Kind: protocol.ProcessJoined, Session: 5}}}, core.Append},
	} {
		frame := protocol.AppendFrame(nil, x.kind, 1, 1, x.m)
		frame, _, err := protocol.SplitFrame(frame, protocol.MaxFrameLen)
		if err != nil {
			t.Fatal(err)
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			t.Fatal(err)
		}
		event, step, err := p.read(h)
		if err != nil || step != x.want {
			t.Fatalf("%v: step %d, %v", x.kind, step, err)
		}
		if step != core.Partial {
			if shard, index := event.LogIndex(); shard != 1 || index != 7 {
				t.Errorf("%v: shard %d, index %d", x.kind, shard, index)
			}
		}
		if event.State != nil {
			states = append(states, event.State)
		}
		if c := event.Changes; step == core.Append && (c.Revision != 7 || len(c.Changes) != 1 || c.Changes[0].Session != 5) {
			t.Errorf("changes %+v", c)
		}
	}
	var members []uint64
	for _, m := range states[0].Status.Members {
		members = append(members, m.Member.Session)
	}
	if len(states) != 1 || states[0].Status.Epoch != 3 || string(states[0].Status.Name) != "queue" ||
		!slices.Equal(members, []uint64{1, 2, 3, 4}) {
		t.Errorf("%d states, members %v", len(states), members)
	}
}
