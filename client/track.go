package client

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Track is the way to the rollout with a name, service/cluster, on a coordination node. It carries the protocol's messages and knows nothing of what they mean: use
// package client/rollout, which is made of it.
type Track struct {
	n    *Node
	s    *Session // nil: for reading only
	name string
}

// Track is the way to a rollout on the session's node.
func (s *Session) Track(name string) *Track { return &Track{n: &s.node, s: s, name: name} }

// Track is the way to a rollout, for reading.
func (n *Node) Track(name string) *Track { return &Track{n: n, name: name} }

// Name is the track's name.
func (t *Track) Name() string { return t.name }

// Session is the session whose requests go this way, nil for none.
func (t *Track) Session() *Session { return t.s }

// errNoSession: a change needs one.
var errNoSession = protocol.Errorf(protocol.StatusBadRequest, "this way to the track is for reading; open it on a session to change something")

// Change sends a request of the session that changes the track, until it is answered. Head is the request's, and is filled in. Errors: as those of a semaphore's
// changes, ErrOutcomeUnknown among them.
func (t *Track) Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	if t.s == nil {
		return about(doing(kind), t.name, errNoSession)
	}
	return about(doing(kind), t.name, t.s.once(ctx, kind, t.name, head, m, reply))
}

// Tell sends a request of the session that has no number, a poll or a report, until it is answered. It may arrive more than once.
func (t *Track) Tell(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	if t.s == nil {
		return about(doing(kind), t.name, errNoSession)
	}
	bucket, err := t.n.bucket(ctx, t.name)
	if err == nil {
		_, _, err = t.s.send(ctx, kind, bucket, &numbered{}, m, reply)
	}
	return about(doing(kind), t.name, err)
}

// Read asks the shard of the track, until it is answered.
func (t *Track) Read(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	bucket, err := t.n.bucket(ctx, t.name)
	if err == nil {
		_, err = t.n.c.ask(ctx, t.n.c.atBucket(t.n.tier, bucket), kind, m, reply)
	}
	return about(doing(kind), t.name, err)
}

// doing is what a request does, in errors.
func doing(kind protocol.Kind) string { return strings.TrimPrefix(kind.String(), "track_") }

// Node is the id of the node, which reads carry.
func (t *Track) Node() uint64 { return t.n.id }

// fenced says that a registration is refused, not the session.
func fenced(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Status == protocol.StatusBadSession && strings.HasPrefix(e.Message, "FENCED")
}

// TrackNews is what a watch of a track tells: how it stands, or what changed since. One of the two is set.
type TrackNews struct {
	Status *protocol.TrackStatus // replaces all that was told before
	Change *protocol.TrackChange
}

// Watch tells how the track stands, and then every change, until ctx ends. It resumes by itself, with a new status: after a lost connection, a change of leader, or
// when the consumer fell behind. The last pair carries the error that ended it: ctx's, NotFound when there is no track any more, Forbidden, Unsupported.
//
// Only Location and Targets of the request are the caller's.
func (t *Track) Watch(ctx context.Context, location string, targets bool) iter.Seq2[TrackNews, error] {
	return func(yield func(TrackNews, error) bool) {
		req := &protocol.TrackWatch{Node: t.n.id, Name: []byte(t.name), Location: location, Targets: targets}
		retry := backoff{base: retryBase, max: retryMax}
		for {
			told, goOn, err := t.watchOnce(ctx, req, &retry, yield)
			switch {
			case !goOn:
				return
			case ctx.Err() != nil:
				yield(TrackNews{}, about("watch", t.name, interrupted(ctx, nil)))
				return
			case t.n.c.ctx.Err() != nil:
				yield(TrackNews{}, about("watch", t.name, ErrClientClosed))
				return
			case !again(err):
				yield(TrackNews{}, about("watch", t.name, err))
				return
			case told:
				retry.failures = 0
			}
			sleep(ctx, t.n.c.ctx.Done(), retry.next())
		}
	}
}

// watchOnce is one opening of the stream. told: something was. goOn is false when the consumer has enough.
func (t *Track) watchOnce(ctx context.Context, req *protocol.TrackWatch, retry *backoff, yield func(TrackNews, error) bool) (told, goOn bool, err error) {
	c := t.n.c
	bucket, err := t.n.bucket(ctx, t.name)
	if err != nil {
		return false, true, err
	}
	cn, shard, err := c.toBucket(ctx, t.n.tier, bucket)
	if err != nil {
		if again(err) {
			c.pause(ctx, shard, cn, err, retry)
		}
		return false, true, err
	}
	st := &trackStream{wake: make(chan struct{}, 1)}
	_, _, err = cn.begin(ctx, nil, protocol.KindTrackWatch, uint64(bucket), req, func(id uint64, cl *call) {
		st.id = id
		if cn.tracks == nil {
			cn.tracks = make(map[uint64]*trackStream)
		}
		cn.tracks[id] = st
		cl.reply = func(status protocol.Status, body []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				err = failure(status, body)
			}
			if err != nil {
				cn.dropTrack(st)
				st.cut(err)
			}
		}
	})
	if err != nil {
		return false, true, err
	}
	defer c.run(func() {
		if cn.dropTrack(st) {
			_, _ = cn.roundTrip(c.ctx, nil, protocol.KindUnwatch, uint64(bucket), &protocol.Unwatch{WatchID: st.id}, &protocol.Empty{})
		}
	})
	for {
		list, err := st.take(ctx)
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

// trackStream is a watch of a track on one connection: the reader goroutine adds, the consumer takes.
type trackStream struct {
	id   uint64
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	news []TrackNews
	err  error // why it is over
}

// maxTrackNews bounds what a consumer may leave lying: beyond it the stream begins anew, with a status.
const maxTrackNews = 1024

// errBehind: the consumer fell behind.
var errBehind = protocol.Errorf(protocol.StatusOverloaded, "the consumer of the watch fell behind")

// add takes news in; false: the consumer is too far behind.
func (st *trackStream) add(news TrackNews) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if news.Status != nil {
		st.news = st.news[:0:0] // it replaces what nobody has looked at
	}
	if len(st.news) >= maxTrackNews {
		return false
	}
	st.news = append(st.news, news)
	st.poke()
	return true
}

func (st *trackStream) cut(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		st.err = err
	}
	st.poke()
}

func (st *trackStream) poke() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// take waits for news. What came before the end is told before it.
func (st *trackStream) take(ctx context.Context) ([]TrackNews, error) {
	for {
		st.mu.Lock()
		list, err := st.news, st.err
		st.news = nil
		st.mu.Unlock()
		if len(list) > 0 || err != nil {
			return list, err
		}
		select {
		case <-st.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dropTrack makes the connection forget a stream; false if it had already.
func (cn *conn) dropTrack(st *trackStream) bool {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.tracks[st.id] != st {
		return false
	}
	delete(cn.tracks, st.id)
	return true
}

// trackEvent hands on an event of a track's stream; false: there is no such stream. It runs on the reader goroutine.
func (cn *conn) trackEvent(h protocol.Header) (bool, error) {
	cn.mu.Lock()
	st := cn.tracks[h.ID]
	cn.mu.Unlock()
	if st == nil {
		return false, nil
	}
	var news TrackNews
	switch h.Kind {
	case protocol.KindStreamCut:
		var m protocol.StreamCut
		if err := m.DecodeBody(h.Body); err != nil {
			return true, err
		}
		cn.dropTrack(st)
		st.cut(&protocol.Error{Status: m.Status, Message: m.Message})
		return true, nil
	case protocol.KindTrackStatus:
		news.Status = new(protocol.TrackStatus)
		if err := news.Status.DecodeBody(h.Body); err != nil {
			return true, err
		}
		news.Status.Name, news.Status.Cursor = bytes.Clone(news.Status.Name), nil // the body is the reader's
	default:
		news.Change = new(protocol.TrackChange)
		if err := news.Change.DecodeBody(h.Body); err != nil {
			return true, err
		}
	}
	if !st.add(news) {
		st.cut(errBehind)
	}
	return true, nil
}
