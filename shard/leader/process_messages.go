package leader

import (
	"bytes"
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// Limits of [Processes].
const (
	ResendEvery        = 5_000  // ms between two resend cycles over the members of running processes
	maxResendMembers   = 1_000  // in one tick
	maxResendProcesses = 10_000 // in one tick

	// Bytes of messages between members that wait for replies, of a shard and of a node in it. A
	// node's quota of bytes limits it further, but not below minNodePending.
	MaxPending     = 256 << 20
	MaxNodePending = 64 << 20
	minNodePending = 8 << 20
)

// Processes is the leader's part of coordination processes: it relays messages between members,
// which never enter the log, and resends what members have not confirmed. Like [Leader] it is a
// pure step machine. It is not safe for concurrent use: the driver holds a lock around it, and
// gives the machine to each call while Apply is kept away.
//
// What the driver guarantees:
//
//   - It calls Start with each leadership, before it takes messages, and Stop at its end. It calls
//     Request and Reply only while this replica leads. No barrier is needed: a deposed leader that
//     still relays does no harm, because both ends compare epochs and a newer round cancels. But
//     NOT_FOUND ends a membership, so it is replied only if the call was made behind a barrier that
//     began after the message arrived.
//   - It sends the events and messages of a ProcessOut, in the order of the calls, on the
//     connections where their session is attached or known by a ticket. It sends EventProcess of
//     the log the same way. What finds no connection is dropped: a member syncs after each attach
//     and each new connection, and gets it again.
//   - It calls Request, Reply and Sync for sessions that the connection has attached or proved by a
//     ticket.
//   - It calls Tick about every 100 ms, and every second while Idle. now is monotonic, in ms.
type Processes struct {
	limits      relay.Limits
	leading     bool
	relays      map[string]*processRelay // by node and name; created with the first message
	pastTally   relay.Counters           // of relays that are gone
	pending     int                      // bytes that wait in all relays
	nodePending map[uint64]int           // the same by node; only nodes with some
	out         relay.Out
	ids         []uint64
	key         []byte

	resendAt   uint64 // when the last resend cycle began
	resending  bool
	resendNode uint64 // where the resend cycle continues
	resendName []byte
}

// processRelay is the relay of a process, as of a revision of it.
type processRelay struct {
	relay    *relay.Relay
	node     uint64
	name     []byte
	revision uint64
	pending  int // bytes, as counted last
}

// ProcessDelivery is a message for the session To.
type ProcessDelivery struct {
	Node uint64
	Name []byte
	relay.Delivery
}

// Message returns the delivery in its wire form.
func (d *ProcessDelivery) Message(out *protocol.ProcessMessage) {
	*out = protocol.ProcessMessage{
		Session: d.To, Name: d.Name, Kind: protocol.ProcessMessageKind(d.Kind), From: d.From, Epoch: d.Epoch,
		Number: d.Number, Low: d.Low, Payload: d.Payload,
	}
}

// ProcessOut collects what goes to sessions: rounds first, then messages. The zero value is ready;
// Reset keeps the memory.
type ProcessOut struct {
	Rounds   []shard.Event // of kind EventProcess
	Messages []ProcessDelivery
}

// Reset empties it.
func (o *ProcessOut) Reset() {
	clear(o.Rounds)
	o.Rounds = o.Rounds[:0]
	clear(o.Messages)
	o.Messages = o.Messages[:0]
}

// NewProcesses returns one without a leadership. Zero limits select the defaults.
func NewProcesses(limits relay.Limits) *Processes {
	return &Processes{limits: limits, relays: make(map[string]*processRelay), nodePending: make(map[uint64]int)}
}

// Start begins a leadership without messages: senders repeat unanswered ones.
func (p *Processes) Start(now uint64) {
	p.Stop()
	p.leading, p.resendAt, p.resending = true, now, true // resend at once: what the previous leader sent may be lost
	p.resendNode, p.resendName = 0, nil
}

// Stop ends the leadership and drops all messages.
func (p *Processes) Stop() {
	p.leading, p.resending = false, false
	for key := range p.relays { // the order of removals has no effect
		p.forget(key)
	}
}

// Idle reports that Tick has nothing to do before the next resend cycle: one call a second is
// enough.
func (p *Processes) Idle() bool { return !p.leading || !p.resending && len(p.relays) == 0 }

func (p *Processes) forget(key string) {
	r := p.relays[key]
	addTally(&p.pastTally, r.relay.Counters())
	p.setPending(r, 0)
	delete(p.relays, key)
}

// setPending notes how many bytes wait in a relay.
func (p *Processes) setPending(r *processRelay, bytes int) {
	p.pending += bytes - r.pending
	if p.nodePending[r.node] += bytes - r.pending; p.nodePending[r.node] == 0 {
		delete(p.nodePending, r.node)
	}
	r.pending = bytes
}

// updatePending notes what the relay reports.
func (p *Processes) updatePending(r *processRelay) {
	_, bytes := r.relay.Pending()
	p.setPending(r, bytes)
}

var (
	errTooMuchPending = protocol.Errorf(protocol.StatusOverloaded,
		"the messages that wait for replies in this shard have the limit of %d MiB; send it again later",
		MaxPending>>20)
)

// checkRoom returns an error if so many more bytes exceed a limit.
func (p *Processes) checkRoom(m *shard.Machine, node uint64, bytes int) error {
	if p.pending+bytes > MaxPending {
		return errTooMuchPending
	}
	if has := p.nodePending[node] + bytes; has > minNodePending {
		most := uint64(MaxNodePending)
		if u, ok := m.Nodes().Usage(node); ok {
			most = max(minNodePending, min(most, u.Limit[shard.QuotaBytes]))
		}
		if uint64(has) > most {
			return protocol.Errorf(protocol.StatusOverloaded,
				"the messages of the node's members that wait for replies in this shard may have %d bytes; send it again later, or raise the node's quota max_bytes", most)
		}
	}
	return nil
}

func addTally(t *relay.Counters, o relay.Counters) {
	t.Requests += o.Requests
	t.Repeated += o.Repeated
	t.Late += o.Late
	t.Redelivered += o.Redelivered
	t.Replies += o.Replies
	t.Refused += o.Refused
	t.Unknown += o.Unknown
	t.Stale += o.Stale
	t.Overflows += o.Overflows
}

// ProcessStats are for metrics: Tally since NewProcesses, the others now.
type ProcessStats struct {
	relay.Counters
	Relays, Pending, PendingBytes int
}

// Stats returns the counters.
func (p *Processes) Stats() ProcessStats {
	s := ProcessStats{Counters: p.pastTally, Relays: len(p.relays)}
	for _, r := range p.relays { // sums
		addTally(&s.Counters, r.relay.Counters())
		n, b := r.relay.Pending()
		s.Pending += n
		s.PendingBytes += b
	}
	return s
}

var errNotLeader = &protocol.Error{Status: protocol.StatusUnavailable,
	Message: "the shard is not led here; send the message to its master"}

// relayAt returns the relay of a process, updated to its present state. If there is none it creates
// one, or returns nil.
func (p *Processes) relayAt(v shard.ProcessView, made bool) *processRelay {
	p.key = append(binary.BigEndian.AppendUint64(p.key[:0], v.Node()), v.Name()...)
	r := p.relays[string(p.key)]
	if r == nil {
		if !made {
			return nil
		}
		r = &processRelay{relay: relay.New(p.limits), node: v.Node(), name: bytes.Clone(v.Name())}
		p.relays[string(p.key)] = r
	}
	if r.revision != v.Revision() {
		r.revision = v.Revision()
		p.ids = v.Sessions(p.ids[:0])
		r.relay.Round(v.Epoch(), relay.StageOf(v.Phase(), v.Open()), p.ids)
		p.updatePending(r)
	}
	return r
}

func (p *Processes) collect(r *processRelay, out *ProcessOut) {
	p.updatePending(r)
	for i := range p.out.Deliveries {
		out.Messages = append(out.Messages,
			ProcessDelivery{Node: r.node, Name: r.name, Delivery: p.out.Deliveries[i]})
	}
	p.out.Reset()
}

// Request takes a member's message. The error is the reply: WRONG_SHARD and NOT_FOUND for the
// process, else an error of [relay.Relay.Request].
func (p *Processes) Request(m *shard.Machine, node uint64, q *protocol.ProcessRequest, out *ProcessOut) error {
	if err := protocol.Validate(q); err != nil {
		return err
	}
	r, err := p.relayFor(m, node, q.Name)
	if err != nil {
		return err
	}
	err = r.relay.Request(relay.Request{
		From: q.Session, Epoch: q.Epoch, Number: q.Number, Low: q.Low, To: q.To, Payload: bytes.Clone(q.Payload),
		Admit: func(held, more int) error {
			p.setPending(r, held)
			return p.checkRoom(m, node, more)
		},
	}, &p.out)
	p.collect(r, out)
	return err
}

// Reply takes a member's reply to a message.
func (p *Processes) Reply(m *shard.Machine, node uint64, a *protocol.ProcessReply, out *ProcessOut) error {
	if err := protocol.Validate(a); err != nil {
		return err
	}
	r, err := p.relayFor(m, node, a.Name)
	if err != nil {
		return err
	}
	err = r.relay.Reply(relay.Reply{
		From: a.Session, To: a.To, Epoch: a.Epoch, Number: a.Number,
		Refused: a.Refused, Payload: bytes.Clone(a.Payload),
	}, &p.out)
	p.collect(r, out)
	return err
}

func (p *Processes) relayFor(m *shard.Machine, node uint64, name []byte) (*processRelay, error) {
	if !p.leading {
		return nil, errNotLeader
	}
	v, err := m.Processes().Find(node, name)
	if err != nil {
		return nil, err
	}
	return p.relayAt(v, true), nil
}

// Sync resends what a member has not confirmed or not replied to. NOT_FOUND: it is no member, and
// was none lately.
func (p *Processes) Sync(m *shard.Machine, node uint64, q *protocol.ProcessSync, out *ProcessOut) error {
	if err := protocol.Validate(q); err != nil {
		return err
	}
	if !p.leading {
		return errNotLeader
	}
	v, err := m.Processes().Find(node, q.Name)
	if err != nil {
		return err
	}
	var known bool
	out.Rounds, known = m.Processes().Resend(v, q.Session, out.Rounds)
	if r := p.relayAt(v, false); r != nil {
		r.relay.SessionAttached(q.Session, &p.out)
		p.collect(r, out)
	}
	if !known {
		return protocol.Refuse(protocol.RefusalNotMember, "session %d is not a member of the process; join first",
			q.Session)
	}
	return nil
}

// Tick continues the resend cycle over members of running processes, so that a lost message is
// repeated some seconds later. While a process waits for its next round, that is the message that
// the last one was cancelled. It also drops relays whose rounds are over.
func (p *Processes) Tick(now uint64, m *shard.Machine, out *ProcessOut) {
	if !p.leading {
		return
	}
	for key, r := range p.relays { // the order of removals has no effect
		if v, err := m.Processes().Find(r.node, r.name); err != nil ||
			!v.Open() && v.Phase() != protocol.PhasePreparing {
			p.forget(key)
		} else {
			p.relayAt(v, false) // a newer round drops what the previous one left
		}
	}
	if !p.resending && now-p.resendAt >= ResendEvery {
		p.resending, p.resendAt, p.resendNode, p.resendName = true, now, 0, nil
	}
	if !p.resending {
		return
	}
	members, looks, whole := maxResendMembers, maxResendProcesses, true
	m.Processes().From(p.resendNode, p.resendName, func(v shard.ProcessView) bool {
		if members <= 0 || looks <= 0 {
			p.resendNode, p.resendName, whole = v.Node(), bytes.Clone(v.Name()), false
			return false
		}
		looks--
		if v.Phase() == protocol.PhaseIdle {
			return true
		}
		if p.ids = v.Sessions(p.ids[:0]); v.Phase() == protocol.PhaseWaiting {
			p.ids = v.LiveSessions(p.ids[:0])
		}
		members -= len(p.ids)
		for _, id := range p.ids {
			out.Rounds, _ = m.Processes().Resend(v, id, out.Rounds)
		}
		return true
	})
	p.resending = !whole
}
