package client

import (
	"context"
	"iter"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A feed is the stream of one object that is no semaphore, a track or a process: how it stands, then every change. It is told whole, so the consumer gets what the server
// sent; one that falls behind begins anew.

// feedStep is what an event does to what the consumer has not taken yet.
type feedStep uint8

const (
	feedNext feedStep = iota // it follows
	feedAnew                 // it replaces all of it
	feedPart                 // it is a part of what comes later, and nothing is told
)

// reading decodes the events of one opening of a stream. The body is the reader's.
type reading[T any] func(h protocol.Header) (news T, step feedStep, err error)

// newsFeed is a stream on one connection: the reader goroutine adds, the consumer takes.
type newsFeed[T any] struct {
	id   uint64
	read reading[T]    // of the reader goroutine
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	news []T
	err  error // why it is over
}

// feeder is a newsFeed of any type, for the connection.
type feeder interface {
	event(h protocol.Header) error
	cut(err error)
}

// maxNews bounds what a consumer may leave lying: beyond it the stream begins anew.
const maxNews = 1024

// errBehind: the consumer fell behind.
var errBehind = protocol.Errorf(protocol.StatusOverloaded, "the consumer of the watch fell behind by %d events; read them faster", maxNews)

// watchFeed tells an object's stream until ctx ends or the server refuses, and opens it again as often as needed. bucket is asked at each opening, begin gives what reads
// its events.
func watchFeed[T any](ctx context.Context, n *Node, name string, bucket func() (uint32, error), kind protocol.Kind, req protocol.Message, begin func() reading[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		retry := backoff{base: retryBase, max: retryMax}
		for {
			told, goOn, err := feedOnce(ctx, n, bucket, kind, req, begin(), &retry, yield)
			switch {
			case !goOn:
				return
			case ctx.Err() != nil:
				yield(none, about("watch", name, interrupted(ctx, nil)))
				return
			case n.c.ctx.Err() != nil:
				yield(none, about("watch", name, ErrClientClosed))
				return
			case !again(err):
				yield(none, about("watch", name, err))
				return
			case told:
				retry.failures = 0
			}
			sleep(ctx, n.c.ctx.Done(), retry.next())
		}
	}
}

// feedOnce is one opening of the stream. told: something was. goOn is false when the consumer has enough.
func feedOnce[T any](
	ctx context.Context, n *Node, where func() (uint32, error), kind protocol.Kind, req protocol.Message, read reading[T], retry *backoff, yield func(T, error) bool,
) (told, goOn bool, err error) {
	c := n.c
	bucket, err := where()
	if err != nil {
		return false, true, err
	}
	cn, shard, err := c.toBucket(ctx, n.tier, bucket)
	if err != nil {
		if again(err) {
			c.pause(ctx, shard, cn, err, retry)
		}
		return false, true, err
	}
	f := &newsFeed[T]{read: read, wake: make(chan struct{}, 1)}
	_, _, err = cn.begin(ctx, nil, kind, uint64(bucket), req, func(id uint64, cl *call) {
		f.id = id
		if cn.feeds == nil {
			cn.feeds = make(map[uint64]feeder)
		}
		cn.feeds[id] = f
		cl.reply = func(status protocol.Status, body []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				err = failure(status, body)
			}
			if err != nil {
				cn.dropFeed(id, f)
				f.cut(err)
			}
		}
	})
	if err != nil {
		return false, true, err
	}
	defer c.run(func() {
		if cn.dropFeed(f.id, f) {
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
				c.pause(ctx, shard, cn, err, retry)
			}
			return told, true, err
		}
	}
}

// event takes in an event of the stream. It runs on the reader goroutine.
func (f *newsFeed[T]) event(h protocol.Header) error {
	news, step, err := f.read(h)
	if err != nil || step == feedPart {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if step == feedAnew {
		f.news = nil
	}
	if len(f.news) >= maxNews {
		f.end(errBehind)
		return nil
	}
	f.news = append(f.news, news)
	f.poke()
	return nil
}

func (f *newsFeed[T]) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(err)
}

// end is what the consumer learns behind the news that came. mu is held.
func (f *newsFeed[T]) end(err error) {
	if f.err == nil {
		f.err = err
	}
	f.poke()
}

func (f *newsFeed[T]) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take waits for news. What came before the end is told before it.
func (f *newsFeed[T]) take(ctx context.Context) ([]T, error) {
	for {
		f.mu.Lock()
		list, err := f.news, f.err
		f.news = nil
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

// dropFeed makes the connection forget a stream; false if it had already.
func (cn *conn) dropFeed(id uint64, f feeder) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.feeds[id] != f {
		return false
	}
	delete(cn.feeds, id)
	return true
}

// feedEvent hands on an event of a feed; false: there is no such stream. It runs on the reader goroutine.
func (cn *conn) feedEvent(h protocol.Header) (bool, error) {
	cn.mu.Lock()
	f := cn.feeds[h.ID]
	cn.mu.Unlock()
	if f == nil {
		return false, nil
	}
	if h.Kind == protocol.KindStreamCut {
		var m protocol.StreamCut
		if err := m.DecodeBody(h.Body); err != nil {
			return true, err
		}
		cn.dropFeed(h.ID, f)
		f.cut(&protocol.Error{Status: m.Status, Message: m.Message})
		return true, nil
	}
	return true, f.event(h)
}
