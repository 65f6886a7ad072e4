package shardhost

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func (x *countedMachine) apply(kind shard.CommandKind, body []byte) []shard.Event {
	return x.applyAll(shard.Command{Kind: kind, Body: body})
}

func (x *countedMachine) applyAll(commands ...shard.Command) []shard.Event {
	x.head.Seq++
	entry := shard.AppendHeader(nil, x.head)
	for _, c := range commands {
		entry = shard.AppendCommand(entry, c)
	}
	var out shard.Events
	x.Apply(x.AppliedIndex()+1, entry, &out)
	return out.List
}

// starts has sessions start; the quota refuses all but the first of all.
func (x *countedMachine) starts(n int) {
	for range n {
		key := make([]byte, protocol.KeyLen)
		key[0] = byte(x.head.Seq)
		start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 1000, Nonce: 1}
		x.apply(shard.CmdSessionStart, protocol.AppendBody(nil, &start))
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

// TestSlowWaitOfLane: a slow wait where there are lanes names level and key, any other has neither.
func TestSlowWaitOfLane(t *testing.T) {
	for _, x := range []struct {
		wait  shard.SlowWait
		names bool
	}{{shard.SlowWait{Priority: 1, Key: "team-a"}, true}, {shard.SlowWait{}, false}} {
		var out bytes.Buffer
		var log slowWaitLog
		x.wait.Name = []byte("lock")
		log.write(slog.New(slog.NewJSONHandler(&out, nil)), &shard.Events{SlowWaits: []shard.SlowWait{x.wait}}, 3, nil, 0)
		if got := strings.Contains(out.String(), `"priority":0,"key":"team-a"`); got != x.names ||
			strings.Contains(out.String(), "priority") != x.names {
			t.Errorf("line of %+v: %s", x.wait, out.String())
		}
	}
}

// TestCountsOfLeader: what a quota refused is counted while this instance leads, and no count goes
// back or jumps when leaderships move.
func TestCountsOfLeader(t *testing.T) {
	s := &Serving{ServingConfig: ServingConfig{Metrics: metrics.New()}}
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

// LogTime implements busySource.
func (x *countedMachine) LogTime() uint64 { return x.head.LogTime }

// View implements busySource.
func (x *countedMachine) View(fn func(*shard.Machine)) { fn(x.Machine) }

// queues has a session of a node hold so many locks, from a number on, and another one wait for
// each of them.
func (x *countedMachine) queues(node uint64, from, n int) {
	for client := range byte(2) {
		var session, seq uint64
		key := make([]byte, protocol.KeyLen)
		key[0], key[1], key[2] = byte(node), client, byte(from)
		start := protocol.SessionStart{Node: node, CreateID: key, Key: key, Timeout: 100_000, Nonce: 1}
		for _, e := range x.apply(shard.CmdSessionStart, protocol.AppendBody(nil, &start)) {
			session = max(session, e.Session)
		}
		for i := 0; i < n; {
			var batch []shard.Command
			for ; i < n && len(batch) < 1000; i++ {
				seq++
				acquire := protocol.Acquire{Head: protocol.Head{Session: session, Seq: seq, Low: seq},
					Name: fmt.Appendf(nil, "lock-%d", from+i), Count: math.MaxUint64, Timeout: protocol.Forever, Ephemeral: true}
				batch = append(batch, shard.Command{Kind: shard.CmdAcquire, Node: node, Epoch: 1, Body: acquire.AppendBody(nil)})
			}
			x.applyAll(batch...)
		}
	}
}

// TestOldestWait: a node's oldest wait is known however many queues there are, and whatever the
// time of day was set to.
func TestOldestWait(t *testing.T) {
	const queues = 50_000
	machine := func() *countedMachine {
		x := newCountedMachine()
		config := protocol.DefaultNodeConfig()
		config.MaxSemaphores, config.MaxWaiters = 2*queues, 2*queues
		for node := uint64(1); node <= 2; node++ {
			x.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: node, Revision: 2, Config: config}))
		}
		return x
	}
	read := func(x *countedMachine, want map[uint64]uint64) {
		t.Helper()
		l := newBusySemaphores()
		l.readAll(x)
		l.readQueues(x, 10, func(uint64) bool { return true })
		if diff := cmp.Diff(l.oldest, want); diff != "" {
			t.Error("the oldest waits:", diff)
		}
	}
	t.Run("many", func(t *testing.T) {
		x := machine()
		x.queues(2, 0, 1)
		x.head.LogTime += 1000
		x.queues(1, 0, queues)
		x.head.LogTime += 1000
		if n := x.Metrics().Sizes().Contended; n != queues+1 {
			t.Fatalf("%d queues", n)
		}
		read(x, map[uint64]uint64{1: 1000, 2: 2000})
	})
	t.Run("clock set back", func(t *testing.T) {
		x := machine()
		x.head.Wall = 7_200_000
		x.queues(1, 0, 1)
		x.head.LogTime += 1000
		x.head.Wall = 3_600_000
		x.queues(1, 1, 1)
		x.head.LogTime += 1000
		read(x, map[uint64]uint64{1: 2000})
	})
}
