package client

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Package gateway keeps sessions for clients of another protocol. Programs of this SDK have no use
// for keys, epochs and requests without leases, and cannot call these methods.

// SessionWithKey is for the packages below this one: it starts a session with a key.
func (n *Node) SessionWithKey(_ handle.Key, ctx context.Context, key []byte, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	s := n.c.newSessionOn(n, o)
	copy(s.d.Key[:], key)
	if r := s.d.Start(ctx); r.Err != nil {
		err := withOp("start session on", n.path, driver.Err(r))
		s.d.Drop(err)
		return nil, err
	}
	return s, nil
}

// AttachSession is for the packages below this one: it takes a session over under an epoch and from a
// request number on, both above all that its holder before can have used. A connection on which it
// was given up stays open: the caller tries again until it is answered.
func (n *Node) AttachSession(_ handle.Key, ctx context.Context, t handle.Takeover, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	switch {
	case err != nil:
	case len(t.Key) != protocol.KeyLen:
		err = fmt.Errorf("the key is %d bytes long; it must be %d", len(t.Key), protocol.KeyLen)
	default:
		err = n.c.checkSessionID(ctx, t.Session)
	}
	if err != nil {
		return nil, withSession("attach", t.Session, err)
	}
	s := n.c.newSessionOn(n, o)
	copy(s.d.Key[:], t.Key)
	r := s.d.Restore(ctx, driver.Takeover{Session: t.Session, Epoch: t.Epoch, FirstNumber: t.FirstNumber, Keep: true})
	if r.Err != nil {
		err := withSession("attach", t.Session, driver.Err(r))
		s.d.Drop(err)
		return nil, err
	}
	return s, nil
}

// AcquireEntry is for the packages below this one: it is one acquire from its first sending to its
// outcome, without a lease. If ctx ends first, the entry stays as it is at the server.
func (s *Session) AcquireEntry(_ handle.Key, ctx context.Context, req handle.Entry, accepted func()) (acquired bool, err error) {
	if req.Name == "" {
		return false, withOp("acquire", req.Name, errNoName)
	}
	o := driver.AcquireOptions{Count: req.Count, Timeout: req.Timeout, Data: req.Data, Ephemeral: req.Ephemeral, Turn: core.Next}
	if accepted != nil {
		o.OnAccepted = func(uint64) { accepted() }
	}
	r := s.d.Acquire(ctx, req.Name, o, nil, nil)
	if r.Answered && r.Err == ErrNotAcquired {
		return false, nil
	}
	return r.Err == nil, withOp("acquire", req.Name, driver.Err(r))
}

// DescribeOnce is for the packages below this one: see describeOnce.
func (s *Session) DescribeOnce(
	_ handle.Key, ctx context.Context, name string, flags uint8, limit func(size int) error,
) (*Semaphore, <-chan WatchResult, error) {
	sem, fired, err := s.describeOnce(ctx, name, flags, readOptions{}, limit)
	return sem, fired, withOp("describe", name, err)
}

// ListLimits is for the packages below this one: what read options mean for a list by name.
func ListLimits(_ handle.Key, opts []ReadOption) handle.ListLimits {
	o := readOptionsOf(opts)
	return o.limits([]byte(o.after))
}
