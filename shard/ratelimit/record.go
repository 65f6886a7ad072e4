package ratelimit

import (
	"bytes"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

var errMalformed = protocol.Errorf(protocol.StatusBadRequest, "the record of a rate limit is malformed")

// Append appends the whole state: the same bytes for the same state. The number of
// their format is the shard's.
func (t *Tree) Append(b []byte) []byte {
	list := make([]participant, 0, len(t.participants))
	for _, id := range t.Sessions() {
		list = append(list, *t.participants[id])
	}
	return varint.Encode(b, func(f *varint.Fields) { t.fields(f, &list) })
}

func (t *Tree) fields(f *varint.Fields, participants *[]participant) {
	f.Uint(&t.clock, &t.revision, &t.lastLeft, &t.formerLease, &t.formerUntil)
	varint.List(f, &t.resources, MaxResources, func(r *resource, f *varint.Fields) {
		f.Text(&r.path, protocol.MaxLimitPath)
		f.Uint(&r.revision, &r.created, &r.refill)
		f.Bool(&r.again)
		configFields(&r.config, f)
	})
	varint.List(f, &t.deleted, MaxResources, func(d *deletedPath, f *varint.Fields) {
		f.Text(&d.path, protocol.MaxLimitPath)
		f.Uint(&d.from, &d.refill)
	})
	varint.List(f, participants, MaxParticipants,
		func(p *participant, f *varint.Fields) { f.Uint(&p.session, &p.epoch, &p.joined) })
}

func configFields(c *protocol.LimitConfig, f *varint.Fields) {
	f.Uint(&c.Rate, &c.Burst)
	f.Bool(&c.Unlimited)
	f.Uint32(&c.Weight)
	f.Uint(&c.Min, &c.Lease)
	f.Bool(&c.Shadow)
	f.Uint(&c.Floor)
	f.Text(&c.Foreign, protocol.MaxForeignLen)
}

// Decode reads what Append wrote, and nothing else.
func Decode(b []byte) (*Tree, error) {
	r := varint.Reader{Rest: b}
	t := &Tree{participants: map[uint64]*participant{}}
	var list []participant
	varint.Decode(&r, func(f *varint.Fields) { t.fields(f, &list) })
	if !r.Done() {
		return nil, errMalformed
	}
	for i := range list {
		t.participants[list[i].session] = &list[i]
	}
	for i := range t.resources {
		t.textBytes += t.resources[i].textBytes()
	}
	for i := range t.deleted {
		t.textBytes += uint64(len(t.deleted[i].path))
	}
	t.findForgetAt()
	if t.Check() != nil || !bytes.Equal(t.Append(nil), b) {
		return nil, errMalformed
	}
	return t, nil
}

// Check looks for states that no calls lead to. Decode refuses them.
func (t *Tree) Check() error {
	if t.clock == 0 || t.clock > maxTime || t.revision == 0 || t.lastLeft > t.clock ||
		t.formerLease > protocol.MaxLimitLease || t.formerUntil > t.clock+protocol.MaxLimitLease {
		return errors.New("ratelimit: a field of the tree is out of range")
	}
	if t.Deleted() && len(t.participants) > 0 {
		return errors.New("ratelimit: a deleted tree has participants")
	}
	mins := map[string]uint64{} // the children's, by parent
	for i := range t.resources {
		r := &t.resources[i]
		parent := parentPath(r.path)
		_, known := mins[parent]
		switch {
		case i == 0 && parent != "", i > 0 && (t.resources[i-1].path >= r.path || !known):
			return errors.New("ratelimit: resources are out of order, or have no parent")
		case protocol.ValidateLimitPath([]byte(r.path)) != nil || r.config.Validate() != nil,
			r.revision == 0 || r.revision > t.revision, r.created == 0 || r.created > t.clock, r.refill > protocol.MaxLimitBurst,
			i == 0 && r.config.Unlimited, i > 0 && r.config.Lease != 0:
			return errors.New("ratelimit: a field of a resource is out of range")
		}
		mins[r.path] = 0
		if i > 0 {
			mins[parent] += r.config.Min
		}
	}
	for i := range t.resources {
		if r := &t.resources[i]; mins[r.path] > guaranteed(r.path, &r.config) {
			return errors.New("ratelimit: children have higher guarantees than their parent")
		}
	}
	for i := range t.deleted {
		d := &t.deleted[i]
		_, exists := t.find(d.path)
		if protocol.ValidateLimitPath([]byte(d.path)) != nil || i > 0 && t.deleted[i-1].path >= d.path || exists ||
			!t.Deleted() && protocol.LimitRoot(d.path) != t.Root() ||
			d.from > t.clock+protocol.MaxLimitLease || d.refill > protocol.MaxLimitBurst {
			return errors.New("ratelimit: a deleted path is out of range or order")
		}
	}
	for _, p := range t.participants {
		if p.session == 0 || p.joined == 0 || p.joined > t.clock {
			return errors.New("ratelimit: a field of a participant is out of range")
		}
	}
	return nil
}
