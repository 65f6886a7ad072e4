package client

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"

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

// errTrackNeedsSession: a change needs one.
var errTrackNeedsSession = protocol.Errorf(protocol.StatusBadRequest, "this way to the track is for reading; open it on a session to change something")

// Change sends a request of the session that changes the track, until it is answered. Head is the request's, and is filled in. Errors: as those of a semaphore's
// changes, ErrOutcomeUnknown among them.
func (t *Track) Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	if t.s == nil {
		return withOp(opName(kind), t.name, errTrackNeedsSession)
	}
	return withOp(opName(kind), t.name, t.s.sendOnce(ctx, kind, t.name, head, m, reply))
}

// Tell sends a request of the session that has no number, a poll or a report, until it is answered. It may arrive more than once.
func (t *Track) Tell(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	if t.s == nil {
		return withOp(opName(kind), t.name, errTrackNeedsSession)
	}
	bucket, err := t.n.bucket(ctx, t.name)
	if err == nil {
		_, _, err = t.s.send(ctx, kind, bucket, &requestState{}, m, reply)
	}
	return withOp(opName(kind), t.name, err)
}

// Read asks the shard of the track, until it is answered.
func (t *Track) Read(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	bucket, err := t.n.bucket(ctx, t.name)
	if err == nil {
		_, err = t.n.c.request(ctx, t.n.c.atBucket(t.n.tier, bucket), kind, m, reply)
	}
	return withOp(opName(kind), t.name, err)
}

// doing is what a request does, in errors.
func opName(kind protocol.Kind) string {
	if verb, ok := strings.CutPrefix(kind.String(), "process_"); ok {
		return verb + " process"
	}
	return strings.TrimPrefix(kind.String(), "track_")
}

// Node is the id of the node, which reads carry.
func (t *Track) Node() uint64 { return t.n.id }

// fenced says that a registration is refused, not the session.
func isFenced(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Status == protocol.StatusBadSession && strings.HasPrefix(e.Message, "FENCED")
}

// TrackEvent is what a watch of a track tells: how it stands, or what changed since. One of the two is set.
type TrackEvent struct {
	Status *protocol.TrackStatus // replaces all that was told before
	Change *protocol.TrackEvents
}

// Watch tells how the track stands, and then every change, until ctx ends. It resumes by itself, with a new status: after a lost connection, a change of leader, or
// when the consumer fell behind. The last pair carries the error that ended it: ctx's, NotFound when there is no track any more, Forbidden, Unsupported.
//
// Only Location and Targets of the request are the caller's.
func (t *Track) Watch(ctx context.Context, location string, targets bool) iter.Seq2[TrackEvent, error] {
	req := &protocol.TrackWatch{Node: t.n.id, Name: []byte(t.name), Location: location, Targets: targets}
	bucket := func() (uint32, error) { return t.n.bucket(ctx, t.name) }
	return watchObject(ctx, t.n, t.name, bucket, protocol.KindTrackWatch, req, func() streamDecoder[TrackEvent] { return decodeTrackEvent })
}

// decodeTrackEvent reads an event of a track's stream.
func decodeTrackEvent(h protocol.Header) (news TrackEvent, step streamStep, err error) {
	if h.Kind == protocol.KindTrackEvents {
		news.Change = new(protocol.TrackEvents)
		return news, stepAppend, news.Change.DecodeBody(h.Body)
	}
	news.Status = new(protocol.TrackStatus)
	if err := news.Status.DecodeBody(h.Body); err != nil {
		return news, stepReplace, err
	}
	news.Status.Name, news.Status.Cursor = bytes.Clone(news.Status.Name), nil // the body is the reader's
	return news, stepReplace, nil
}
