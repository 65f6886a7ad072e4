package process

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// MaxRecord is the most that a record can be long, in bytes, or a little more. It is below a
// mebibyte, the largest data of a semaphore, so that a process fits where one fits: in a snapshot's
// step, in a chunk of an export; and so does an event with all members in a frame.
const MaxRecord = protocol.MaxProcessMembers*(protocol.MaxProcessKey+MaxIdentity+protocol.MaxProcessData+80) + MaxHistory*(protocol.MaxProcessText+96) + MaxFormer*32 + protocol.MaxProcessResult + 1<<10

const _ = uint(1<<20 - MaxRecord)

// Append appends the record of the process: its whole state, in the one form that it has. Numbers
// are uvarints, byte strings have their length before them.
func (p *Process) Append(b []byte) []byte {
	o := &p.options
	b = append(b, byte(o.Election))
	b = appendNumbers(b, o.Debounce, o.RoundTimeout, o.BackoffMin, o.BackoffMax, o.Return)
	b = appendNumbers(b, p.joinOrder, p.counter, p.topology, p.attempt, p.start, p.idle)
	b = append(b, byte(p.phase))
	b = appendBool(b, p.pending)

	r := &p.round
	b = appendNumbers(b, r.epoch, r.topology, r.coordinator, r.session, r.attempt, r.size, r.started, r.wall, r.prepared, r.decided, r.deadline)
	b = appendText(b, r.result)

	t := &p.counters
	b = appendNumbers(b, t.Changes, t.Started, t.Completed, t.Cancelled, t.Failed, t.Returned, t.Stale)

	b = appendNumbers(b, uint64(len(p.members)))
	for _, m := range p.members {
		b = appendNumbers(b, m.session, m.order, m.token, uint64(m.weight), m.joined, m.until, m.completedEpoch)
		b = append(b, byte(m.status))
		b = appendBool(b, m.absent)
		b = appendText(b, m.key)
		b = appendText(b, m.identity)
		b = appendText(b, m.data)
	}
	b = appendNumbers(b, uint64(len(p.formerMembers)))
	for i := range p.formerMembers {
		f := &p.formerMembers[i]
		b = append(appendNumbers(b, f.session, f.completedEpoch, f.until), byte(f.removal))
	}
	b = appendNumbers(b, uint64(len(p.history)))
	for i := range p.history {
		e := &p.history[i]
		b = appendNumbers(b, e.Epoch, e.Topology, e.Coordinator, e.Size, e.Attempt, e.Wall, e.Prepared, e.Decided, e.Duration)
		b = append(b, byte(e.Outcome))
		b = appendText(b, e.Text)
	}
	return b
}

// Digest is a hash of the record: equal for equal states.
func (p *Process) Digest() uint64 {
	h := fnv.New64a()
	h.Write(p.Append(nil))
	return h.Sum64()
}

func appendNumbers(b []byte, list ...uint64) []byte {
	for _, v := range list {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// reader takes a record apart. After the first fault everything is zero.
type reader struct {
	b      []byte
	broken bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.b, r.broken = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) numbers(list ...*uint64) {
	for _, v := range list {
		*v = r.number()
	}
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.broken = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool { return r.byte() == 1 }

// bytes is a byte string of at most that length, copied, or nil if it is empty.
func (r *reader) bytes(most int) []byte {
	n := r.number()
	if n > uint64(len(r.b)) || n > uint64(most) {
		r.b, r.broken = nil, true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	if n == 0 {
		return nil
	}
	return bytes.Clone(v)
}

func (r *reader) count(most int) int {
	n := r.number()
	if n > uint64(most) || n > uint64(len(r.b)) {
		r.b, r.broken = nil, true
		return 0
	}
	return int(n)
}

// Decode makes a process from its record. Whatever the bytes are, what comes out is a state that
// keeps the invariants and has exactly this record, or an error.
func Decode(b []byte) (*Process, error) {
	broken := func() error { return protocol.Errorf(protocol.StatusBadRequest, "record of a process cannot be read") }
	if len(b) > MaxRecord {
		return nil, broken()
	}
	p, x := new(Process), &reader{b: b}
	o := &p.options
	o.Election = protocol.ProcessElection(x.byte())
	x.numbers(&o.Debounce, &o.RoundTimeout, &o.BackoffMin, &o.BackoffMax, &o.Return)
	x.numbers(&p.joinOrder, &p.counter, &p.topology, &p.attempt, &p.start, &p.idle)
	p.phase = protocol.ProcessPhase(x.byte())
	p.pending = x.bool()

	r := &p.round
	x.numbers(&r.epoch, &r.topology, &r.coordinator, &r.session, &r.attempt, &r.size, &r.started, &r.wall, &r.prepared, &r.decided, &r.deadline)
	r.result = x.bytes(protocol.MaxProcessResult)

	t := &p.counters
	x.numbers(&t.Changes, &t.Started, &t.Completed, &t.Cancelled, &t.Failed, &t.Returned, &t.Stale)

	for range x.count(protocol.MaxProcessMembers) {
		m := new(member)
		var weight uint64
		x.numbers(&m.session, &m.order, &m.token, &weight, &m.joined, &m.until, &m.completedEpoch)
		if weight > math.MaxUint32 {
			return nil, broken()
		}
		m.weight = uint32(weight)
		m.status = protocol.ProcessMemberStatus(x.byte())
		m.absent = x.bool()
		m.key, m.identity, m.data = string(x.bytes(protocol.MaxProcessKey)), string(x.bytes(MaxIdentity)), x.bytes(protocol.MaxProcessData)
		p.members = append(p.members, m)
	}
	for range x.count(MaxFormer) {
		var f formerMember
		x.numbers(&f.session, &f.completedEpoch, &f.until)
		f.removal = protocol.ProcessRemoval(x.byte())
		p.formerMembers = append(p.formerMembers, f)
	}
	for range x.count(MaxHistory) {
		var e protocol.ProcessHistoryRound
		x.numbers(&e.Epoch, &e.Topology, &e.Coordinator, &e.Size, &e.Attempt, &e.Wall, &e.Prepared, &e.Decided, &e.Duration)
		e.Outcome = protocol.ProcessOutcome(x.byte())
		e.Text = string(x.bytes(protocol.MaxProcessText))
		p.history = append(p.history, e)
	}
	if x.broken || len(x.b) > 0 || !bytes.Equal(p.Append(nil), b) {
		return nil, broken()
	}
	if err := p.Check(); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "record of a process contradicts itself: %v", err)
	}
	return p, nil
}
