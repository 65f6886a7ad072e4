package leaderdriver

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// MaxQueuedMessages bounds the waiting messages of other leaders. More are dropped, and repeated by
// their senders.
const MaxQueuedMessages = 4096

// maxDeferred is how many remote sessions that came or went may wait for the next tick. The
// leader requests them only with its ticks, so waking its goroutine for each would cost a switch of
// goroutines per lock for nothing.
const maxDeferred = 4096

// taskKind is a call of the leader's step machine.
type taskKind uint8

const (
	taskStart taskKind = iota
	taskStop
	taskAttached
	taskDetached
	taskEnded
	taskRemotes
	taskFrozen
	taskActive
	taskLeft
	taskConnClosed
	taskPing
	taskProposalDone
	taskBarrierDone
	taskRouteChanged
	taskTransfer
	taskReceive
	taskTick
	taskSkipTime
)

type task struct {
	kind  taskKind
	flag  bool
	a     uint64 // conn, time, command id, barrier or shard
	b     uint64 // session or ping; of taskRemotes the end of its part of Tasks.remotes, a is the start
	epoch uint64
	value uint64 // timeout, last receive or log time
	text  string
	bytes []byte
	how   *protocol.Ending
	done  chan<- struct{} // of a tick with a waiter
}

// remoteChange: a remote session holds its first thing, or nothing any more. With more
// shards than one nearly each lock makes two of them.
type remoteChange struct {
	session uint64
	held    bool
}

// Tasks is the queue of calls to the leader's step machine, which its goroutine makes. The
// apply goroutine adds the events of the log, in log order; everything else is added as it comes.
type Tasks struct {
	Alarm

	mu             sync.Mutex
	queue          []task
	spare          []task
	remotes        []remoteChange // of the tasks of kind taskRemotes in queue
	spareRemotes   []remoteChange
	queuedMessages int  // messages of other leaders in queue
	active         bool // between start and stop: events of the log are added
	ended          bool // the goroutine has ended
	ticking        bool // a tick is in queue
	busy           bool // it has taken the queue and is not done
	sleeping       bool // the goroutine sleeps, and was not woken yet
	skippedTicks   int  // ticks without waking the goroutine, while this replica does not lead
}

// Init makes the queue ready.
func (t *Tasks) Init() {
	t.Alarm = newAlarm()
	t.sleeping = true
}

func (t *Tasks) add(x task) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		if x.done != nil {
			close(x.done)
		}
		return
	}
	t.queue = append(t.queue, x)
	wake := t.sleeping
	t.sleeping = false
	t.mu.Unlock()
	if wake {
		t.Wake()
	}
}

// WakeIfQueued runs deferred tasks now.
func (t *Tasks) WakeIfQueued() {
	t.mu.Lock()
	wake := t.sleeping && len(t.queue) > 0
	if wake {
		t.sleeping = false
	}
	t.mu.Unlock()
	if wake {
		t.Wake()
	}
}

func (t *Tasks) start(of Term) {
	t.mu.Lock()
	t.active = true
	t.mu.Unlock()
	t.add(task{kind: taskStart, a: of.Now, epoch: of.Epoch, value: of.LogTime})
}

func (t *Tasks) stop() {
	t.mu.Lock()
	t.active = false
	t.mu.Unlock()
	t.add(task{kind: taskStop})
}

// Done reports a command of the leader's own: applied, or never to be.
func (t *Tasks) Done(id uint64, applied bool) {
	t.add(task{kind: taskProposalDone, a: id, flag: applied})
}

// AddEvents adds the part of an entry's events that the leader must know.
func (t *Tasks) AddEvents(origins []proposal.Origin, ev *shard.Events) {
	t.mu.Lock()
	if !t.active || t.ended {
		t.mu.Unlock()
		return
	}
	urgent := false
	for i := range ev.List {
		e := &ev.List[i]
		switch e.Kind {
		case shard.EventSessionAttached:
			var conn uint64
			if e.Command >= 0 && e.Command < len(origins) {
				conn = origins[e.Command].Conn
			}
			urgent = true
			t.queue = append(t.queue,
				task{kind: taskAttached, a: conn, b: e.Session, epoch: e.Epoch, value: e.Timeout, text: e.Text})
		case shard.EventSessionDetached:
			urgent = true
			t.queue = append(t.queue, task{kind: taskDetached, b: e.Session, epoch: e.Epoch, text: e.Text})
		case shard.EventSessionEnded:
			urgent = true
			t.queue = append(t.queue, task{kind: taskEnded, b: e.Session, how: e.Ending})
		case shard.EventRemoteHeld:
			t.addRemote(e.Session, true)
		case shard.EventRemoteIdle:
			t.addRemote(e.Session, false)
		case shard.EventBucketsFrozen:
			urgent = true
			t.queue = append(t.queue, task{kind: taskFrozen, a: uint64(e.First), b: uint64(e.Count)})
		case shard.EventBucketsActive:
			urgent = true
			t.queue = append(t.queue, task{kind: taskActive})
		case shard.EventBucketsLeft:
			t.queue = append(t.queue, task{kind: taskLeft, a: uint64(e.First), b: uint64(e.Count)})
		}
	}
	wake := t.sleeping && (urgent || len(t.queue)+len(t.remotes) > maxDeferred)
	if wake {
		t.sleeping = false
	}
	t.mu.Unlock()
	if wake {
		t.Wake()
	}
}

// addRemote adds a change of a remote session, in order with the other tasks. The caller holds mu.
func (t *Tasks) addRemote(session uint64, held bool) {
	t.remotes = append(t.remotes, remoteChange{session, held})
	n := uint64(len(t.remotes))
	if last := len(t.queue) - 1; last >= 0 && t.queue[last].kind == taskRemotes {
		t.queue[last].b = n
	} else {
		t.queue = append(t.queue, task{kind: taskRemotes, a: n - 1, b: n})
	}
}

// Idle reports whether nothing is queued, and nothing runs.
func (t *Tasks) Idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended || len(t.queue) == 0 && !t.busy
}

// Receive takes a message of another shard's leader while this replica leads. Over: it is dropped
// over a limit.
func (t *Tasks) Receive(from uint64, msg []byte) (added, over bool) {
	t.mu.Lock()
	over = t.active && (t.queuedMessages >= MaxQueuedMessages || len(msg) > leader.MaxMessage)
	added = t.active && !over
	if added {
		t.queuedMessages++
	}
	t.mu.Unlock()
	if added {
		t.add(task{kind: taskReceive, a: from, bytes: msg})
	}
	return added, over
}

// skippedFollowerTicks is how many ticks a replica skips that does not lead. It only reads the
// periods of its nodes, and a wake-up of each shard's goroutine for nothing adds up.
const skippedFollowerTicks = 9

// Tick wakes the leader's goroutine, unless the last tick still waits.
func (t *Tasks) Tick() {
	t.mu.Lock()
	none := t.ticking
	switch {
	case none:
	case t.active || t.skippedTicks == 0:
		t.ticking, t.skippedTicks = true, skippedFollowerTicks
	default:
		none = true
		t.skippedTicks--
	}
	t.mu.Unlock()
	if !none {
		t.add(task{kind: taskTick})
	}
}

// TickWith is Tick for a caller that waits: done is closed when the leader has run.
func (t *Tasks) TickWith(done chan<- struct{}) { t.add(task{kind: taskTick, done: done}) }

// Ping asks for a pong behind a read barrier that begins after this call.
func (t *Tasks) Ping(conn, ping uint64) { t.add(task{kind: taskPing, a: conn, b: ping}) }

// ConnClosed reports a closed connection, its last receive by the host's clock, and who closed it.
func (t *Tasks) ConnClosed(conn uint64, lastHeard time.Duration, link protocol.Link) {
	t.add(task{kind: taskConnClosed, a: conn, b: uint64(link), value: uint64(lastHeard / time.Millisecond)})
}

// RouteChanged reports that Config.Route may answer differently.
func (t *Tasks) RouteChanged() { t.add(task{kind: taskRouteChanged}) }

// Transfer prepares a transfer of the leadership. done is closed when its commands are submitted.
func (t *Tasks) Transfer(done chan<- struct{}) { t.add(task{kind: taskTransfer, done: done}) }

// SkipTime moves log time by ms milliseconds, and nothing else that the leader uses.
func (t *Tasks) SkipTime(ms uint64) { t.add(task{kind: taskSkipTime, a: ms}) }

// Queued returns the number of waiting tasks.
func (t *Tasks) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}
