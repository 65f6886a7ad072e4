package serving

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/metrics"
	"github.com/signalbox-dev/signalbox/shard"
)

// countedMachine is a shard's machine whose node 1 may have one session.
type countedMachine struct {
	*shard.Machine
	head shard.Header
}

func newCountedMachine() *countedMachine {
	x := &countedMachine{shard.New(2), shard.Header{Format: shard.FormatVersion, Epoch: 1 << 16, LogTime: 1000}}
	config := protocol.DefaultNodeConfig()
	config.MaxSessions = 1
	x.apply(shard.CmdTakeOver, nil)
	x.apply(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: 16, Count: 16}))
	x.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: config}))
	return x
}

func (x *countedMachine) apply(kind shard.CommandKind, body []byte) {
	x.head.Seq++
	var out shard.Events
	x.Apply(x.AppliedIndex()+1, shard.AppendCommand(shard.AppendHeader(nil, x.head), shard.Command{Kind: kind, Body: body}), &out)
}

// starts has sessions start; the quota refuses all but the first of all.
func (x *countedMachine) starts(n int) {
	for range n {
		key := make([]byte, protocol.KeyLen)
		key[0] = byte(x.head.Seq)
		start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 1000, Nonce: 1}
		x.apply(shard.CmdSessionStart, start.AppendBody(nil))
	}
}

// TestSlowWaitOfName: slow waits for two names that are not UTF-8 have lines that differ.
func TestSlowWaitOfName(t *testing.T) {
	for name, want := range map[string]string{"lock": `"semaphore":"lock"`, "a\xff": `"semaphore_base64":"Yf8="`,
		"a\xfe": `"semaphore_base64":"Yf4="`} {
		var out bytes.Buffer
		var log slowWaitLog
		events := shard.Events{SlowWaits: []shard.SlowWait{{Node: 1, Name: []byte(name), Session: 2, Waited: 7}}}
		log.write(slog.New(slog.NewJSONHandler(&out, nil)), &events, 3, nil, 0)
		if !strings.Contains(out.String(), want) {
			t.Errorf("the line of %q lacks %s: %s", name, want, out.String())
		}
	}
}

// TestCountsOfLeader: what a quota refused is counted while this instance leads, and no count goes
// back or jumps when leaderships move.
func TestCountsOfLeader(t *testing.T) {
	s := &Serving{Config: Config{Metrics: metrics.New()}}
	var w leaderCounts
	x := newCountedMachine()
	wants := func(what string, want uint64) {
		t.Helper()
		w.collect(x.Machine, s, 1)
		if got := s.refusals.byNode[1][shard.QuotaSessions]; got != want {
			t.Errorf("%s: %d refusals are counted, want %d", what, got, want)
		}
	}
	x.starts(3)
	wants("another instance leads", 0)
	w.lead(x.Machine, s, true, 1)
	wants("the leadership began", 0)
	x.starts(4)
	wants("it leads", 4)
	x.starts(1)
	w.lead(x.Machine, s, false, 1)
	x.starts(10)
	wants("another one leads", 5)
	w.lead(x.Machine, s, true, 1)
	x.starts(1)
	wants("it leads again", 6)
	w.restart()
	x = newCountedMachine()
	x.starts(3)
	wants("a snapshot has replaced the machine", 8)
}
