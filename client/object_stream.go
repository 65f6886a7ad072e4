package client

import (
	"context"
	"iter"
	"sync"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// objectStream is one opening of the stream of a process or a rollout, on one connection: its
// state, then every change. The reader goroutine adds events, and the consumer takes them. A
// consumer that falls behind begins again with a new state.
type objectStream struct {
	id     uint64
	decode rpc.Decoder   // called by the reader goroutine
	wake   chan struct{} // capacity 1

	mu     sync.Mutex
	events []any
	err    error // why it ended
}

// maxStreamBacklog is how many events a consumer may leave untaken before the stream is opened
// again.
const maxStreamBacklog = 1024

var errConsumerBehind = protocol.Errorf(protocol.StatusOverloaded,
	"the consumer of the watch fell behind by %d events; read them faster", maxStreamBacklog)

func (o *object) Events(ctx context.Context, kind protocol.Kind, req protocol.Message, decoder func() rpc.Decoder) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		c := o.n.c
		retry := newRequestRetry()
		for {
			delivered, stopped, err := o.eventsOnce(ctx, kind, req, decoder(), &retry, yield)
			switch {
			case stopped:
				return
			case ctx.Err() != nil:
				yield(nil, withOp("watch", o.name, interrupted(ctx, nil)))
				return
			case c.ctx.Err() != nil:
				yield(nil, withOp("watch", o.name, ErrClientClosed))
				return
			case !canResend(err):
				yield(nil, withOp("watch", o.name, err))
				return
			case delivered:
				retry.failures = 0
			}
			sleep(ctx, c.ctx.Done(), retry.next())
		}
	}
}

// eventsOnce opens the stream once. delivered says that the consumer got an event, stopped that it
// wants no more.
func (o *object) eventsOnce(
	ctx context.Context, kind protocol.Kind, req protocol.Message, decode rpc.Decoder, retry *requestRetry, yield func(any, error) bool,
) (delivered, stopped bool, err error) {
	c := o.n.c
	bucket, err := o.bucket(ctx)
	if err != nil {
		return false, false, err
	}
	cn, shard, err := c.connToBucket(ctx, o.n.tier, bucket)
	if err != nil {
		if canResend(err) {
			c.waitRetry(ctx, shard, uint64(bucket), cn, err, retry)
		}
		return false, false, err
	}
	f := &objectStream{decode: decode, wake: make(chan struct{}, 1)}
	_, _, err = cn.startCall(ctx, nil, kind, uint64(bucket), req, func(id uint64, cl *call) {
		f.id = id
		if cn.objectStreams == nil {
			cn.objectStreams = make(map[uint64]*objectStream)
		}
		cn.objectStreams[id] = f
		cl.reply = func(status protocol.Status, body []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				err = failure(status, body)
			}
			if err != nil {
				cn.dropObjectStream(id, f)
				f.cut(err)
			}
		}
	})
	if err != nil {
		return false, false, err
	}
	defer c.run(func() {
		if cn.dropObjectStream(f.id, f) {
			_, _ = cn.roundTrip(c.ctx, nil, protocol.KindUnwatch, 0, uint64(bucket), &protocol.Unwatch{WatchID: f.id}, &protocol.Empty{})
		}
	})
	for {
		list, err := f.take(ctx)
		for _, event := range list {
			delivered = true
			if !yield(event, nil) {
				return delivered, true, nil
			}
		}
		if err != nil {
			if protocol.StatusOf(err) == protocol.StatusWrongShard || protocol.StatusOf(err) == protocol.StatusUnavailable {
				c.waitRetry(ctx, shard, uint64(bucket), cn, err, retry)
			}
			return delivered, false, err
		}
	}
}

func (f *objectStream) event(h protocol.Header) error {
	event, step, err := f.decode(h)
	if err != nil || step == rpc.Partial {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if step == rpc.Replace {
		f.events = nil
	}
	if len(f.events) >= maxStreamBacklog {
		f.end(errConsumerBehind)
		return nil
	}
	f.events = append(f.events, event)
	f.notify()
	return nil
}

func (f *objectStream) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(err)
}

// end tells the consumer, behind the events that came. mu is held.
func (f *objectStream) end(err error) {
	if f.err == nil {
		f.err = err
	}
	f.notify()
}

func (f *objectStream) notify() {
	wake(f.wake)
}

// take waits for events. Those that came before the end are returned before its error.
func (f *objectStream) take(ctx context.Context) ([]any, error) {
	for {
		f.mu.Lock()
		list, err := f.events, f.err
		f.events = nil
		f.mu.Unlock()
		if len(list) > 0 || err != nil {
			return list, err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
