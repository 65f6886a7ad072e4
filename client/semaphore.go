package client

import (
	"context"

	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Create makes a persistent semaphore with a limit of 1 .. Max units and data of at most 1 MiB. It is
// a plain one without a SemaphoreConfig. Errors: ErrAlreadyExists, also if it is identical;
// ErrPreconditionFailed when an ephemeral semaphore has the name; ErrBadRequest.
func (s *Session) Create(ctx context.Context, name string, limit uint64, data []byte, opts ...SemaphoreOption) error {
	_, err := s.create(ctx, name, limit, data, opts...)
	return withOp("create", name, err)
}

func (s *Session) create(
	ctx context.Context, name string, limit uint64, data []byte, opts ...SemaphoreOption,
) (version uint64, err error) {
	req := &createRequest{protocol.Create{Name: []byte(name), Limit: limit, Data: data}}
	for _, o := range opts {
		if err := o.create(req); err != nil {
			return 0, err
		}
	}
	var reply protocol.UpdateReply
	err = s.changeSemaphore(ctx, protocol.KindCreate, name, &req.Head, &req.Create, &reply)
	return reply.Version, err
}

// changeSemaphore sends a numbered request about a semaphore.
func (s *Session) changeSemaphore(
	ctx context.Context, kind protocol.Kind, name string, head *protocol.Head, m, reply protocol.Message,
) error {
	if name == "" {
		return handle.ErrNoSemaphore
	}
	return driver.Outcome(s.c.d.Call(ctx, &core.Call{
		Kind: kind, Msg: m, Head: head, Reply: reply, Session: &s.d.Session, To: s.node.h.At(name),
	}))
}

// WriteOption is an option of Session.Update, Resize and Delete, and of ConfigValue.Set, Rollback
// and Delete.
type WriteOption interface{ write(*writeOptions) }

type writeOption func(*writeOptions)

func (f writeOption) write(o *writeOptions) { f(o) }

type writeOptions struct {
	guarded bool
	version uint64
	reason  string
}

func writeOptionsOf(opts []WriteOption) (o writeOptions) {
	for _, x := range opts {
		x.write(&o)
	}
	return o
}

// writeToExisting returns the options of a write to a semaphore that must exist. It refuses version
// 0.
func writeToExisting(opts []WriteOption) (o writeOptions, err error) {
	if o = writeOptionsOf(opts); o.guarded && o.version == 0 {
		err = protocol.Errorf(protocol.StatusPreconditionFailed,
			"version 0 matches nothing that exists; give a version of at least 1")
	}
	return o, err
}

// IfVersion makes a write a compare-and-set: what is written must have this version, or with 0 must
// not exist yet. Otherwise the write fails with ErrPreconditionFailed. A resize does not change the
// version, which is that of the data. A version of a name never repeats, also when it is deleted and
// created again, or restored from a backup.
func IfVersion(version uint64) WriteOption {
	return writeOption(func(o *writeOptions) { o.guarded, o.version = true, version })
}

// ReasonOption goes with every function that takes a WriteOption or a SemaphoreOption, and with
// Session.Alter, Drain and Undrain.
type ReasonOption interface {
	WriteOption
	SemaphoreOption
}

// Reason says why something is changed, in at most 1,024 bytes of UTF-8. It is written to the audit
// log, which has a line of each resize and alter, of each change of a configuration, and of
// creates, updates and deletes of semaphores only with a reason. A configuration's history keeps
// its first 256 bytes.
func Reason(text string) ReasonOption { return reasonOption(text) }

type reasonOption string

func (r reasonOption) write(o *writeOptions) { o.reason = string(r) }

func (r reasonOption) create(m *createRequest) error {
	m.Reason = string(r)
	return nil
}

// Update replaces a semaphore's data and returns its version. Nobody needs to hold the semaphore.
// Writing the same bytes changes nothing. IfVersion(0) always fails: a semaphore that exists has at
// least version 1. Errors: ErrNotFound, ErrPreconditionFailed, ErrBadRequest.
func (s *Session) Update(
	ctx context.Context, name string, data []byte, opts ...WriteOption,
) (version uint64, err error) {
	version, err = s.update(ctx, name, data, opts...)
	return version, withOp("update", name, err)
}

func (s *Session) update(
	ctx context.Context, name string, data []byte, opts ...WriteOption,
) (version uint64, err error) {
	o, err := writeToExisting(opts)
	if err != nil {
		return 0, err
	}
	req := &protocol.Update{Name: []byte(name), Data: data, Expected: o.version, Reason: o.reason}
	var reply protocol.UpdateReply
	err = s.changeSemaphore(ctx, protocol.KindUpdate, name, &req.Head, req, &reply)
	return reply.Version, err
}

// Resize changes a semaphore's limit, 1 .. Max. A limit below the units held takes nothing away:
// owners and waiters keep what they have, and may still change their data or reduce their count.
// Nothing is granted until it fits again. Errors: ErrNotFound; ErrPreconditionFailed for an
// ephemeral semaphore.
func (s *Session) Resize(ctx context.Context, name string, limit uint64, opts ...WriteOption) error {
	o, err := writeToExisting(opts)
	if err != nil {
		return withOp("resize", name, err)
	}
	req := &protocol.Resize{Name: []byte(name), Limit: limit, Reason: o.reason, Expected: o.version}
	return withOp("resize", name, s.changeSemaphore(ctx, protocol.KindResize, name, &req.Head, req, &protocol.Empty{}))
}

// Alter reads a semaphore's configuration, has change change it, and writes the fields that differ
// then; if none does, it writes nothing. Others may change other fields meanwhile. Of those who change
// the same one, the last one counts, with all of its list; policy, aging and weights are one field
// here. change gets no slots of a semaphore whose slots are numbered. Owners keep what they have;
// waiters keep their places. It needs the right admin. Errors: ErrNotFound; ErrPreconditionFailed for
// an ephemeral semaphore, while slots that are added or removed are in use, and with more than 10,000
// waiters; ErrBadRequest.
func (s *Session) Alter(
	ctx context.Context, name string, change func(*SemaphoreConfig), opts ...ReasonOption,
) error {
	ctx, end := contexts.Both(s.d.Context(), ctx)
	defer end()
	sem, err := s.node.describe(ctx, name, IncludeSlots(), ReadConsistency(Strict))
	switch {
	case s.d.Err() != nil:
		return withOp("alter", name, s.d.Err())
	case err != nil:
		return withOp("alter", name, err)
	case sem.Ephemeral:
		return withOp("alter", name, errAlterEphemeral)
	}
	c := sem.Config
	if c == nil {
		c = new(SemaphoreConfig)
	}
	if c.Numbered {
		c.Slots = nil
	}
	if c.Weights == nil {
		c.Weights = make(map[string]uint64)
	}
	was, _ := c.wire()
	change(c)
	now, err := c.wire()
	fields := changed(was, now)
	if err != nil || fields == 0 {
		return withOp("alter", name, err)
	}
	if fields&protocol.AlterSlots == 0 { // the list may be long
		now.Slots, now.Numbered = nil, false
	}
	return s.alter(ctx, "alter", &protocol.Alter{Name: []byte(name), Fields: fields, Options: *now}, opts)
}

func (s *Session) alter(ctx context.Context, op string, req *protocol.Alter, opts []ReasonOption) error {
	for _, o := range opts {
		var w writeOptions
		o.write(&w)
		req.Reason = w.reason
	}
	name := string(req.Name)
	return withOp(op, name, s.changeSemaphore(ctx, protocol.KindAlter, name, &req.Head, req, &protocol.Empty{}))
}

// Drain stops grants of slots. An owner keeps a slot until it gives it back. It needs the right admin.
// Errors: ErrNotFound, also of a slot.
func (s *Session) Drain(ctx context.Context, name string, slots []string, opts ...ReasonOption) error {
	return s.alter(ctx, "drain", &protocol.Alter{Name: []byte(name), Drain: slots}, opts)
}

// Undrain lets drained slots be granted again, as Drain stopped them.
func (s *Session) Undrain(ctx context.Context, name string, slots []string, opts ...ReasonOption) error {
	return s.alter(ctx, "undrain", &protocol.Alter{Name: []byte(name), Undrain: slots}, opts)
}

// Delete removes a persistent semaphore. With owners or waiters it needs force, else it fails with
// ErrPreconditionFailed; by force, waiters get ErrAborted and owners lose their leases. Errors:
// ErrNotFound; ErrPreconditionFailed for an ephemeral semaphore, also with force.
func (s *Session) Delete(ctx context.Context, name string, force bool, opts ...WriteOption) error {
	return withOp("delete", name, s.delete(ctx, name, force, opts))
}

func (s *Session) delete(ctx context.Context, name string, force bool, opts []WriteOption) error {
	o, err := writeToExisting(opts)
	if err != nil {
		return err
	}
	req := &protocol.Delete{Name: []byte(name), Force: force, Reason: o.reason, Expected: o.version}
	return s.changeSemaphore(ctx, protocol.KindDelete, name, &req.Head, req, &protocol.Empty{})
}

// Release gives back what the session has at a semaphore, without a lease: what a restored session
// held before, for example. released is false when there was nothing. A lease of this session on
// the semaphore ends as released.
func (s *Session) Release(ctx context.Context, name string) (released bool, err error) {
	if name == "" {
		return false, withOp("release", name, handle.ErrNoSemaphore)
	}
	released, _, r := s.d.ReleaseName(ctx, name, 0)
	err = releaseOutcome(ctx, s, r)
	return err == nil && released, withOp("release", name, err)
}
