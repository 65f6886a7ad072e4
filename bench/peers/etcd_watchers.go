package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/bench"
)

// etcdWatchersVerb runs watchers; only the program itself uses it.
const etcdWatchersVerb = "etcd-watchers"

// etcdWatchers are thousands of watchers of one service, each with a connection of its own, in a
// process that does nothing else. Each reads the list and watches from its revision on, goes to
// another member at random when its own is lost, and goes on there from the revision that it knows.
type etcdWatchers struct {
	Endpoints []string
	Count     int

	group   *bench.WatcherGroup
	reads   chan struct{}
	replies replyCache
}

// etcdReads is how many of them read the list at once: etcd makes each answer again and whole, and
// thousands at once do not fit into its memory.
const etcdReads = 200

func etcdWatchersCommand(ctx context.Context, config string, in io.Reader, out io.Writer) error {
	g := new(etcdWatchers)
	if err := json.Unmarshal([]byte(config), g); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	g.group, g.reads = bench.NewWatcherGroup(len(g.Endpoints)), make(chan struct{}, etcdReads)
	for i := range g.Count {
		all.Go(func() {
			w := &etcdWatcher{Watcher: bench.Watcher{WatcherGroup: g.group}, g: g}
			w.Run(ctx, i, len(g.Endpoints), w.watch)
		})
	}
	return g.group.Answer(in, out)
}

// etcdWatcher is one of them.
type etcdWatcher struct {
	bench.Watcher
	g     *etcdWatchers
	known int64 // revision; 0: none
}

var serviceEnd = []byte(clientv3.GetPrefixRangeEnd(servicePrefix))

// watch follows the service on a connection to one server until that ends.
func (w *etcdWatcher) watch(ctx context.Context, server int) (followed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+w.g.Endpoints[server], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(8<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	end := w.Connected(server)
	defer func() { followed = end() }()
	resumed := w.known > 0
	if !resumed {
		if err := w.read(ctx, conn); err != nil {
			return false, err
		}
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, pb.Watch_Watch_FullMethodName)
	if err != nil {
		return false, err
	}
	if err := stream.SendMsg(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(servicePrefix), RangeEnd: serviceEnd, StartRevision: w.known + 1,
	}}}); err != nil {
		return false, err
	}
	for {
		var b []byte
		if err := stream.RecvMsg(&b); err != nil {
			return false, err
		}
		w.Read(len(b))
		switch r := w.g.replies.find(b, decodeWatch); {
		case r.err != nil:
			w.known = 0 // compacted, perhaps
			return false, r.err
		case r.created:
			w.Follows(resumed)
		case r.events:
			w.known = max(w.known, r.revision)
			w.Changed(r.made)
		}
	}
}

// read reads the whole list.
func (w *etcdWatcher) read(ctx context.Context, conn *grpc.ClientConn) error {
	select {
	case w.g.reads <- struct{}{}:
		defer func() { <-w.g.reads }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var b []byte
	err := conn.Invoke(ctx, pb.KV_Range_FullMethodName, &pb.RangeRequest{Key: []byte(servicePrefix), RangeEnd: serviceEnd}, &b)
	if err != nil {
		return err
	}
	w.Read(len(b))
	r := w.g.replies.find(b, decodeRange)
	w.known = r.revision
	return r.err
}

// rawCodec leaves answers as they are, so that what thousands of connections get alike is decoded
// once.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }

func (rawCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}

// reply is what an answer says.
type reply struct {
	bytes           []byte
	revision        int64
	created, events bool
	made            []int64 // when the changes were made, ns since 1970
	err             error
}

func decodeRange(b []byte) *reply {
	var m pb.RangeResponse
	err := proto.Unmarshal(b, &m)
	return &reply{revision: m.GetHeader().GetRevision(), err: err}
}

func decodeWatch(b []byte) *reply {
	var m pb.WatchResponse
	r := &reply{err: proto.Unmarshal(b, &m)}
	if m.GetCanceled() {
		r.err = fmt.Errorf("the watch is cancelled: %s, compacted at %d", m.GetCancelReason(), m.GetCompactRevision())
	}
	r.revision, r.created, r.events = m.GetHeader().GetRevision(), m.GetCreated(), len(m.GetEvents()) > 0
	for _, ev := range m.GetEvents() {
		if at, ok := bench.MadeAt(ev.GetKv().GetValue()); ok && ev.GetType() == mvccpb.Event_PUT {
			r.made = append(r.made, at)
		}
	}
	return r
}

// replyCache has the newest answers.
type replyCache struct {
	mu   sync.RWMutex
	list [32]*reply
	next int
}

// find decodes an answer, unless one with the same bytes was decoded before.
func (c *replyCache) find(b []byte, decode func([]byte) *reply) *reply {
	c.mu.RLock()
	for _, r := range c.list {
		if r != nil && bytes.Equal(r.bytes, b) {
			c.mu.RUnlock()
			return r
		}
	}
	c.mu.RUnlock()
	r := decode(b)
	r.bytes = b
	c.mu.Lock()
	c.list[c.next%len(c.list)] = r
	c.next++
	c.mu.Unlock()
	return r
}
