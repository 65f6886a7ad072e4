package client

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// The packages below this one send requests of the protocol, which programs cannot.
func init() {
	rpc.Process = func(s, n any, name string) rpc.Object { return newObject(s, n, name, protocol.ProcessBucket) }
	rpc.Track = func(s, n any, name string) rpc.Object { return newObject(s, n, name, protocol.Bucket) }
	rpc.Limit = func(s, n any, name string) rpc.Object { return newObject(s, n, name, protocol.Bucket) }
	rpc.Limits = func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.LimitItem, error] {
		return n.(*Node).limits(ctx, prefix, opts.([]ReadOption))
	}
	rpc.Processes = func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.ProcessItem, error] {
		return n.(*Node).processes(ctx, prefix, opts.([]ReadOption))
	}
	rpc.Tracks = func(ctx context.Context, n any, prefix string, opts any) iter.Seq2[protocol.TrackItem, error] {
		return n.(*Node).tracks(ctx, prefix, opts.([]ReadOption))
	}
	rpc.Cluster = func(ctx context.Context, c any, method string, in, out any) error {
		return callCluster(ctx, c.(*Client), method, in, out)
	}
	rpc.ClusterAt = func(ctx context.Context, c any, instance uint64, method string, in, out any) error {
		return callInstance(ctx, c.(*Client), instance, method, in, out)
	}
	rpc.Logger = func(c any) *slog.Logger { return c.(*Client).cfg.Logger }
	rpc.Context = func(c any) context.Context { return c.(*Client).ctx }
	rpc.Values = func(c any) *sync.Map { return &c.(*Client).values }
	rpc.Map = func(ctx context.Context, c any) (*protocol.MapReply, error) { return c.(*Client).clusterMap(ctx) }
}

// object is a process or a rollout. It carries the protocol's messages and does not know what they
// mean.
type object struct {
	n        *Node
	s        *Session // nil: it was opened on a node
	name     string
	bucketOf func(node uint64, name []byte, buckets uint32) uint32
}

func newObject(s, n any, name string, bucketOf func(uint64, []byte, uint32) uint32) *object {
	o := &object{name: name, bucketOf: bucketOf}
	if o.s, _ = s.(*Session); o.s != nil {
		o.n = &o.s.node
	} else {
		o.n = n.(*Node)
	}
	return o
}

func (o *object) Name() string { return o.name }

func (o *object) NodeID() uint64 { return o.n.id }

func (o *object) SessionID() uint64 {
	if o.s == nil {
		return 0
	}
	return o.s.id
}

func (o *object) Context() context.Context {
	if o.s == nil {
		return context.Background()
	}
	return o.s.ctx
}

var errNeedsSession = protocol.Errorf(protocol.StatusBadRequest,
	"it was opened on a node, for reading; open it on a session")

func (o *object) bucket(ctx context.Context) (uint32, error) {
	if o.name == "" {
		return 0, protocol.Errorf(protocol.StatusBadRequest, "its name is empty; give it one")
	}
	t, err := o.n.c.tierOf(ctx, o.n.tier)
	if err != nil {
		return 0, err
	}
	return o.bucketOf(o.n.id, []byte(o.name), t.buckets), nil
}

func (o *object) Change(
	ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message,
) error {
	return o.send(ctx, kind, head, m, reply)
}

func (o *object) Send(ctx context.Context, kind protocol.Kind, m, reply protocol.Message) error {
	return o.send(ctx, kind, nil, m, reply)
}

func (o *object) send(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	if o.s == nil {
		return withOp(opName(kind), o.name, errNeedsSession)
	}
	bucket, err := o.bucket(ctx)
	switch {
	case err != nil:
	case head != nil:
		err = o.s.sendOnce(ctx, kind, bucket, head, m, reply)
	default:
		_, _, err = o.s.send(ctx, kind, bucket, &requestState{}, m, reply)
	}
	return withOp(opName(kind), o.name, err)
}

func (o *object) Request(
	ctx context.Context, kind protocol.Kind, m, reply protocol.Message,
) (repeated bool, err error) {
	bucket, err := o.bucket(ctx)
	if err == nil {
		repeated, err = o.n.c.request(ctx, o.n.c.atBucket(o.n.tier, bucket), kind, m, reply)
	}
	return repeated, withOp(opName(kind), o.name, err)
}

func (o *object) Handle(handle rpc.ProcessHandler) (stop func(), err error) {
	s := o.s
	if s == nil {
		return nil, withOp("join process", o.name, errNeedsSession)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.processHandlers[o.name] != nil:
		return nil, withOp("join process", o.name, rpc.ErrHasHandler)
	case s.processHandlers == nil:
		s.processHandlers = make(map[string]rpc.ProcessHandler)
	}
	s.processHandlers[o.name] = handle
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.processHandlers, o.name)
	}, nil
}

func (o *object) Follow(ctx context.Context, connected func()) {
	s := o.s
	retry := newRequestRetry()
	for ctx.Err() == nil && s.endErr() == nil {
		bucket, err := o.bucket(ctx)
		var route requestRoute
		if err == nil {
			route, err = s.routeRequest(ctx, bucket, &requestState{})
		}
		if err != nil {
			s.waitRetry(ctx, route.shard, bucket, route.cn, err, &retry)
			continue
		}
		retry.failures = 0
		connected()
		o.await(ctx, route, bucket)
	}
}

// await returns when the route is lost, or requests go another way.
func (o *object) await(ctx context.Context, route requestRoute, bucket uint32) {
	s := o.s
	defer s.c.needMap()()
	for {
		mapped := s.c.mapChanged()
		if s.c.routes.Load().changed(route, s.node.tier, bucket) {
			return
		}
		select {
		case <-mapped:
		case <-route.att.gone:
			return
		case <-route.cn.done:
			return
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// opName is what a request does, in errors.
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

// isFenced says that a registration is refused, not the session.
func isFenced(err error) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Status == protocol.StatusBadSession && strings.HasPrefix(e.Message, "FENCED")
}
