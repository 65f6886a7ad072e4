package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// InstanceDrain decides that an instance hands its leaderships and votes to others, as far as
// others can take them, and stays Online; or that it may have some again. Its next start ends the
// drain. NOT_FOUND: no such instance; PRECONDITION_FAILED: it is expelled.
type InstanceDrain struct {
	Instance uint64
	Drained  bool
}

func (*InstanceDrain) kind() Kind { return KindInstanceDrain }

func (c *InstanceDrain) fields(f *varint.Fields) {
	f.Uint(&c.Instance)
	f.Bool(&c.Drained)
}

func (c *InstanceDrain) apply(s *State) Result {
	i, res := s.requireInstance(c.Instance)
	switch {
	case res.Status != protocol.StatusOK:
		return res
	case i.Expelled():
		return refuse(protocol.StatusPreconditionFailed, "cannot drain expelled instance `%s`", i.Name)
	case i.Drained == c.Drained:
		return Result{Revision: unchanged, Instance: i.ID}
	}
	i.Drained = c.Drained
	s.putInstance(i, s.revision)
	return Result{Instance: i.ID}
}
