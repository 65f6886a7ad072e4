package leader

import (
	"bytes"
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// Fixed numbers of [Processes].
const (
	ResendEvery        = 5_000  // ms between two passes over the members of processes under way
	maxResendMembers   = 1_000  // members looked at in one tick
	maxResendProcesses = 10_000 // processes looked at in one tick

	// Bytes of messages between members that wait for a reply: of all processes of a shard, and of those of one node, as far as the node's quota of bytes admits here,
	// but minNodePending in any case.
	MaxPending     = 256 << 20
	MaxNodePending = 64 << 20
	minNodePending = 8 << 20
)

// Processes is the leader's part of coordination processes: messages between members, which never enter the log, and what members are told again. Like
// [Leader] it is a pure step machine: calls in, [ProcessOut] out. It is not safe for concurrent use; the driver has a lock around it, and gives the machine to
// each call with Apply kept away.
//
// What the driver owes it:
//
//   - Start with each leadership, before messages are taken, and Stop with its end; between them nothing, and Request and Reply only while this replica leads.
//     No barrier is needed: a deposed leader that still relays does no harm, for both ends compare epochs, and any newer round cancels. But NOT_FOUND, which ends a
//     membership, is answered only if the call was made behind a barrier that began after the message came.
//   - Events and messages of a ProcessOut go to the connections on which their session is attached, or known by a ticket, in the order of the calls. What
//     finds no connection is dropped: it comes again when the member syncs, which it owes after each attach and new connection. EventProcess of the log goes the same way.
//   - Request, Reply and Sync are called for sessions that the connection has attached or proved by a ticket.
//   - Tick comes every 100 ms or so, and every second while there is nothing to do (Idle). now is monotonic, in ms.
type Processes struct {
	limits      relay.Limits
	leading     bool
	relays      map[string]*processRelay // by node and name; made with the first message
	pastTally   relay.Counters           // of relays that are gone
	pending     int                      // bytes that wait in all relays
	nodePending map[uint64]int           // the same by node; none without any
	out         relay.Out
	ids         []uint64
	key         []byte

	resendAt   uint64 // when the last pass began
	resending  bool
	resendNode uint64 // the pass goes on here
	resendName []byte
}

// processRelay is the relay of a process, as of a revision.
type processRelay struct {
	relay    *relay.Relay
	node     uint64
	name     []byte
	revision uint64
	pending  int // bytes, as counted
}

// ProcessDelivery is a message for the session To.
type ProcessDelivery struct {
	Node uint64
	Name []byte
	relay.Delivery
}

// Message is the delivery as it goes on the wire.
func (d *ProcessDelivery) Message(out *protocol.ProcessMessage) {
	*out = protocol.ProcessMessage{
		Session: d.To, Name: d.Name, Kind: protocol.ProcessMessageKind(d.Kind), From: d.From, Epoch: d.Epoch, Number: d.Number, Low: d.Low, Payload: d.Payload,
	}
}

// ProcessOut collects what goes to sessions: rounds first, then messages. The zero value is ready; Reset keeps the memory.
type ProcessOut struct {
	Rounds   []shard.Event // of kind EventProcess
	Messages []ProcessDelivery
}

// Reset forgets what was collected.
func (o *ProcessOut) Reset() {
	clear(o.Rounds)
	o.Rounds = o.Rounds[:0]
	clear(o.Messages)
	o.Messages = o.Messages[:0]
}

// NewProcesses makes one that leads nothing yet. Zero limits are the defaults.
func NewProcesses(limits relay.Limits) *Processes {
	return &Processes{limits: limits, relays: make(map[string]*processRelay), nodePending: make(map[uint64]int)}
}

// Start begins a leadership, without messages: senders send again what is unanswered.
func (p *Processes) Start(now uint64) {
	p.Stop()
	p.leading, p.resendAt, p.resending = true, now, true // a new leader tells everybody soon: what the former one sent may be lost
	p.resendNode, p.resendName = 0, nil
}

// Stop ends it, and forgets all messages.
func (p *Processes) Stop() {
	p.leading, p.resending = false, false
	for key := range p.relays { // the order of removals shows nowhere
		p.forget(key)
	}
}

// Idle says that Tick has nothing to do before the next pass: every second is often enough then.
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

// updatePending is count, by what the relay says.
func (p *Processes) updatePending(r *processRelay) {
	_, bytes := r.relay.Pending()
	p.setPending(r, bytes)
}

var (
	errTooMuchPending = protocol.Errorf(protocol.StatusOverloaded, "the messages that wait for replies in this shard are %d MiB; send it again later", MaxPending>>20)
)

// checkRoom says why so many bytes more are too much.
func (p *Processes) checkRoom(m *shard.Machine, node uint64, bytes int) error {
	if p.pending+bytes > MaxPending {
		return errTooMuchPending
	}
	if has := p.nodePending[node] + bytes; has > minNodePending {
		most := uint64(MaxNodePending)
		if u, ok := m.Usage(node); ok {
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

// Stats says what happened so far.
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

var errNotLeader = &protocol.Error{Status: protocol.StatusUnavailable, Message: "the shard is not led here; send the message to its master"}

// relayAt is the relay of a process, as the process is now; nil if there is none and none is to be made.
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
		stage := relay.Closed
		switch {
		case v.Phase() == process.PhasePreparing:
			stage = relay.Preparing
		case v.Open():
			stage = relay.Open
		}
		p.ids = v.Sessions(p.ids[:0])
		r.relay.Round(v.Epoch(), stage, p.ids)
		p.updatePending(r)
	}
	return r
}

func (p *Processes) collect(r *processRelay, out *ProcessOut) {
	p.updatePending(r)
	for i := range p.out.Deliveries {
		out.Messages = append(out.Messages, ProcessDelivery{Node: r.node, Name: r.name, Delivery: p.out.Deliveries[i]})
	}
	p.out.Reset()
}

// Request takes a member's message. Errors are the answer to it: WRONG_SHARD and NOT_FOUND for the process, else those of [relay.Relay.Request].
func (p *Processes) Request(m *shard.Machine, node uint64, q *protocol.ProcessRequest, out *ProcessOut) error {
	if err := q.Validate(); err != nil {
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

// Reply takes a member's answer to a message.
func (p *Processes) Reply(m *shard.Machine, node uint64, a *protocol.ProcessReply, out *ProcessOut) error {
	if err := a.Validate(); err != nil {
		return err
	}
	r, err := p.relayFor(m, node, a.Name)
	if err != nil {
		return err
	}
	err = r.relay.Reply(relay.Reply{
		From: a.Session, To: a.To, Epoch: a.Epoch, Number: a.Number, Refused: a.Refused, Payload: bytes.Clone(a.Payload),
	}, &p.out)
	p.collect(r, out)
	return err
}

func (p *Processes) relayFor(m *shard.Machine, node uint64, name []byte) (*processRelay, error) {
	if !p.leading {
		return nil, errNotLeader
	}
	v, err := m.Process(node, name)
	if err != nil {
		return nil, err
	}
	return p.relayAt(v, true), nil
}

// Sync tells a member again what it has not confirmed, and delivers again what it has not replied to. NOT_FOUND: it is no member, and was none lately.
func (p *Processes) Sync(m *shard.Machine, node uint64, q *protocol.ProcessSync, out *ProcessOut) error {
	if err := q.Validate(); err != nil {
		return err
	}
	if !p.leading {
		return errNotLeader
	}
	v, err := m.Process(node, q.Name)
	if err != nil {
		return err
	}
	var known bool
	out.Rounds, known = m.Resend(v, q.Session, out.Rounds)
	if r := p.relayAt(v, false); r != nil {
		r.relay.SessionAttached(q.Session, &p.out)
		p.collect(r, out)
	}
	if !known {
		return protocol.Errorf(protocol.StatusNotFound, "session %d is not a member of the process; join first", q.Session)
	}
	return nil
}

// Tick goes on with the pass over members of processes that are under way: whatever was lost on its way to one of them is told again, some seconds later. It also
// forgets relays whose rounds are over.
func (p *Processes) Tick(now uint64, m *shard.Machine, out *ProcessOut) {
	if !p.leading {
		return
	}
	for key, r := range p.relays { // the order of removals shows nowhere
		if v, err := m.Process(r.node, r.name); err != nil || !v.Open() && v.Phase() != process.PhasePreparing {
			p.forget(key)
		} else {
			p.relayAt(v, false) // a round that has begun since drops what the one before it left
		}
	}
	if !p.resending && now-p.resendAt >= ResendEvery {
		p.resending, p.resendAt, p.resendNode, p.resendName = true, now, 0, nil
	}
	if !p.resending {
		return
	}
	members, looks, whole := maxResendMembers, maxResendProcesses, true
	m.ProcessesFrom(p.resendNode, p.resendName, func(v shard.ProcessView) bool {
		if members <= 0 || looks <= 0 {
			p.resendNode, p.resendName, whole = v.Node(), bytes.Clone(v.Name()), false
			return false
		}
		looks--
		if ph := v.Phase(); ph == process.PhaseIdle || ph == process.PhaseWaiting {
			return true
		}
		p.ids = v.Sessions(p.ids[:0])
		members -= len(p.ids)
		for _, id := range p.ids {
			out.Rounds, _ = m.Resend(v, id, out.Rounds)
		}
		return true
	})
	p.resending = !whole
}
