package client

import (
	"context"
	"iter"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A feed is the stream of one object that is no semaphore, a track or a process: how it stands, then every change. It is told whole, so the consumer gets what the server
// sent; one that falls behind begins anew.

// streamStep is what an event does to what the consumer has not taken yet.
type streamStep uint8

const (
	stepAppend  streamStep = iota // it follows
	stepReplace                   // it replaces all of it
	stepPartial                   // it is a part of what comes later, and nothing is told
)

// reading decodes the events of one opening of a stream. The body is the reader's.
type streamDecoder[T any] func(h protocol.Header) (news T, step streamStep, err error)

// objectStream is a stream on one connection: the reader goroutine adds, the consumer takes.
type objectStream[T any] struct {
	id     uint64
	decode streamDecoder[T] // of the reader goroutine
	wake   chan struct{}    // capacity 1

	mu     sync.Mutex
	events []T
	err    error // why it is over
}

// feeder is a objectStream of any type, for the connection.
type eventSink interface {
	event(h protocol.Header) error
	cut(err error)
}

// maxStreamBacklog bounds what a consumer may leave lying: beyond it the stream begins anew.
const maxStreamBacklog = 1024

// errConsumerBehind: the consumer fell behind.
var errConsumerBehind = protocol.Errorf(protocol.StatusOverloaded, "the consumer of the watch fell behind by %d events; read them faster", maxStreamBacklog)

// watchObject tells an object's stream until ctx ends or the server refuses, and opens it again as often as needed. bucket is asked at each opening, begin gives what reads
// its events.
func watchObject[T any](ctx context.Context, n *Node, name string, bucket func() (uint32, error), kind protocol.Kind, req protocol.Message, begin func() streamDecoder[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		retry := backoff{base: retryBase, max: retryMax}
		for {
			told, goOn, err := watchObjectOnce(ctx, n, bucket, kind, req, begin(), &retry, yield)
			switch {
			case !goOn:
				return
			case ctx.Err() != nil:
				yield(none, withOp("watch", name, interrupted(ctx, nil)))
				return
			case n.c.ctx.Err() != nil:
				yield(none, withOp("watch", name, ErrClientClosed))
				return
			case !canResend(err):
				yield(none, withOp("watch", name, err))
				return
			case told:
				retry.failures = 0
			}
			sleep(ctx, n.c.ctx.Done(), retry.next())
		}
	}
}

// watchObjectOnce is one opening of the stream. told: something was. continueInBackground is false when the consumer has enough.
func watchObjectOnce[T any](
	ctx context.Context, n *Node, where func() (uint32, error), kind protocol.Kind, req protocol.Message, read streamDecoder[T], retry *backoff, yield func(T, error) bool,
) (told, goOn bool, err error) {
	c := n.c
	bucket, err := where()
	if err != nil {
		return false, true, err
	}
	cn, shard, err := c.connToBucket(ctx, n.tier, bucket)
	if err != nil {
		if canResend(err) {
			c.waitRetry(ctx, shard, cn, err, retry)
		}
		return false, true, err
	}
	f := &objectStream[T]{decode: read, wake: make(chan struct{}, 1)}
	_, _, err = cn.startCall(ctx, nil, kind, uint64(bucket), req, func(id uint64, cl *call) {
		f.id = id
		if cn.objectStreams == nil {
			cn.objectStreams = make(map[uint64]eventSink)
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
		return false, true, err
	}
	defer c.run(func() {
		if cn.dropObjectStream(f.id, f) {
			_, _ = cn.roundTrip(c.ctx, nil, protocol.KindUnwatch, 0, uint64(bucket), &protocol.Unwatch{WatchID: f.id}, &protocol.Empty{})
		}
	})
	for {
		list, err := f.take(ctx)
		for _, news := range list {
			told = true
			if !yield(news, nil) {
				return told, false, nil
			}
		}
		if err != nil {
			if protocol.StatusOf(err) == protocol.StatusWrongShard || protocol.StatusOf(err) == protocol.StatusUnavailable {
				c.waitRetry(ctx, shard, cn, err, retry)
			}
			return told, true, err
		}
	}
}

// event takes in an event of the stream. It runs on the reader goroutine.
func (f *objectStream[T]) event(h protocol.Header) error {
	news, step, err := f.decode(h)
	if err != nil || step == stepPartial {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if step == stepReplace {
		f.events = nil
	}
	if len(f.events) >= maxStreamBacklog {
		f.end(errConsumerBehind)
		return nil
	}
	f.events = append(f.events, news)
	f.notify()
	return nil
}

func (f *objectStream[T]) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(err)
}

// end is what the consumer learns behind the news that came. mu is held.
func (f *objectStream[T]) end(err error) {
	if f.err == nil {
		f.err = err
	}
	f.notify()
}

func (f *objectStream[T]) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take waits for news. What came before the end is told before it.
func (f *objectStream[T]) take(ctx context.Context) ([]T, error) {
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

// dropObjectStream makes the connection forget a stream; false if it had already.
func (cn *conn) dropObjectStream(id uint64, f eventSink) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.objectStreams[id] != f {
		return false
	}
	delete(cn.objectStreams, id)
	return true
}

// objectStreamEvent hands on an event of a feed; false: there is no such stream. It runs on the reader goroutine.
func (cn *conn) objectStreamEvent(h protocol.Header) (bool, error) {
	cn.mu.Lock()
	f := cn.objectStreams[h.ID]
	cn.mu.Unlock()
	if f == nil {
		return false, nil
	}
	if h.Kind == protocol.KindStreamCut {
		var m protocol.StreamCut
		if err := m.DecodeBody(h.Body); err != nil {
			return true, err
		}
		cn.dropObjectStream(h.ID, f)
		f.cut(&protocol.Error{Status: m.Status, Message: m.Message})
		return true, nil
	}
	return true, f.event(h)
}
