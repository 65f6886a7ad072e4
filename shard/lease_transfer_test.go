package shard

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestTransferToWaiterOfNoTime: where one Apply may not fire all deadlines, a waiter whose time is
// over gets nothing by a transfer either.
func TestTransferToWaiterOfNoTime(t *testing.T) {
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
	batch("start a timeout=100000", "start b timeout=100000", "start c timeout=100000", "start d timeout=100000")
	batch("create a lock limit=1", "acquire a lock", "acquire b lock timeout=1000",
		"acquire d lock", "acquire c lock timeout=1001")
	x.m.work.deadlines = 1
	x.time += 1002
	batch("release a lock to=c")
	var granted []string
	for _, e := range x.out.List {
		switch {
		case e.Kind == EventReply && (!e.Flag || e.Result != 0):
			t.Errorf("the release is answered released=%v, transferred=%d; want an ordinary one", e.Flag, e.Result)
		case e.Kind == EventAcquireResult && e.State == protocol.Acquired:
			granted = append(granted, x.sessionName(e.Session))
		}
	}
	if len(granted) != 1 || granted[0] != "d" {
		t.Errorf("granted to %v, want d, the first that waits", granted)
	}
}
