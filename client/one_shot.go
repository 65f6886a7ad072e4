package client

import (
	"context"
	"sync/atomic"

	"github.com/signalbox-dev/signalbox/protocol"
)

// WatchResult is how a one-shot watch ended. If both are false, a change may have been missed,
// because the connection was lost, another watch replaced this one, or the shard's leader changed:
// describe the semaphore again.
type WatchResult struct {
	DataChanged   bool
	OwnersChanged bool
}

// WatchMask selects what a one-shot watch looks for.
type WatchMask uint8

const (
	OnData   WatchMask = WatchMask(protocol.WatchData)   // other bytes; deletion
	OnOwners WatchMask = WatchMask(protocol.WatchOwners) // an owner more or less, a count lowered, an owner's data; deletion
)

// oneShot is one sending of a one-shot watch.
type oneShot struct {
	id   uint64
	cn   *conn
	ch   chan WatchResult // capacity 1
	over atomic.Bool
	stop atomic.Pointer[func() bool] // of what fires it with the session's end
}

func (o *oneShot) fire(f WatchResult) {
	if !o.over.CompareAndSwap(false, true) {
		return
	}
	o.ch <- f
	if stop := o.stop.Load(); stop != nil {
		(*stop)()
	}
}

// arm makes the shot known to its connection, before the server can fire it.
func (o *oneShot) arm() {
	o.cn.mu.Lock()
	defer o.cn.mu.Unlock()
	if o.cn.err == nil {
		o.cn.oneShots[o.id] = o
	}
}

func (o *oneShot) disarm() {
	if o == nil {
		return
	}
	o.cn.mu.Lock()
	defer o.cn.mu.Unlock()
	delete(o.cn.oneShots, o.id)
}

func (cn *conn) fired(m *protocol.WatchFired) {
	cn.mu.Lock()
	o := cn.oneShots[m.WatchID]
	delete(cn.oneShots, m.WatchID)
	cn.mu.Unlock()
	if o != nil {
		o.fire(WatchResult{DataChanged: m.DataChanged, OwnersChanged: m.OwnersChanged})
	}
}

// WatchOnce reads a semaphore and arms the session's one-shot watch on it, atomically. The channel
// gets exactly one value: when what is watched changes, or when a change may have been missed. A
// session has one such watch per semaphore: a newer one ends the older. Errors: NotFound.
func (s *Session) WatchOnce(ctx context.Context, name string, what WatchMask, opts ...ReadOption) (*Semaphore, <-chan WatchResult, error) {
	if what == 0 || what&^(OnData|OnOwners) != 0 {
		return nil, nil, withOp("watch", name, protocol.Errorf(protocol.StatusBadRequest, "nothing to watch for is named; give OnData, OnOwners or both"))
	}
	bucket, err := s.node.bucket(ctx, name)
	if err != nil {
		return nil, nil, withOp("watch", name, err)
	}
	o := readOptionsOf(opts)
	req := protocol.Describe{Session: s.id, Node: s.node.id, Name: []byte(name), Consistency: o.consistency, Flags: o.flags | uint8(what)}
	var shot *oneShot
	sem, err := s.node.pages(ctx, bucket, &req, func(reply *protocol.DescribeReply) error {
		_, _, err := s.send(ctx, protocol.KindDescribe, bucket, &requestState{prepare: func(route requestRoute) {
			req.MinIndex = s.node.readFrom(bucket)
			req.Consistency = o.consistency
			if o.consistency == protocol.Relaxed || o.consistency != protocol.Strict && s.node.relaxed {
				req.Consistency = s.node.consistencyAt(o, route.shard, route.cn)
			}
			if req.Flags&uint8(OnData|OnOwners) == 0 || len(req.Cursor) > 0 {
				return // not the first page
			}
			shot.disarm()
			shot = &oneShot{id: s.c.lastWatchID.Add(1), cn: route.cn, ch: make(chan WatchResult, 1)}
			shot.arm()
			req.WatchID = shot.id
		}}, &req, reply)
		return err
	})
	if err != nil {
		shot.disarm()
		return nil, nil, withOp("watch", name, err)
	}
	fired := shot
	stop := context.AfterFunc(s.ctx, func() {
		fired.disarm()
		fired.fire(WatchResult{})
	})
	fired.stop.Store(&stop)
	if fired.over.Load() {
		stop()
	}
	return sem, fired.ch, nil
}
