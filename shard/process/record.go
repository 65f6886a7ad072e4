package process

import (
	"bytes"
	"hash/fnv"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// MaxRecord is the most that a record can be long, in bytes, or a little more. It is below a
// mebibyte, the largest data of a semaphore, so that a process fits where one fits: in a snapshot's
// step, in a chunk of an export; and so does an event with all members in a frame.
const MaxRecord = protocol.MaxProcessMembers*(protocol.MaxProcessKey+MaxIdentity+protocol.MaxProcessData+80) +
	MaxHistory*(protocol.MaxProcessText+96) + MaxFormer*32 + protocol.MaxProcessResult + 1<<10

const _ = uint(1<<20 - MaxRecord)

// Append appends the record of the process: its whole state, in the one form that it has.
func (p *Process) Append(b []byte) []byte { return varint.Encode(b, p.fields) }

func (p *Process) fields(f *varint.Fields) {
	o := &p.options
	varint.Byte(f, &o.Election)
	f.Uint(&o.Debounce, &o.RoundTimeout, &o.BackoffMin, &o.BackoffMax, &o.Return)
	f.Uint(&p.joinOrder, &p.counter, &p.topology, &p.attempt, &p.start, &p.idle)
	varint.Byte(f, &p.phase)
	f.Bool(&p.pending)

	r := &p.round
	f.Uint(&r.epoch, &r.topology, &r.coordinator, &r.session, &r.attempt, &r.size, &r.started, &r.wall)
	f.Uint(&r.prepared, &r.decided, &r.deadline)
	f.Bytes(&r.result, protocol.MaxProcessResult)

	t := &p.counters
	f.Uint(&t.Changes, &t.Started, &t.Completed, &t.Cancelled, &t.Failed, &t.Returned, &t.Stale)

	varint.List(f, &p.members, protocol.MaxProcessMembers, func(m **member, f *varint.Fields) {
		if f.Reading() {
			*m = new(member)
		}
		(*m).fields(f)
	})
	varint.List(f, &p.formerMembers, MaxFormer, func(m *formerMember, f *varint.Fields) {
		f.Uint(&m.session, &m.completedEpoch, &m.until)
		varint.Byte(f, &m.removal)
	})
	varint.List(f, &p.history, MaxHistory, func(e *protocol.ProcessHistoryRound, f *varint.Fields) {
		f.Uint(&e.Epoch, &e.Topology, &e.Coordinator, &e.Size, &e.Attempt,
			&e.Wall, &e.Prepared, &e.Decided, &e.Duration)
		varint.Byte(f, &e.Outcome)
		f.Text(&e.Text, protocol.MaxProcessText)
	})
}

func (m *member) fields(f *varint.Fields) {
	f.Uint(&m.session, &m.order, &m.token)
	f.Uint32(&m.weight)
	f.Uint(&m.joined, &m.until, &m.completedEpoch)
	varint.Byte(f, &m.status)
	f.Bool(&m.absent)
	f.Text(&m.key, protocol.MaxProcessKey)
	f.Text(&m.identity, MaxIdentity)
	f.Bytes(&m.data, protocol.MaxProcessData)
}

// Digest is a hash of the record: equal for equal states.
func (p *Process) Digest() uint64 {
	h := fnv.New64a()
	h.Write(p.Append(nil))
	return h.Sum64()
}

// Decode makes a process from its record. For any bytes, the result is a state that keeps the
// invariants and has exactly this record, or an error.
func Decode(b []byte) (*Process, error) {
	p, r := new(Process), varint.Reader{Rest: b}
	if len(b) <= MaxRecord {
		varint.Decode(&r, p.fields)
	}
	if !r.Done() || !bytes.Equal(p.Append(nil), b) {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "record of a process cannot be read")
	}
	if err := p.Check(); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "record of a process contradicts itself: %v", err)
	}
	return p, nil
}

// Check returns an invariant that does not hold, or nil. Decode relies on it: a process that passes
// is safe to go on with.
func (p *Process) Check() error { return check(p) }
