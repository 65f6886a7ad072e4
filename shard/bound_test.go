package shard

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestBoundBeforeItFired: where one Apply may not fire all deadlines, a hold that has passed its
// bound counts as gone for its own session, and still bars others.
func TestBoundBeforeItFired(t *testing.T) {
	x := newScriptRunner(t)
	batch := func(lines ...string) {
		var commands []byte
		x.lines, x.starts = nil, map[int]string{}
		for _, line := range lines {
			commands = AppendCommand(commands, x.command(line))
			x.lines = append(x.lines, line)
		}
		x.apply(commands)
		x.output()
	}
	batch("start a timeout=100000", "start b timeout=100000")
	batch("create a one limit=1", "create a two limit=1",
		"acquire a one knows hold=1000", "acquire a two knows hold=1000", "acquire b one timeout=60000", "acquire b two timeout=60000")
	x.m.work.deadlines = 1
	x.time += 1001
	batch("acquire b two seq=2", "acquire a two seq=4", "acquire b two seq=2")
	lost, states := 0, []protocol.AcquireState(nil)
	for _, e := range x.out.List {
		switch e.Kind {
		case EventLeaseLost:
			lost++
		case EventReply:
			states = append(states, e.State)
		}
	}
	if lost != 2 || len(states) != 3 || states[0] != protocol.Queued || states[1] != 0 ||
		states[2] != protocol.Acquired {
		t.Errorf("%d leases lost, replies %v; want 2, and b queued, a aborted, b acquired", lost, states)
	}
}
