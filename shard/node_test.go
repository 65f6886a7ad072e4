package shard

import (
	"bytes"
	"testing"
)

// TestSelfCheckFollowsTheNodes: the shard checks as often as the most demanding node asks for,
// through changes, drops and restores.
func TestSelfCheckFollowsTheNodes(t *testing.T) {
	m := New(1)
	var index, seq uint64
	apply := func(c Command) {
		index++
		h := Header{Format: FormatVersion, Epoch: 1 << 16, Seq: seq}
		seq++
		var out Events
		m.Apply(index, AppendCommand(AppendHeader(nil, h), c), &out)
	}
	put := func(node, revision, period uint64) {
		config := scriptConfig()
		config.SelfCheckPeriod = period
		apply(Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: node, Revision: revision, Config: config})})
	}
	check := func(want uint64) {
		t.Helper()
		if got := m.SelfCheck(); got != want {
			t.Fatalf("the least self-check period is %d ms, expected %d", got, want)
		}
		var buf bytes.Buffer
		snap := m.BeginSnapshot()
		defer snap.Close()
		if err := snap.WriteTo(&buf, nopLocker{}); err != nil {
			t.Fatal(err)
		}
		r, err := Restore(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.SelfCheck(); got != want {
			t.Fatalf("restored, the least self-check period is %d ms, expected %d", got, want)
		}
	}
	apply(Command{Kind: CmdTakeOver})
	check(0)
	put(1, 1, 2000)
	check(2000)
	put(2, 1, 500)
	check(500)
	put(2, 2, 3000)
	check(2000)
	apply(Command{Kind: CmdNodeDrop, Body: AppendNodeDrop(nil, NodeDropBody{Node: 1})})
	check(3000)
}

type nopLocker struct{}

func (nopLocker) Lock()   {}
func (nopLocker) Unlock() {}
