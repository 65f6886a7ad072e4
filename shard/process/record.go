package process

import (
	"bytes"
	"hash/fnv"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
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
	b = varint.Append(b, o.Debounce, o.RoundTimeout, o.BackoffMin, o.BackoffMax, o.Return)
	b = varint.Append(b, p.joinOrder, p.counter, p.topology, p.attempt, p.start, p.idle)
	b = append(b, byte(p.phase))
	b = varint.AppendBool(b, p.pending)

	r := &p.round
	b = varint.Append(b, r.epoch, r.topology, r.coordinator, r.session, r.attempt, r.size, r.started, r.wall, r.prepared, r.decided, r.deadline)
	b = varint.AppendBytes(b, r.result)

	t := &p.counters
	b = varint.Append(b, t.Changes, t.Started, t.Completed, t.Cancelled, t.Failed, t.Returned, t.Stale)

	b = varint.Append(b, uint64(len(p.members)))
	for _, m := range p.members {
		b = varint.Append(b, m.session, m.order, m.token, uint64(m.weight), m.joined, m.until, m.completedEpoch)
		b = append(b, byte(m.status))
		b = varint.AppendBool(b, m.absent)
		b = varint.AppendBytes(b, m.key)
		b = varint.AppendBytes(b, m.identity)
		b = varint.AppendBytes(b, m.data)
	}
	b = varint.Append(b, uint64(len(p.formerMembers)))
	for i := range p.formerMembers {
		f := &p.formerMembers[i]
		b = append(varint.Append(b, f.session, f.completedEpoch, f.until), byte(f.removal))
	}
	b = varint.Append(b, uint64(len(p.history)))
	for i := range p.history {
		e := &p.history[i]
		b = varint.Append(b, e.Epoch, e.Topology, e.Coordinator, e.Size, e.Attempt, e.Wall, e.Prepared, e.Decided, e.Duration)
		b = append(b, byte(e.Outcome))
		b = varint.AppendBytes(b, e.Text)
	}
	return b
}

// Digest is a hash of the record: equal for equal states.
func (p *Process) Digest() uint64 {
	h := fnv.New64a()
	h.Write(p.Append(nil))
	return h.Sum64()
}

// Decode makes a process from its record. Whatever the bytes are, what comes out is a state that
// keeps the invariants and has exactly this record, or an error.
func Decode(b []byte) (*Process, error) {
	broken := func() error { return protocol.Errorf(protocol.StatusBadRequest, "record of a process cannot be read") }
	if len(b) > MaxRecord {
		return nil, broken()
	}
	p, x := new(Process), &varint.Reader{Rest: b}
	o := &p.options
	o.Election = protocol.ProcessElection(x.Byte())
	x.Uints(&o.Debounce, &o.RoundTimeout, &o.BackoffMin, &o.BackoffMax, &o.Return)
	x.Uints(&p.joinOrder, &p.counter, &p.topology, &p.attempt, &p.start, &p.idle)
	p.phase = protocol.ProcessPhase(x.Byte())
	p.pending = x.Bool()

	r := &p.round
	x.Uints(&r.epoch, &r.topology, &r.coordinator, &r.session, &r.attempt, &r.size, &r.started, &r.wall, &r.prepared, &r.decided, &r.deadline)
	r.result = x.Copy(protocol.MaxProcessResult)

	t := &p.counters
	x.Uints(&t.Changes, &t.Started, &t.Completed, &t.Cancelled, &t.Failed, &t.Returned, &t.Stale)

	for range x.Count(protocol.MaxProcessMembers) {
		m := new(member)
		var weight uint64
		x.Uints(&m.session, &m.order, &m.token, &weight, &m.joined, &m.until, &m.completedEpoch)
		if weight > math.MaxUint32 {
			return nil, broken()
		}
		m.weight = uint32(weight)
		m.status = protocol.ProcessMemberStatus(x.Byte())
		m.absent = x.Bool()
		m.key, m.identity, m.data = string(x.Bytes(protocol.MaxProcessKey)), string(x.Bytes(MaxIdentity)), x.Copy(protocol.MaxProcessData)
		p.members = append(p.members, m)
	}
	for range x.Count(MaxFormer) {
		var f formerMember
		x.Uints(&f.session, &f.completedEpoch, &f.until)
		f.removal = protocol.ProcessRemoval(x.Byte())
		p.formerMembers = append(p.formerMembers, f)
	}
	for range x.Count(MaxHistory) {
		var e protocol.ProcessHistoryRound
		x.Uints(&e.Epoch, &e.Topology, &e.Coordinator, &e.Size, &e.Attempt, &e.Wall, &e.Prepared, &e.Decided, &e.Duration)
		e.Outcome = protocol.ProcessOutcome(x.Byte())
		e.Text = string(x.Bytes(protocol.MaxProcessText))
		p.history = append(p.history, e)
	}
	if x.Failed || len(x.Rest) > 0 || !bytes.Equal(p.Append(nil), b) {
		return nil, broken()
	}
	if err := p.Check(); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "record of a process contradicts itself: %v", err)
	}
	return p, nil
}
