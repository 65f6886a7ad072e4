package handle

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Object is a process or a rollout in its shard, as a session or a node reaches it. It carries the
// protocol's messages and does not know what they mean.
type Object struct {
	node    Node
	session *driver.Session // nil: it was opened on a node
	name    string
	process bool
}

// Process is a coordination process on a node, as a session reaches it, or the node if that is nil.
func Process(n Node, s *driver.Session, name string) *Object { return &Object{n, s, name, true} }

// Track is a rollout in the same way.
func Track(n Node, s *driver.Session, name string) *Object { return &Object{n, s, name, false} }

// Limit is the tree of a rate limit in the same way.
func Limit(n Node, s *driver.Session, name string) *Object { return &Object{n, s, name, false} }

// Name is the object's name.
func (o *Object) Name() string { return o.name }

// NodeID is the id of its coordination node, which reads carry.
func (o *Object) NodeID() uint64 { return o.node.ID }

// SessionID is the session that sends the requests; 0 for an object that was opened on a node.
func (o *Object) SessionID() uint64 {
	if o.session == nil {
		return 0
	}
	return o.session.ID
}

// Context ends with that session, and its cause is the session's Err. The context of an object that
// was opened on a node never ends.
func (o *Object) Context() context.Context {
	if o.session == nil {
		return context.Background()
	}
	return o.session.Context()
}

var (
	errNeedsSession = protocol.Errorf(protocol.StatusBadRequest,
		"it was opened on a node, for reading; open it on a session")
	errNoName = protocol.Errorf(protocol.StatusBadRequest, "its name is empty; give it one")
)

// ErrHasHandler: the session handles the events of this process already.
var ErrHasHandler = errors.New("this session is a member of the process already; leave first, or join with another session")

func (o *Object) target() core.Target {
	to := o.node.At(o.name)
	if o.process {
		to.Of = core.AtProcess
	}
	return to
}

// Change sends a numbered request of the session until it is answered, and fills in its head. The
// request takes effect at most once. Errors: as those of a semaphore's changes, ErrOutcomeUnknown
// among them.
func (o *Object) Change(
	ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message,
) error {
	return o.send(ctx, kind, head, m, reply)
}

// Send sends a request of the session that has no number until it is answered. It may arrive more
// than once.
func (o *Object) Send(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	return o.send(ctx, kind, nil, m, reply)
}

func (o *Object) send(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	switch {
	case o.session == nil:
		return driver.WithOp(opName(kind), o.name, errNeedsSession)
	case o.name == "":
		return driver.WithOp(opName(kind), o.name, errNoName)
	}
	r := o.node.Driver.Call(ctx, &core.Call{
		Kind: kind, Msg: m, Head: head, Reply: reply, Session: &o.session.Session, To: o.target(),
	})
	if head != nil {
		return driver.WithOp(opName(kind), o.name, driver.Outcome(r))
	}
	return driver.WithOp(opName(kind), o.name, driver.Err(r))
}

// Request sends a request that belongs to no session until it is answered. repeated reports whether
// an earlier sending may have taken effect without an answer.
func (o *Object) Request(
	ctx context.Context, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	if o.name == "" {
		return false, driver.WithOp(opName(kind), o.name, errNoName)
	}
	repeated, err = o.node.Call(ctx, o.target(), kind, m, reply)
	return repeated, driver.WithOp(opName(kind), o.name, err)
}

// Watch yields the events of the object's stream, which is opened again whenever it ends, until ctx
// ends. decoder is called for each opening.
func Watch[T any](
	ctx context.Context, o *Object, kind protocol.Kind, req protocol.Message,
	decoder func() func(protocol.Header) (T, core.Step, error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if o.name == "" {
			yield(none, driver.WithOp("watch", o.name, errNoName))
			return
		}
		events := o.node.Driver.Stream(ctx, func() *core.Stream {
			return &core.Stream{Kind: kind, Msg: req, To: o.target(), Decode: func() core.Decoder {
				decode := decoder()
				return func(h protocol.Header) (any, core.Step, error) { return decode(h) }
			}}
		})
		for event, err := range events {
			if err != nil {
				yield(none, driver.WithOp("watch", o.name, err))
				return
			}
			if !yield(event.(T), nil) {
				return
			}
		}
	}
}

// Convert is a sequence with each value converted. Beside an error the value is zero.
func Convert[T, U any](seq iter.Seq2[T, error], convert func(T) U) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		for x, err := range seq {
			var u U
			if err == nil {
				u = convert(x)
			}
			if !yield(u, err) {
				return
			}
		}
	}
}

// opName names a request in errors.
func opName(kind protocol.Kind) string {
	name := strings.ReplaceAll(kind.String(), "_", " ")
	if verb, ok := strings.CutPrefix(name, "process "); ok {
		if strings.Contains(verb, " ") {
			return verb + " of process"
		}
		return verb + " process"
	}
	return strings.TrimPrefix(name, "track ")
}

// Processes lists the node's processes whose name begins with prefix, in order of name.
func Processes(ctx context.Context, n Node, prefix string, limits ListLimits) iter.Seq2[protocol.ProcessItem, error] {
	name := func(i *protocol.ProcessItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (ListPage[protocol.ProcessItem], error) {
		var reply protocol.ProcessListReply
		req := &protocol.ProcessList{
			Shard: shard, Node: n.ID, Prefix: []byte(prefix), Consistency: protocol.Strict, Cursor: cursor,
			Limit: uint32(limits.Most),
		}
		_, err := n.Call(ctx, n.AtShard(shard), protocol.KindProcessList, req, &reply)
		return ListPage[protocol.ProcessItem]{Items: reply.Processes, Next: reply.Cursor, Runs: reply.Runs}, err
	}
	return ListShards(ctx, n, "list processes", prefix, limits, name, read)
}

// Tracks lists the node's tracks whose name begins with prefix, in order of name.
func Tracks(ctx context.Context, n Node, prefix string, limits ListLimits) iter.Seq2[protocol.TrackItem, error] {
	name := func(i *protocol.TrackItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (ListPage[protocol.TrackItem], error) {
		var reply protocol.TrackListReply
		req := &protocol.TrackList{
			Shard: shard, Node: n.ID, Prefix: []byte(prefix), Consistency: protocol.Strict, Cursor: cursor,
			Limit: uint32(limits.Most),
		}
		_, err := n.Call(ctx, n.AtShard(shard), protocol.KindTrackList, req, &reply)
		return ListPage[protocol.TrackItem]{Items: reply.Tracks, Next: reply.Cursor, Runs: reply.Runs}, err
	}
	return ListShards(ctx, n, "list rollouts", prefix, limits, name, read)
}

// Limits lists the node's rate limits whose name begins with prefix, in order of name.
func Limits(ctx context.Context, n Node, prefix string, limits ListLimits) iter.Seq2[protocol.LimitItem, error] {
	name := func(i *protocol.LimitItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (ListPage[protocol.LimitItem], error) {
		var reply protocol.LimitListReply
		req := &protocol.LimitList{Shard: shard, Node: n.ID, Prefix: []byte(prefix), Cursor: cursor,
			Limit: uint32(limits.Most)}
		_, err := n.Call(ctx, n.AtShard(shard), protocol.KindLimitList, req, &reply)
		return ListPage[protocol.LimitItem]{Items: reply.Limits, Next: reply.Cursor, Runs: reply.Runs}, err
	}
	return ListShards(ctx, n, "list rate limits", prefix, limits, name, read)
}

// Handle has what the server sends to the session about a process received by handle, until stop is
// called. There is one handler at a time: ErrHasHandler.
func (o *Object) Handle(handle driver.ProcessHandler) (stop func(), err error) {
	if o.session == nil {
		return nil, driver.WithOp("join process", o.name, errNeedsSession)
	}
	if err := o.session.Err(); err != nil {
		return nil, err
	}
	stop, ok := o.session.HandleProcess(o.name, handle)
	if !ok {
		return nil, driver.WithOp("join process", o.name, ErrHasHandler)
	}
	return stop, nil
}

// Follow calls connected whenever requests go over another connection or attach than before, and the
// first time, until ctx or the session ends. Events that were sent in between may be lost.
func (o *Object) Follow(ctx context.Context, connected func()) {
	o.session.Follow(ctx, o.target(), connected)
}
