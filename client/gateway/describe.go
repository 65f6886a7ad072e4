package gateway

import (
	"context"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// DescribeRequest is one description of a semaphore.
type DescribeRequest struct {
	Name    string
	Owners  bool      // include them
	Waiters bool      // include them
	Strict  bool      // it shows every change that was acknowledged before; otherwise the node decides
	Watch   WatchMask // arm the session's one-shot watch of the semaphore; 0: leave it as it is
	// MaxBytes bounds the description, about, or it fails with ErrPreconditionFailed; 0: any
	// length.
	MaxBytes int
	// Progress, if not nil, is called with the length of the description so far, about, whenever a
	// part of it was read. It falls if the description is read again from the start.
	Progress func(bytes int)
}

// WatchMask selects what a one-shot watch looks for.
type WatchMask uint8

const (
	OnData   WatchMask = WatchMask(protocol.WatchData)   // other bytes; deletion
	OnOwners WatchMask = WatchMask(protocol.WatchOwners) // an owner more or less, a count lowered, an owner's data; deletion
)

// WatchResult is how a one-shot watch ended. If both are false, a change may have been missed,
// because the connection was lost, another watch replaced this one, or the shard's leader changed:
// describe the semaphore again.
type WatchResult struct {
	DataChanged   bool
	OwnersChanged bool
}

// Describe reads a semaphore at its shard's leader, and arms a one-shot watch in the same step.
// fired gets exactly one value: when what is watched changes, or when a change may have been missed.
// It is nil without a watch. A session has one such watch for a semaphore: a newer one ends the
// older. Programs that follow a semaphore use [client.Node.Watch]. Errors: ErrNotFound.
func Describe(ctx context.Context, s *client.Session, r DescribeRequest) (sem *client.Semaphore, fired <-chan WatchResult, err error) {
	if r.Name == "" {
		return nil, nil, driver.WithOp("describe", r.Name, handle.ErrNoSemaphore)
	}
	d := description{s: access.Session(s), want: &r}
	d.msg = protocol.Describe{Session: s.ID(), Node: d.s.ID, Name: []byte(r.Name), Flags: uint8(r.Watch)}
	if r.Owners {
		d.msg.Flags |= protocol.WithOwners
	}
	if r.Waiters {
		d.msg.Flags |= protocol.WithWaiters
	}
	sem, err = access.DescribePages(handle.Description{
		Request: &d.msg, Read: func(reply *protocol.DescribeReply) error { return d.read(ctx, reply) },
	})
	switch {
	case d.shot == nil:
	case err != nil:
		d.s.Driver.Disarm(&d.shot.OneShot) // nobody waits for it
	default:
		fired = d.shot.ch
	}
	return sem, fired, driver.WithOp("describe", r.Name, err)
}

// description is a Describe under way.
type description struct {
	s    handle.Session
	want *DescribeRequest
	msg  protocol.Describe
	shot *oneShot // that the first page arms; nil: none
	size int
}

// read reads the page at the message's cursor.
func (d *description) read(ctx context.Context, reply *protocol.DescribeReply) error {
	asked := protocol.ConsistencyDefault
	if d.want.Strict {
		asked = protocol.Strict
	}
	x := &core.Call{
		Kind: protocol.KindDescribe, Msg: &d.msg, Reply: reply, Session: &d.s.Session.Session, To: d.s.At(d.want.Name),
		Read: d.s.Read(asked, &d.msg.Consistency, &d.msg.MinIndex, &reply.Index),
	}
	x.Read.AtLeader = true
	first := len(d.msg.Cursor) == 0
	if first && d.msg.Flags&uint8(OnData|OnOwners) != 0 {
		d.shot = newOneShot()
		x.OneShot = &d.shot.OneShot
	}
	if err := driver.Err(d.s.Driver.Call(ctx, x)); err != nil {
		return err
	}
	if first {
		d.size = 0 // it is read from the start
	}
	d.size += pageBytes(reply)
	if d.want.Progress != nil {
		d.want.Progress(d.size)
	}
	if d.want.MaxBytes > 0 && d.size > d.want.MaxBytes {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"the description is longer than %d bytes; describe the semaphore without its owners and waiters", d.want.MaxBytes)
	}
	return nil
}

// pageBytes is about how long a page is: its data, and 40 bytes for the numbers of an entry.
func pageBytes(r *protocol.DescribeReply) int {
	const entry = 40
	n := len(r.Name) + len(r.Data)
	for i := range r.Owners {
		n += entry + len(r.Owners[i].Data)
	}
	for i := range r.Waiters {
		n += entry + len(r.Waiters[i].Data)
	}
	return n
}

// oneShot is a one-shot watch until it fires.
type oneShot struct {
	core.OneShot
	ch chan WatchResult // capacity 1
}

func newOneShot() *oneShot {
	o := &oneShot{ch: make(chan WatchResult, 1)}
	o.Waiter = o
	return o
}

// Done implements core.Waiter: the watch has fired.
func (o *oneShot) Done() {
	o.ch <- WatchResult{DataChanged: o.DataChanged, OwnersChanged: o.OwnersChanged}
}
