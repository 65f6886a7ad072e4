package leaderdriver

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
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

// MemberMessage is a message from a member of a coordination process: a sync, a message or a reply,
// by the kind of its origin.
type MemberMessage struct {
	proposal.Origin
	Node  uint64
	Epoch uint64 // attach epoch of the session on the connection
	Body  []byte // kept

	confirmed bool // a read barrier lies behind it
}

// MemberSink receives the messages of a shard's leader to members of coordination processes. One
// goroutine of the shard calls it; that holds up neither the log nor the leader's other parts.
type MemberSink interface {
	// MemberReply answers a message. A nil error is success.
	MemberReply(o proposal.Origin, err error)
	// DeliverToMembers delivers rounds and messages to members. Out must not be kept. What finds no
	// connection, or a full one, may be dropped: the member syncs, or the sender repeats it.
	DeliverToMembers(out *leader.ProcessOut)
	// FlushMembers ends a series of calls.
	FlushMembers()
	// Contain is deferred around each call of the leader's part. It recovers a panic, and closes
	// the connection whose message caused it, 0 for none.
	Contain(conn uint64)
}

// MemberReplica is the members' part's view of its replica.
type MemberReplica interface {
	MemberSink
	View(fn func(*shard.Machine))
	Barrier(fn func(ok bool))
	Now() uint64 // ms of the host's clock
	// MembersFailed answers messages that are not taken. Origins must not be kept.
	MembersFailed(origins []proposal.Origin, st protocol.Status)
	// MembersTicked is called about every 100 ms while messages are relayed, and every second else,
	// while this replica leads.
	MembersTicked()
}

// Members is the part that relays messages between members of coordination processes, in the order
// in which they come.
type Members struct {
	Alarm
	r MemberReplica

	mu     sync.Mutex
	list   []MemberMessage
	bytes  int
	closed bool

	stepMu    sync.Mutex // held around each call of processes, and before the machine
	processes *leader.Processes
	leads     bool

	// Of the part's goroutine.
	spare   []MemberMessage
	refused []proposal.Origin // of messages that came while this replica does not lead
	out     leader.ProcessOut
	sync    protocol.ProcessSync
	request protocol.ProcessRequest
	reply   protocol.ProcessReply
}

var _ Part = (*Members)(nil)

// NewMembers returns the part for a replica.
func NewMembers(r MemberReplica) *Members {
	return &Members{Alarm: newAlarm(), r: r, processes: leader.NewProcesses(relay.Limits{})}
}

// Submit queues a message. Any other status than OK is the answer.
func (p *Members) Submit(m MemberMessage) protocol.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return protocol.StatusUnavailable
	case len(p.list) >= MaxMemberMessages || p.bytes+len(m.Body) > MaxMemberBytes:
		return protocol.StatusOverloaded
	}
	p.list = append(p.list, m)
	p.bytes += len(m.Body)
	p.Wake()
	return protocol.StatusOK
}

func (p *Members) take(spare []MemberMessage) []MemberMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.list
	p.list, p.bytes = spare[:0], 0
	return list
}

// Stats returns the counters of relayed messages.
func (p *Members) Stats() leader.ProcessStats {
	p.stepMu.Lock()
	defer p.stepMu.Unlock()
	return p.processes.Stats()
}

// Start implements Part.
func (p *Members) Start(t Term) {
	p.stepMu.Lock()
	defer p.stepMu.Unlock()
	p.leads = true
	p.processes.Start(t.Now)
}

// Stop implements Part.
func (p *Members) Stop() {
	p.stepMu.Lock()
	defer p.stepMu.Unlock()
	p.leads = false
	p.processes.Stop()
}

// Next implements Part: a replica that does not lead has nothing to repeat.
func (p *Members) Next() (in time.Duration, has bool) {
	p.stepMu.Lock()
	defer p.stepMu.Unlock()
	if p.leads && !p.processes.Idle() {
		return beat.Next(memberTick), true
	}
	return beat.Next(idleMemberTick), p.leads
}

// Close implements Part: the shard does not run here any more.
func (p *Members) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Stop()
	for _, m := range p.take(nil) {
		p.r.MemberReply(m.Origin,
			protocol.Errorf(protocol.StatusUnavailable, "the shard stops running here; fetch the map and send again"))
	}
	p.r.FlushMembers()
}

// Tick implements Part.
func (p *Members) Tick(timeout bool) {
	list := p.take(p.spare)
	for i := range list {
		p.serve(&list[i])
	}
	if len(p.refused) > 0 {
		p.r.MembersFailed(p.refused, protocol.StatusUnavailable)
		p.refused = p.refused[:0]
	}
	if timeout {
		p.repeat()
	}
	if timeout || len(list) > 0 {
		p.r.FlushMembers()
	}
	clear(list)
	p.spare = list
}

// serve answers one message, and delivers the resulting events.
func (p *Members) serve(m *MemberMessage) {
	defer p.r.Contain(m.Conn)
	var err error
	switch leads := p.step(func(machine *shard.Machine) { err = p.pass(machine, m) }); {
	case !leads:
		p.refused = append(p.refused, m.Origin)
		return
	case protocol.StatusOf(err) == protocol.StatusNotFound && !m.confirmed:
		p.retryBehindBarrier(*m)
	default:
		p.r.MemberReply(m.Origin, err)
	}
	p.deliver()
}

// retryBehindBarrier repeats a message behind a read barrier. A deposed leader that does not know
// it does harm only by the reply that there is no such process or member: that ends a membership.
func (p *Members) retryBehindBarrier(m MemberMessage) {
	m.confirmed = true
	p.r.Barrier(func(ok bool) {
		st := protocol.StatusUnavailable
		if ok {
			st = p.Submit(m)
		}
		if st != protocol.StatusOK {
			p.r.MembersFailed([]proposal.Origin{m.Origin}, st)
		}
	})
}

// step runs one call of processes with the machine, while this replica leads.
func (p *Members) step(call func(*shard.Machine)) (leads bool) {
	p.stepMu.Lock()
	defer p.stepMu.Unlock()
	if p.leads {
		p.r.View(call)
	}
	return p.leads
}

// pass hands a message to processes.
func (p *Members) pass(machine *shard.Machine, m *MemberMessage) error {
	var session uint64
	var err error
	switch m.Kind {
	case protocol.KindProcessSync:
		err, session = protocol.DecodeBody(&p.sync, m.Body), p.sync.Session
	case protocol.KindProcessRequest:
		err, session = protocol.DecodeBody(&p.request, m.Body), p.request.Session
	default:
		err, session = protocol.DecodeBody(&p.reply, m.Body), p.reply.Session
	}
	if err != nil {
		return err
	}
	if machine.Sessions().TakenOver(session, m.Epoch) {
		return protocol.Errorf(protocol.StatusBadSession,
			"session was attached again since; attach it here, or present its newer ticket")
	}
	switch m.Kind {
	case protocol.KindProcessSync:
		return p.processes.Sync(machine, m.Node, &p.sync, &p.out)
	case protocol.KindProcessRequest:
		return p.processes.Request(machine, m.Node, &p.request, &p.out)
	}
	return p.processes.Reply(machine, m.Node, &p.reply, &p.out)
}

// repeat sends the due repeats.
func (p *Members) repeat() {
	defer p.r.Contain(0)
	if !p.step(func(machine *shard.Machine) { p.processes.Tick(p.r.Now(), machine, &p.out) }) {
		return
	}
	p.deliver()
	p.r.MembersTicked()
}

func (p *Members) deliver() {
	if len(p.out.Rounds)+len(p.out.Messages) > 0 {
		p.r.DeliverToMembers(&p.out)
	}
	p.out.Reset()
}
