package client

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Package gateway keeps sessions for clients of another protocol. Programs of this SDK have no use
// for keys, epochs and requests without leases.
func init() {
	rpc.StartSession = func(ctx context.Context, n any, key []byte, opts any) (any, error) {
		o, err := sessionOptionsOf(opts.([]SessionOption))
		if err != nil {
			return nil, err
		}
		return startSession(ctx, n.(*Node), key, o)
	}
	rpc.AttachSession = func(ctx context.Context, n any, id uint64, key []byte, epoch, firstNumber uint64, opts any) (any, error) {
		s, err := attachSession(ctx, n.(*Node), id, key, epoch, firstNumber, opts.([]SessionOption))
		if err != nil {
			return nil, withSession("attach", id, err)
		}
		return s, nil
	}
	rpc.Acquire = func(ctx context.Context, s any, req *protocol.Acquire, accepted func()) (bool, error) {
		acquired, err := acquireEntry(ctx, s.(*Session), req, accepted)
		return acquired, withOp("acquire", string(req.Name), err)
	}
	rpc.DescribeOnce = func(ctx context.Context, s any, name string, flags uint8, limit func(int) error) (any, any, error) {
		sem, fired, err := s.(*Session).describeOnce(ctx, name, flags, readOptions{}, limit)
		return sem, fired, withOp("describe", name, err)
	}
}

// attachSession takes over a session under an epoch and from a request number on, both above all
// that its holder before can have used. A connection on which it was given up stays open: the
// caller tries again until it is answered.
func attachSession(ctx context.Context, n *Node, id uint64, key []byte, epoch, firstNumber uint64, opts []SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	if len(key) != protocol.KeyLen {
		return nil, fmt.Errorf("the key is %d bytes long; it must be %d", len(key), protocol.KeyLen)
	}
	if err := n.c.checkSessionID(ctx, id); err != nil {
		return nil, err
	}
	s := newSession(n, o)
	s.id, s.epoch = id, epoch
	copy(s.key[:], key)
	s.seqs.Reset(firstNumber)
	if _, err := s.attachUnder(ctx, epoch); err != nil {
		s.cancel(err)
		return nil, err
	}
	return s, nil
}

// acquireEntry is one acquire from its first sending to its outcome, without a lease and without
// the name's lock. If ctx ends first, the entry stays as it is at the server.
func acquireEntry(ctx context.Context, s *Session, req *protocol.Acquire, accepted func()) (acquired bool, err error) {
	bucket, err := s.node.bucket(ctx, string(req.Name))
	if err != nil {
		return false, err
	}
	o := acquireOptions{timeout: req.Timeout}
	if accepted != nil {
		o.onAccepted = func(uint64) { accepted() }
	}
	a := &acquireOp{s: s, bucket: bucket, req: *req, o: o}
	a.x = requestState{head: &a.req.Head, acquire: a}
	state, _, route, err := a.outcome(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	a.close()
	if err != nil || state != protocol.Acquired {
		return false, err
	}
	route.recordWrite(nil)
	return true, nil
}
