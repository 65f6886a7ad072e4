package leader

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestMayAttachUnlogged holds each condition, at its border.
func TestMayAttachUnlogged(t *testing.T) {
	const furthest, age, timeout = 100_000, 700, 2_000
	view := shard.SessionView{Node: 1, Epoch: 3, Timeout: timeout,
		Description: "d", Deadline: furthest + age + timeout}
	attach := protocol.SessionAttach{Node: 1, Epoch: 4, Timeout: timeout, Description: "d"}
	if !MayAttachUnlogged(&view, &attach, furthest, age) {
		t.Error("an attach that nothing speaks against is not answered ahead")
	}
	for what, change := range map[string]func(v *shard.SessionView, m *protocol.SessionAttach){
		"attached":               func(v *shard.SessionView, _ *protocol.SessionAttach) { v.Attached = true },
		"another node":           func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Node = 2 },
		"the same epoch":         func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Epoch = 3 },
		"an attach in between":   func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Epoch = 5 },
		"another nonce":          func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Nonce++ },
		"another timeout":        func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Timeout-- },
		"another description":    func(_ *shard.SessionView, m *protocol.SessionAttach) { m.Description = "e" },
		"an earlier deadline":    func(v *shard.SessionView, _ *protocol.SessionAttach) { v.Deadline-- },
		"a deadline without age": func(v *shard.SessionView, _ *protocol.SessionAttach) { v.Deadline -= age },
		"half of the timeout":    func(v *shard.SessionView, _ *protocol.SessionAttach) { v.Deadline -= timeout / 2 },
	} {
		v, m := view, attach
		if change(&v, &m); MayAttachUnlogged(&v, &m, furthest, age) {
			t.Errorf("%s: it is answered ahead", what)
		}
	}
}
