package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// objectStream is one opening of the stream of a process or a rollout, on one connection: its
// state, then every change. The reader adds events, and the consumer takes them. A
// consumer that falls behind begins again with a new state.
type objectStream struct {
	id     uint64
	decode rpc.Decoder   // called by the reader
	wake   chan struct{} // capacity 1

	mu      sync.Mutex
	events  []any
	err     error // why it ended
	refused bool  // it was not opened
}

// maxStreamBacklog is how many events a consumer may leave untaken before the stream is opened
// again.
const maxStreamBacklog = 1024

var errConsumerBehind = protocol.Errorf(protocol.StatusOverloaded,
	"the consumer of the watch fell behind by %d events; read them faster", maxStreamBacklog)

func (o *object) Events(
	ctx context.Context, kind protocol.Kind, req protocol.Message, decoder func() rpc.Decoder,
) iter.Seq2[any, error] {
	return func(yield func(any, error) bool) {
		c := o.n.c
		retry := newRequestRetry()
		past := streamPast{c: c}
		var failed error // why the last try ended; nil once another one delivers
		deliver := func(event any, err error) bool {
			failed = nil
			return yield(event, err)
		}
		for {
			asked, stopped, err := o.eventsOnce(ctx, kind, req, decoder(), &retry, &past, deliver)
			switch {
			case stopped:
				return
			case ctx.Err() != nil:
				if failed != nil || !errors.Is(err, ctx.Err()) { // else err says what the first try waits for
					err = interrupted(ctx, failed)
				}
				yield(nil, withOp("watch", o.name, err))
				return
			case c.ctx.Err() != nil:
				yield(nil, withOp("watch", o.name, ErrClientClosed))
				return
			case !canResend(err):
				yield(nil, withOp("watch", o.name, err))
				return
			}
			failed = err
			c.waitRetry(ctx, asked.shard, asked.bucket, asked.cn, err, &retry)
		}
	}
}

// whereAsked is where a stream was to be opened, as far as its end says something of that place.
type whereAsked struct {
	shard, bucket uint64
	cn            *conn
}

// eventsOnce opens the stream once. stopped says that the consumer wants no more. What was
// delivered ends the back-off.
func (o *object) eventsOnce(
	ctx context.Context, kind protocol.Kind, req protocol.Message, decode rpc.Decoder, retry *requestRetry,
	past *streamPast, yield func(any, error) bool,
) (asked whereAsked, stopped bool, err error) {
	c := o.n.c
	bucket, err := o.bucket(ctx)
	if err != nil {
		return asked, false, err
	}
	cn, shard, err := c.connToBucket(ctx, o.n.tier, bucket)
	asked = whereAsked{shard, uint64(bucket), cn}
	if err != nil {
		return asked, false, err
	}
	f := &objectStream{decode: decode, wake: make(chan struct{}, 1)}
	_, _, err = cn.startCall(ctx, nil, kind, uint64(bucket), req, func(id uint64, cl *call) {
		f.id = id
		if cn.objectStreams == nil {
			cn.objectStreams = make(map[uint64]*objectStream)
		}
		cn.objectStreams[id] = f
		cn.updatePeriod()
		cl.reply = func(status protocol.Status, body []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				err = failure(status, body)
			}
			if err != nil {
				cn.dropObjectStream(id, f)
				f.refuse(err)
			}
		}
	})
	if err != nil {
		return asked, false, err
	}
	defer c.run(func() {
		if cn.dropObjectStream(f.id, f) {
			_, _ = cn.roundTrip(c.ctx, protocol.KindUnwatch, 0, uint64(bucket),
				&protocol.Unwatch{WatchID: f.id}, &protocol.Empty{})
		}
	})
	for first := true; ; {
		list, refused, err := f.take(ctx)
		for _, event := range list {
			if !past.accept(event, first, cn.instance) {
				return asked, false, errReplicaBehind
			}
			first = false
			retry.failures = 0
			if !yield(event, nil) {
				return asked, true, nil
			}
		}
		if err != nil {
			if !refused { // that the bucket moves, for one, says nothing of the shard's leader
				asked = whereAsked{}
			}
			return asked, false, err
		}
	}
}

// streamPast is what the openings of one stream delivered of indexed events.
type streamPast struct {
	c         *Client
	shard     uint64   // where the last of them came from
	index     uint64   // the newest of that shard's log
	instances []uint64 // those that began before it, in a row
}

var errReplicaBehind = protocol.Errorf(protocol.StatusUnavailable, "the replica is behind")

// accept takes in an event from an instance, before it is delivered. False: it is the first of its
// opening, and older than what was delivered. Another replica, or this one a moment later, has
// that. If every replica began before it, the shard has begun again, as with shardWatch.
func (p *streamPast) accept(event any, first bool, instance uint64) bool {
	e, ok := event.(rpc.Indexed)
	if !ok {
		return true
	}
	shard, index := e.LogIndex()
	if shard != p.shard {
		*p = streamPast{c: p.c, shard: shard}
	}
	if first && index < p.index && !shardRestarted(p.c.routes.Load(), p.shard, p.instances) {
		if len(p.instances) < maxBehind || !slices.Contains(p.instances, instance) {
			p.instances = append(p.instances, instance)
		}
		return false
	}
	if first {
		p.index, p.instances = index, nil
	}
	p.index = max(p.index, index)
	raiseTo(p.c.readIndex(shard), index) // no RELAXED read that follows goes back in time
	return true
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

// refuse is called when the stream was not opened.
func (f *objectStream) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = f.err == nil
	f.end(err)
}

func (f *objectStream) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(err)
}

// end notifies the consumer, behind the events that came. mu is held.
func (f *objectStream) end(err error) {
	f.err = cmp.Or(f.err, err)
	f.notify()
}

func (f *objectStream) notify() {
	wake(f.wake)
}

// take waits for events. Those that came before the end are returned before its error.
func (f *objectStream) take(ctx context.Context) (list []any, refused bool, err error) {
	for {
		f.mu.Lock()
		list, refused, err = f.events, f.refused, f.err
		f.events = nil
		f.mu.Unlock()
		if len(list) > 0 || err != nil {
			return list, refused, err
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return nil, false, interrupted(ctx, nil)
		}
	}
}
