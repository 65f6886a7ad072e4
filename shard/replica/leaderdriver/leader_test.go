package leaderdriver

import (
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// stubReplica notes what the driver has it do. Its clock stands still unless the test moves it.
type stubReplica struct {
	machine *shard.Machine

	mu       sync.Mutex
	now      uint64
	full     bool // it takes no commands
	commands []shard.Command
	ids      []uint64
	barriers []func(ok bool)
	cut      []string
	detached []uint64
	term     uint64
}

func (r *stubReplica) do(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *stubReplica) View(fn func(*shard.Machine)) { fn(r.machine) }
func (r *stubReplica) Barrier(fn func(ok bool)) {
	r.do(func() { r.barriers = append(r.barriers, fn) })
}
func (r *stubReplica) Submit(c shard.Command, id uint64) (taken bool) {
	r.do(func() {
		if taken = !r.full; taken {
			c.Body = append([]byte(nil), c.Body...)
			r.commands, r.ids = append(r.commands, c), append(r.ids, id)
		}
	})
	return taken
}
func (r *stubReplica) RequestTick()                             {}
func (r *stubReplica) Send(uint64, []byte)                      {}
func (r *stubReplica) Pong(uint64, uint64)                      {}
func (r *stubReplica) Cut(_ uint64, reason string)              { r.do(func() { r.cut = append(r.cut, reason) }) }
func (r *stubReplica) Detach(conn uint64)                       { r.do(func() { r.detached = append(r.detached, conn) }) }
func (r *stubReplica) Heard(uint64) time.Duration               { return time.Millisecond }
func (r *stubReplica) SelfCheck(*shard.Machine) uint64          { return 1000 }
func (r *stubReplica) LeaderTime(ms uint64) uint64              { return ms }
func (r *stubReplica) Now() (now uint64)                        { r.do(func() { now = r.now }); return now }
func (r *stubReplica) PublishLogTime(term, _, _ uint64, _ bool) { r.do(func() { r.term = term }) }

// running is a driver of the leader's part with its goroutine, which end ends.
type running struct {
	*stubReplica
	*Tasks
	*Driver
	end func()
}

func runDriver(t *testing.T) *running {
	t.Helper()
	x := &running{stubReplica: &stubReplica{machine: shard.New(1), now: 1}, Tasks: new(Tasks)}
	x.Init()
	x.Driver = New(NewLeader(1, x.stubReplica, x.Tasks, nil))
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		x.Loops(stop)[0]()
	}()
	var once sync.Once
	x.end = func() {
		once.Do(func() { close(stop) })
		<-ended
	}
	t.Cleanup(x.end)
	return x
}

// tick returns when all that was added before has been done.
func (x *running) tick() {
	done := make(chan struct{})
	x.TickWith(done)
	<-done
}

// attached are the events of a session that is attached on the connection of the entry's request.
func attached(session uint64) *shard.Events {
	return &shard.Events{List: []shard.Event{{Kind: shard.EventSessionAttached, Session: session, Epoch: 1, Timeout: 5000}}}
}

// TestRefusedCommandIsProposedAgain: a command that the replica does not take is proposed again
// after a tick, under another number.
func TestRefusedCommandIsProposedAgain(t *testing.T) {
	x := runDriver(t)
	x.Begin(Term{Epoch: 7 << 16, LogTime: 100, Now: 1})
	x.AddEvents([]proposal.Origin{{Conn: 5}}, attached(9))
	x.do(func() { x.full = true })
	x.ConnClosed(5, 2*time.Millisecond, protocol.LinkClosed)
	x.tick()
	x.do(func() {
		if len(x.commands) != 0 {
			t.Fatalf("a full replica took %v", x.commands)
		}
		x.full = false
	})
	x.tick()
	x.tick()
	x.do(func() {
		if len(x.commands) != 1 || x.commands[0].Kind != shard.CmdDetach || x.ids[0] < 2 {
			t.Errorf("proposed: %+v under %v, want one detach under a later number", x.commands, x.ids)
		}
		if x.term != 7 {
			t.Errorf("log time is of term %d, want 7", x.term)
		}
	})
}

// TestBarrierComesBack: a barrier of the leader's begins with its leadership, and its end is a
// task. One that failed begins again after a tick.
func TestBarrierComesBack(t *testing.T) {
	x := runDriver(t)
	x.tick()
	x.do(func() {
		if len(x.barriers) != 0 {
			t.Fatal("a replica that does not lead asks for a barrier")
		}
	})
	x.Begin(Term{Epoch: 7 << 16, LogTime: 100, Now: 1})
	x.tick()
	for want := 1; want <= 2; want++ {
		var last func(bool)
		x.do(func() {
			if len(x.barriers) != want {
				t.Fatalf("%d barriers, want %d", len(x.barriers), want)
			}
			last = x.barriers[want-1]
		})
		last(false)
		x.tick()
		x.tick()
	}
}

// TestEndOfDriver: the end takes sessions from their connections, and nobody waits for a task that
// is never done.
func TestEndOfDriver(t *testing.T) {
	x := runDriver(t)
	x.Begin(Term{Epoch: 7 << 16, LogTime: 100, Now: 1})
	x.AddEvents([]proposal.Origin{{Conn: 5}}, attached(9))
	x.tick()
	x.end()
	x.do(func() {
		if len(x.detached) != 1 || x.detached[0] != 5 {
			t.Errorf("sessions were taken from connections %v, want from 5", x.detached)
		}
	})
	x.tick()
	done := make(chan struct{})
	x.Transfer(done)
	<-done
	x.Ping(5, 1)
	if x.Queued() != 0 || !x.Idle() {
		t.Errorf("%d tasks wait for a driver that has ended", x.Queued())
	}
}

// idleTasks is a queue without a goroutine.
func idleTasks(active bool) *Tasks {
	t := new(Tasks)
	t.Init()
	t.active = active
	return t
}

// woken reports whether the goroutine was woken since the last call.
func (t *Tasks) woken() bool {
	select {
	case <-t.Wakeup:
		return true
	default:
		return false
	}
}

// TestEventsOfOthers: a replica that does not lead notes no events.
func TestEventsOfOthers(t *testing.T) {
	q := idleTasks(false)
	q.AddEvents(nil, attached(9))
	if added, over := q.Receive(2, []byte("x")); q.Queued() != 0 || q.woken() || added || over {
		t.Errorf("%d tasks wait; a message was added: %v", q.Queued(), added)
	}
	q = idleTasks(true)
	q.AddEvents(nil, attached(9))
	if q.Queued() != 1 || !q.woken() {
		t.Errorf("%d tasks of a leader wait, want one", q.Queued())
	}
}

// TestRemoteSessionsAreDeferred: remote sessions that come and go wait for other tasks, in order
// with them, and wake the goroutine only when they are many.
func TestRemoteSessionsAreDeferred(t *testing.T) {
	q := idleTasks(true)
	add := func(kind shard.EventKind, session uint64) {
		q.AddEvents(nil, &shard.Events{List: []shard.Event{{Kind: kind, Session: session}}})
	}
	add(shard.EventRemoteHeld, 1)
	add(shard.EventRemoteIdle, 1)
	if q.Queued() != 1 || q.woken() {
		t.Errorf("%d tasks wait, want one that wakes nobody", q.Queued())
	}
	q.WakeIfQueued()
	if !q.woken() {
		t.Error("what is deferred is not done when asked for")
	}
	q = idleTasks(true)
	add(shard.EventRemoteHeld, 1)
	add(shard.EventSessionEnded, 2)
	add(shard.EventRemoteHeld, 3)
	add(shard.EventRemoteIdle, 1)
	parts := [][2]uint64{{0, 1}, {0, 2}, {1, 3}} // of the second, the session
	for i, x := range q.queue {
		if x.kind == taskRemotes && [2]uint64{x.a, x.b} != parts[i] || x.kind == taskEnded && x.b != parts[i][1] {
			t.Errorf("task %d is %+v, want %v", i, x, parts[i])
		}
	}
	if len(q.queue) != len(parts) {
		t.Errorf("%d tasks, want %d", len(q.queue), len(parts))
	}
	q = idleTasks(true)
	for i := range uint64(maxDeferred - 1) { // with the task that has them
		if add(shard.EventRemoteHeld, i); q.woken() {
			t.Fatalf("%d remote sessions wake the goroutine", i+1)
		}
	}
	if add(shard.EventRemoteHeld, maxDeferred); !q.woken() {
		t.Errorf("%d remote sessions wake nobody", maxDeferred)
	}
}

// TestTicksOfFollowers: a replica that does not lead makes every tenth tick, a leader each one. A
// tick that waits stands for those that come meanwhile.
func TestTicksOfFollowers(t *testing.T) {
	for active, want := range map[bool]int{false: 3, true: 30} {
		q, ticks := idleTasks(active), 0
		for range 30 {
			q.Tick()
			ticks += q.Queued()
			q.queue, q.ticking = nil, false
		}
		if ticks != want {
			t.Errorf("leading %v: %d ticks, want %d", active, ticks, want)
		}
		q = idleTasks(true)
		q.Tick()
		if q.Tick(); q.Queued() != 1 {
			t.Errorf("%d ticks wait, want one", q.Queued())
		}
	}
}

// TestMessagesOfLeadersAreBounded: those over the bounds are dropped, and reported as such.
func TestMessagesOfLeadersAreBounded(t *testing.T) {
	q := idleTasks(true)
	if added, over := q.Receive(2, make([]byte, leader.MaxMessage+1)); added || !over {
		t.Error("a message over the limit is taken")
	}
	for range MaxQueuedMessages {
		if added, over := q.Receive(2, []byte("x")); !added || over {
			t.Fatal("a message below the bound is dropped")
		}
	}
	if added, over := q.Receive(2, []byte("x")); added || !over || q.Queued() != MaxQueuedMessages {
		t.Errorf("%d messages wait, want %d", q.Queued(), MaxQueuedMessages)
	}
}
