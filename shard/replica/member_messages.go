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
	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
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
	wakeup.Wakeup
	led atomic.Uint64 // the term of this replica's leadership, 0 while it does not lead

	mu     sync.Mutex
	list   []MemberMessage
	bytes  int
	closed bool

	stepMu    sync.Mutex // held around each call of processes, and before the machine
	processes *leader.Processes
}

func (q *memberQueue) init() {
	q.Wakeup = wakeup.New()
	q.processes = leader.NewProcesses(relay.Limits{})
}

// lead is called, in log order, when this replica begins to lead in a term, and with 0 when that
// ends.
func (q *memberQueue) lead(term uint64) {
	q.led.Store(term)
	q.Wake()
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
	q.Wake()
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

func (l *memberLoop) loop() {
	tick := time.NewTimer(idleMemberTick)
	defer tick.Stop()
	idle, term := true, uint64(0)
	var list []MemberMessage
	for {
		due := false
		select {
		case <-l.s.stopC:
			l.end()
			return
		case <-l.q.Wakeup:
		case <-tick.C:
			due = true
		}
		l.followLeadership()
		list = l.q.take(list)
		if l.term == 0 {
			l.fail(list)
		} else {
			for i := range list {
				l.serve(&list[i])
			}
		}
		clear(list)
		if due {
			l.tick()
		}
		if due || len(list) > 0 {
			l.sink.FlushMembers()
		}
		if now := l.q.idle(); due || now != idle || l.term != term {
			idle, term = now, l.term
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
func (l *memberLoop) end() {
	l.q.mu.Lock()
	l.q.closed = true
	l.q.mu.Unlock()
	for _, m := range l.q.take(nil) {
		l.sink.MemberReply(m.Origin,
			protocol.Errorf(protocol.StatusUnavailable, "the shard stops running here; fetch the map and send again"))
	}
	l.sink.FlushMembers()
}

// followLeadership begins and ends the leader's part with the leadership.
func (l *memberLoop) followLeadership() {
	term := l.q.led.Load()
	if term == l.term {
		return
	}
	l.term = term
	l.q.stepMu.Lock()
	defer l.q.stepMu.Unlock()
	if term != 0 {
		l.q.processes.Start(millis(l.s.clock))
	} else {
		l.q.processes.Stop()
	}
}

// fail answers messages that came while this replica does not lead.
func (l *memberLoop) fail(list []MemberMessage) {
	if len(list) == 0 {
		return
	}
	origins := make([]Origin, len(list))
	for i := range list {
		origins[i] = list[i].Origin
	}
	l.s.sink.Failed(l.s, origins, protocol.StatusUnavailable)
}

// serve answers one message, and delivers what comes of it.
func (l *memberLoop) serve(m *MemberMessage) {
	defer l.sink.Contain(m.Conn)
	var err error
	l.step(func(machine *shard.Machine) { err = l.take(machine, m) })
	if protocol.StatusOf(err) == protocol.StatusNotFound && !m.confirmed {
		l.retryBehindBarrier(*m)
	} else {
		l.sink.MemberReply(m.Origin, err)
	}
	l.deliver()
}

// retryBehindBarrier repeats a message behind a read barrier. A deposed leader that does not know
// it does harm only by the reply that there is no such process or member: that ends a membership.
func (l *memberLoop) retryBehindBarrier(m MemberMessage) {
	m.confirmed = true
	l.s.Barrier(func(ok bool) {
		st := protocol.StatusUnavailable
		if ok {
			st = l.q.add(m)
		}
		if st != protocol.StatusOK {
			l.s.sink.Failed(l.s, []Origin{m.Origin}, st)
		}
	})
}

// step runs one call of processes with the machine.
func (l *memberLoop) step(call func(*shard.Machine)) {
	l.q.stepMu.Lock()
	defer l.q.stepMu.Unlock()
	l.s.View(call)
}

// take hands a message to processes.
func (l *memberLoop) take(machine *shard.Machine, m *MemberMessage) error {
	var session uint64
	var err error
	switch m.Kind {
	case protocol.KindProcessSync:
		err, session = l.sync.DecodeBody(m.Body), l.sync.Session
	case protocol.KindProcessRequest:
		err, session = l.request.DecodeBody(m.Body), l.request.Session
	default:
		err, session = l.reply.DecodeBody(m.Body), l.reply.Session
	}
	if err != nil {
		return err
	}
	if machine.Sessions().TakenOver(session, m.Epoch) {
		return protocol.Errorf(protocol.StatusBadSession,
			"session was attached again since; attach it here, or present its newer ticket")
	}
	p := l.q.processes
	switch m.Kind {
	case protocol.KindProcessSync:
		return p.Sync(machine, m.Node, &l.sync, &l.out)
	case protocol.KindProcessRequest:
		return p.Request(machine, m.Node, &l.request, &l.out)
	}
	return p.Reply(machine, m.Node, &l.reply, &l.out)
}

// tick repeats what is due.
func (l *memberLoop) tick() {
	defer l.sink.Contain(0)
	if l.term == 0 {
		return
	}
	l.step(func(machine *shard.Machine) { l.q.processes.Tick(millis(l.s.clock), machine, &l.out) })
	l.deliver()
	l.sink.MembersTicked(l.s)
}

func (l *memberLoop) deliver() {
	if len(l.out.Rounds)+len(l.out.Messages) > 0 {
		l.sink.DeliverToMembers(&l.out)
	}
	l.out.Reset()
}
