package relay

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Stage reports whether messages of the present epoch may pass.
type Stage uint8

const (
	Closed    Stage = 0 // the round is complete or given up; there may never have been one
	Preparing Stage = 1 // not all members are prepared
	Open      Stage = 2
)

// StageOf is the stage of a round by the phase of its process, and by whether the process allows
// messages.
func StageOf(phase protocol.ProcessPhase, open bool) Stage {
	switch {
	case phase == protocol.PhasePreparing:
		return Preparing
	case open:
		return Open
	}
	return Closed
}

// Limits of one relay. Zeroes take the defaults. Beyond them a request is OVERLOADED, and sent
// again later.
type Limits struct {
	Payload  int // bytes of one message; default 1 MiB
	Pair     int // unanswered requests from one sender to one receiver; default 64
	Entries  int // unanswered requests in all; default 65,536
	Receiver int // bytes of unanswered requests to one receiver; default 8 MiB
	Bytes    int // bytes of unanswered requests in all, a broadcast counted for each receiver; default 64 MiB
}

func (l Limits) withDefaults() Limits {
	for _, d := range [...]struct {
		value  *int
		normal int
	}{{&l.Payload, 1 << 20}, {&l.Pair, 64}, {&l.Entries, 1 << 16}, {&l.Receiver, 8 << 20}, {&l.Bytes, 64 << 20}} {
		if *d.value <= 0 {
			*d.value = d.normal
		}
	}
	return l
}

// Relay of one process. Its zero value is not ready; see New.
//
// Invariant: every entry has the present epoch, and sender and receiver are members of it.
type Relay struct {
	limits   Limits
	epoch    uint64
	stage    Stage
	members  []*member // by session
	pending  map[messageKey]*pendingMessage
	bytes    int
	counters Counters
}

// Counters are the counts since the relay was made.
type Counters struct {
	Requests    uint64 // delivered, each receiver counted
	Repeated    uint64 // sent again while unanswered, and delivered again
	Late        uint64 // copies that came after the sender had all answers
	Redelivered uint64 // delivered again to a receiver that attached again
	Replies     uint64 // delivered
	Refused     uint64 // replies that say the handler failed
	Unknown     uint64 // replies to nothing that is pending
	Stale       uint64 // messages of an older epoch
	Overflows   uint64 // requests refused for a limit
}

// member is a member: the requests to it, in order of arrival, and those from it.
type member struct {
	session    uint64
	inbox      messageList
	outbox     messageList
	unanswered map[uint64]int // of outbox, by receiver
	bytes      int            // of inbox
	low        uint64         // the highest Low it sent in this epoch
}

func newMember(session uint64) *member {
	return &member{session: session, inbox: messageList{side: inbox}, outbox: messageList{side: outbox},
		unanswered: make(map[uint64]int)}
}

type messageKey struct {
	from, number, to uint64
}

type pendingMessage struct {
	messageKey
	low       uint64
	payload   []byte
	sender    *member
	receiver  *member
	neighbors [2]neighbors // by side
}

// Kind of a delivery.
type Kind uint8

const (
	KindRequest Kind = 1 // To executes it, or gives the reply it remembers
	KindReply   Kind = 2 // the answer to To's request; From is the receiver of the request
	KindRefused Kind = 3 // From could not execute To's request: send it again after a back-off
)

// Delivery goes to the session To if it is attached; else it is lost, and comes again as the
// package comment says.
type Delivery struct {
	Kind    Kind
	To      uint64
	From    uint64
	Epoch   uint64
	Number  uint64
	Low     uint64 // KindRequest: no lower number of From is ever sent again; replies to them may be forgotten
	Payload []byte
}

// Out collects deliveries, in order. The zero value is ready; Reset keeps the memory.
type Out struct {
	Deliveries []Delivery
}

// Reset forgets the deliveries and the references they hold.
func (o *Out) Reset() {
	clear(o.Deliveries)
	o.Deliveries = o.Deliveries[:0]
}

// New makes a relay for a process that has no round.
func New(limits Limits) *Relay {
	return &Relay{limits: limits.withDefaults(), pending: make(map[messageKey]*pendingMessage)}
}

// Round sets the process's state: its epoch, whether messages pass, and the sessions of the round's
// members. Requests of an older round are dropped, and so are those to or from a session that is no
// longer a member.
func (r *Relay) Round(epoch uint64, stage Stage, sessions []uint64) {
	if epoch != r.epoch || stage != Open {
		clear(r.pending)
		r.members, r.bytes = nil, 0
	}
	r.epoch, r.stage = epoch, stage
	sorted := slices.Clone(sessions)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	r.members = slices.DeleteFunc(r.members, func(m *member) bool {
		if _, ok := slices.BinarySearch(sorted, m.session); ok {
			return false
		}
		for e := range m.inbox.all() {
			r.drop(e)
		}
		for e := range m.outbox.all() {
			r.drop(e)
		}
		return true
	})
	for _, s := range sorted {
		if i, ok := r.index(s); !ok {
			r.members = slices.Insert(r.members, i, newMember(s))
		}
	}
}

func (r *Relay) index(session uint64) (int, bool) {
	return slices.BinarySearchFunc(r.members, session, func(m *member, s uint64) int {
		switch {
		case m.session < s:
			return -1
		case m.session > s:
			return 1
		}
		return 0
	})
}

func (r *Relay) member(session uint64) *member {
	if i, ok := r.index(session); ok {
		return r.members[i]
	}
	return nil
}

// Counters returns the counts.
func (r *Relay) Counters() Counters { return r.counters }

// Pending is the number of unanswered requests, and their bytes.
func (r *Relay) Pending() (entries, bytes int) { return len(r.pending), r.bytes }

// roundMember checks the epoch. ABORTED: the round is over, and so is the message. UNAVAILABLE: not
// yet; send it again.
func (r *Relay) roundMember(from, epoch uint64) (*member, error) {
	switch {
	case epoch < r.epoch || epoch == r.epoch && r.stage == Closed:
		r.counters.Stale++
		return nil,
			protocol.Errorf(protocol.StatusAborted, "round of epoch %d is over; its messages are dropped", epoch)
	case epoch > r.epoch:
		return nil, protocol.Errorf(protocol.StatusUnavailable,
			"round of epoch %d is not known here yet; send the message again", epoch)
	case r.stage == Preparing:
		return nil, protocol.Errorf(protocol.StatusUnavailable,
			"not all members of epoch %d are prepared; send the message again", epoch)
	}
	m := r.member(from)
	if m == nil {
		return nil,
			protocol.Errorf(protocol.StatusNotFound, "session is not a member of the round of epoch %d", epoch)
	}
	return m, nil
}

func (r *Relay) checkPayload(b []byte) error {
	if len(b) > r.limits.Payload {
		return protocol.Errorf(protocol.StatusBadRequest, "message is %d bytes long; at most %d are allowed",
			len(b), r.limits.Payload)
	}
	return nil
}

// keep takes a new message in.
func (r *Relay) keep(e *pendingMessage) {
	r.pending[e.messageKey] = e
	e.receiver.inbox.add(e)
	e.sender.outbox.add(e)
	e.sender.unanswered[e.to]++
	e.receiver.bytes += len(e.payload)
	r.bytes += len(e.payload)
}

// drop takes a message out.
func (r *Relay) drop(e *pendingMessage) {
	delete(r.pending, e.messageKey)
	e.receiver.inbox.remove(e)
	e.sender.outbox.remove(e)
	if e.sender.unanswered[e.to]--; e.sender.unanswered[e.to] == 0 {
		delete(e.sender.unanswered, e.to)
	}
	e.receiver.bytes -= len(e.payload)
	r.bytes -= len(e.payload)
}
