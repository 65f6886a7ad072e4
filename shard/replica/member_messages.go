package replica

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// Bounds of the members' messages that wait in a shard. A message beyond them is OVERLOADED, and is
// sent again.
const (
	MaxMemberMessages = 4096
	MaxMemberBytes    = 16 << 20
)

const (
	memberTick     = 100 * time.Millisecond // of leader.Processes
	idleMemberTick = time.Second            // of one that is idle
)

// MemberMessage is what a member of a coordination process sends: a sync, a message or a reply, by
// the kind of its origin.
type MemberMessage struct {
	Origin
	Node  uint64
	Epoch uint64 // attach epoch of the session on the connection
	Body  []byte // kept

	confirmed bool // a read barrier lies behind it
}

// MemberSink receives what the leader of a shard sends to members of coordination processes. One
// goroutine of the shard calls it; that holds up neither the log nor the leader's other tasks.
type MemberSink interface {
	// MemberReply answers a message. A nil error is success.
	MemberReply(o Origin, err error)
	// DeliverToMembers delivers rounds and messages to members. Out must not be kept. What finds no
	// connection, or a full one, may be dropped: the member syncs, or the sender repeats it.
	DeliverToMembers(out *leader.ProcessOut)
	// MembersTicked is called about every 100 ms while messages are relayed, and every second else,
	// while this replica leads.
	MembersTicked(*Shard)
	// FlushMembers ends a series of calls.
	FlushMembers()
	// Contain is deferred around each call of the leader's part. It recovers a panic, and closes
	// the connection whose message caused it, 0 for none.
	Contain(conn uint64)
}

// memberQueue has the members' messages, and the step machine that takes them.
type memberQueue struct {
	wakeup
	led atomic.Uint64 // the term of this replica's leadership, 0 while it does not lead

	mu     sync.Mutex
	list   []MemberMessage
	bytes  int
	closed bool

	stepMu    sync.Mutex // held around each call of processes, and before the machine
	processes *leader.Processes
}

func (q *memberQueue) init() {
	q.wakeup = newWakeup()
	q.processes = leader.NewProcesses(relay.Limits{})
}

// lead is called, in log order, when this replica begins to lead in a term, and with 0 when that
// ends.
func (q *memberQueue) lead(term uint64) {
	q.led.Store(term)
	q.wake()
}

func (q *memberQueue) add(m MemberMessage) protocol.Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return protocol.StatusUnavailable
	case len(q.list) >= MaxMemberMessages || q.bytes+len(m.Body) > MaxMemberBytes:
		return protocol.StatusOverloaded
	}
	q.list = append(q.list, m)
	q.bytes += len(m.Body)
	q.wake()
	return protocol.StatusOK
}

func (q *memberQueue) take(spare []MemberMessage) []MemberMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list, q.bytes = spare[:0], 0
	return list
}

func (q *memberQueue) idle() bool {
	q.stepMu.Lock()
	defer q.stepMu.Unlock()
	return q.processes.Idle()
}

func (q *memberQueue) stats() leader.ProcessStats {
	q.stepMu.Lock()
	defer q.stepMu.Unlock()
	return q.processes.Stats()
}

// memberLoop is the state of the goroutine that drives leader.Processes, in the order in which
// messages came.
type memberLoop struct {
	s    *Shard
	q    *memberQueue
	sink MemberSink
	term uint64 // the leadership that processes has, 0 for none
	out  leader.ProcessOut

	sync    protocol.ProcessSync
	request protocol.ProcessRequest
	reply   protocol.ProcessReply
}

func (w *memberLoop) loop() {
	tick := time.NewTimer(idleMemberTick)
	defer tick.Stop()
	idle, term := true, uint64(0)
	var list []MemberMessage
	for {
		due := false
		select {
		case <-w.s.stopC:
			w.end()
			return
		case <-w.q.wakeup:
		case <-tick.C:
			due = true
		}
		w.followLeadership()
		list = w.q.take(list)
		if w.term == 0 {
			w.fail(list)
		} else {
			for i := range list {
				w.serve(&list[i])
			}
		}
		clear(list)
		if due {
			w.tick()
		}
		if due || len(list) > 0 {
			w.sink.FlushMembers()
		}
		if now := w.q.idle(); due || now != idle || w.term != term {
			idle, term = now, w.term
			switch {
			case term == 0:
				tick.Stop() // a replica that does not lead has nothing to repeat
			case idle:
				tick.Reset(beat.Next(idleMemberTick))
			default:
				tick.Reset(beat.Next(memberTick))
			}
		}
	}
}

// end answers what waits: the shard does not run here any more.
func (w *memberLoop) end() {
	w.q.mu.Lock()
	w.q.closed = true
	w.q.mu.Unlock()
	for _, m := range w.q.take(nil) {
		w.sink.MemberReply(m.Origin,
			protocol.Errorf(protocol.StatusUnavailable, "the shard stops running here; fetch the map and send again"))
	}
	w.sink.FlushMembers()
}

// followLeadership begins and ends the leader's part with the leadership.
func (w *memberLoop) followLeadership() {
	term := w.q.led.Load()
	if term == w.term {
		return
	}
	w.term = term
	w.q.stepMu.Lock()
	defer w.q.stepMu.Unlock()
	if term != 0 {
		w.q.processes.Start(millis(w.s.clock))
	} else {
		w.q.processes.Stop()
	}
}

// fail answers messages that came while this replica does not lead.
func (w *memberLoop) fail(list []MemberMessage) {
	if len(list) == 0 {
		return
	}
	origins := make([]Origin, len(list))
	for i := range list {
		origins[i] = list[i].Origin
	}
	w.s.sink.Failed(w.s, origins, protocol.StatusUnavailable)
}

// serve answers one message, and delivers what comes of it.
func (w *memberLoop) serve(m *MemberMessage) {
	defer w.sink.Contain(m.Conn)
	var err error
	w.step(func(machine *shard.Machine) { err = w.take(machine, m) })
	if protocol.StatusOf(err) == protocol.StatusNotFound && !m.confirmed {
		w.retryBehindBarrier(*m)
	} else {
		w.sink.MemberReply(m.Origin, err)
	}
	w.deliver()
}

// retryBehindBarrier repeats a message behind a read barrier. A deposed leader that does not know
// it does harm only by the reply that there is no such process or member: that ends a membership.
func (w *memberLoop) retryBehindBarrier(m MemberMessage) {
	m.confirmed = true
	w.s.Barrier(func(ok bool) {
		st := protocol.StatusUnavailable
		if ok {
			st = w.q.add(m)
		}
		if st != protocol.StatusOK {
			w.s.sink.Failed(w.s, []Origin{m.Origin}, st)
		}
	})
}

// step runs one call of processes with the machine.
func (w *memberLoop) step(call func(*shard.Machine)) {
	w.q.stepMu.Lock()
	defer w.q.stepMu.Unlock()
	w.s.View(call)
}

// take hands a message to processes.
func (w *memberLoop) take(machine *shard.Machine, m *MemberMessage) error {
	var session uint64
	var err error
	switch m.Kind {
	case protocol.KindProcessSync:
		err, session = w.sync.DecodeBody(m.Body), w.sync.Session
	case protocol.KindProcessRequest:
		err, session = w.request.DecodeBody(m.Body), w.request.Session
	default:
		err, session = w.reply.DecodeBody(m.Body), w.reply.Session
	}
	if err != nil {
		return err
	}
	if machine.Sessions().TakenOver(session, m.Epoch) {
		return protocol.Errorf(protocol.StatusBadSession,
			"session was attached again since; attach it here, or present its newer ticket")
	}
	p := w.q.processes
	switch m.Kind {
	case protocol.KindProcessSync:
		return p.Sync(machine, m.Node, &w.sync, &w.out)
	case protocol.KindProcessRequest:
		return p.Request(machine, m.Node, &w.request, &w.out)
	}
	return p.Reply(machine, m.Node, &w.reply, &w.out)
}

// tick repeats what is due.
func (w *memberLoop) tick() {
	defer w.sink.Contain(0)
	if w.term == 0 {
		return
	}
	w.step(func(machine *shard.Machine) { w.q.processes.Tick(millis(w.s.clock), machine, &w.out) })
	w.deliver()
	w.sink.MembersTicked(w.s)
}

func (w *memberLoop) deliver() {
	if len(w.out.Rounds)+len(w.out.Messages) > 0 {
		w.sink.DeliverToMembers(&w.out)
	}
	w.out.Reset()
}
