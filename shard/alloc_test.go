package shard

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// benchMachine is a machine under load, for budgets and benchmarks: its first buckets active, which
// are all of 64 as a rule, node 1, and sessions to act for.
type benchMachine struct {
	m        *Machine
	index    uint64
	out      Events
	entry    []byte
	body     []byte
	name     []byte
	client   string // what the sessions are called
	sessions []uint64
	seqs     []uint64
	now      uint64
}

func newBenchMachine(sessions int) *benchMachine { return newBenchMachineWith(64, 64, sessions) }

func newBenchMachineWith(buckets, active uint32, sessions int) *benchMachine {
	x := &benchMachine{m: New(1), now: 1}
	x.begin()
	x.entry = AppendCommand(x.entry, Command{Kind: CmdTakeOver})
	x.commit()
	x.begin()
	x.entry = AppendCommand(x.entry, Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{Total: buckets, Count: active})})
	c := scriptConfig()
	c.MaxSessions, c.MaxSemaphores, c.MaxBytes, c.MaxWaiters = 1<<40, 1<<40, 1<<60, 1<<40
	x.entry = AppendCommand(x.entry, Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: c})})
	x.commit()
	for i := 0; i < sessions; {
		x.begin()
		for range min(100, sessions-i) {
			var create [protocol.KeyLen]byte
			binary.BigEndian.PutUint64(create[:], uint64(i))
			x.start(create)
			i++
		}
		x.commit()
		for j := range x.out.List {
			if e := &x.out.List[j]; e.Kind == EventReply {
				x.sessions = append(x.sessions, e.Session)
				x.seqs = append(x.seqs, 0)
			}
		}
	}
	return x
}

func (x *benchMachine) begin() {
	x.index++
	x.entry = AppendHeader(x.entry[:0], Header{Format: 1, Epoch: 1 << 16, Seq: x.index, LogTime: x.now, Wall: x.now})
}

func (x *benchMachine) commit() {
	x.out.Reset()
	x.m.Apply(x.index, x.entry, &x.out)
}

func (x *benchMachine) start(create [protocol.KeyLen]byte) {
	m := protocol.SessionStart{Node: 1, CreateID: create[:], Key: create[:], Timeout: 10_000, Description: "worker", Nonce: 1}
	x.body = protocol.AppendBody(x.body[:0], &m)
	x.entry = AppendCommand(x.entry, Command{Kind: CmdSessionStart, Node: 1, Sender: "10.20.30.40:50000", Body: x.body})
}

func (x *benchMachine) head(s int) protocol.Head {
	x.seqs[s]++
	return protocol.Head{Session: x.sessions[s], Seq: x.seqs[s], Low: x.seqs[s]}
}

func (x *benchMachine) command(kind CommandKind) {
	x.entry = AppendCommand(x.entry, Command{Kind: kind, Node: 1, Epoch: 1, Sender: x.client, Body: x.body})
}

func (x *benchMachine) acquire(s int, name []byte, ephemeral bool) {
	m := protocol.Acquire{Head: x.head(s), Name: name, Count: 1, Timeout: protocol.Forever, Ephemeral: ephemeral}
	x.body = m.AppendBody(x.body[:0])
	x.command(CmdAcquire)
}

func (x *benchMachine) release(s int, name []byte) {
	m := protocol.Release{Head: x.head(s), Name: name}
	x.body = m.AppendBody(x.body[:0])
	x.command(CmdRelease)
}

func (x *benchMachine) create(s int, name []byte, limit uint64) {
	m := protocol.Create{Head: x.head(s), Name: name, Limit: limit}
	x.body = protocol.AppendBody(x.body[:0], &m)
	x.command(CmdCreate)
}

func TestAllocations(t *testing.T) {
	if form.Race || invariants {
		t.Skip("the build adds allocations of its own")
	}
	for _, c := range []struct {
		name      string
		ephemeral bool
		budget    float64 // of an acquire and a release
	}{{"existing", false, 0}, {"ephemeral", true, 1}} {
		t.Run(c.name, func(t *testing.T) {
			x := newBenchMachine(1)
			name := []byte("jobs/1")
			if !c.ephemeral {
				x.begin()
				x.create(0, name, 1)
				x.commit()
			}
			pair := func() {
				x.begin()
				x.acquire(0, name, c.ephemeral)
				x.release(0, name)
				x.commit()
				if len(x.out.List) != 2 || x.out.List[0].State != protocol.Acquired || !x.out.List[1].Flag {
					t.Fatal("pair failed")
				}
			}
			if got := testing.AllocsPerRun(1000, pair); got > c.budget {
				t.Errorf("%v allocations a pair, budget is %v", got, c.budget)
			}
		})
	}
	t.Run("hand-off", func(t *testing.T) {
		x := newBenchMachine(2)
		name := []byte("lock")
		x.begin()
		x.create(0, name, 1)
		x.acquire(0, name, false)
		x.commit()
		turn := 0
		if got := testing.AllocsPerRun(1000, func() {
			x.begin()
			x.acquire(1-turn, name, false)
			x.release(turn, name)
			x.commit()
			turn = 1 - turn
		}); got > 1 {
			t.Errorf("%v allocations a hand-off, budget is 1", got)
		}
	})
	t.Run("idle tick", func(t *testing.T) {
		x := newBenchMachine(1)
		if got := testing.AllocsPerRun(1000, func() {
			x.begin()
			x.commit()
		}); got > 0 {
			t.Errorf("%v allocations a tick, budget is 0", got)
		}
	})
}

// TestSessionMemory holds the price of an idle session, everything included.
func TestSessionMemory(t *testing.T) {
	if form.Race {
		t.Skip("the race detector makes memory larger")
	}
	n := form.Size(25_000, 100_000, 100_000) // a quarter fills the tables as well
	before := heapBytes()
	x := newBenchMachine(n)
	after := heapBytes()
	per := (after - before - uint64(cap(x.sessions)+cap(x.seqs))*8) / uint64(n)
	t.Logf("%d bytes a session", per)
	if per > 250 {
		t.Errorf("%d bytes a session, budget is 250", per)
	}
	runtime.KeepAlive(x)
}

// TestNameMemory holds the price of a semaphore that nobody uses, and the number of pieces of
// memory that the collector visits for it: the record, and a part of the tables.
func TestNameMemory(t *testing.T) {
	if form.Race {
		t.Skip("the race detector makes memory larger")
	}
	n := form.Size(50_000, 200_000, 200_000) // a quarter fills the tables as well
	x := newBenchMachine(1)
	name := make([]byte, 0, 24)
	before, objects := heapBytes(), heapObjects()
	for i := 0; i < n; {
		x.begin()
		for range 500 {
			name = fmt.Appendf(name[:0], "service/%03d/lock-%07d", i%100, i)
			x.create(0, name, 1)
			i++
		}
		x.commit()
	}
	after, each := (heapBytes()-before)/uint64(n), float64(heapObjects()-objects)/float64(n)
	t.Logf("%d bytes and %.2f objects a semaphore", after, each)
	if after > 240 || each > 1.1 {
		t.Errorf("%d bytes and %.2f objects a semaphore, budget is 240 and 1.1", after, each)
	}
	runtime.KeepAlive(x)
}

func heapObjects() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapObjects
}

func heapBytes() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
