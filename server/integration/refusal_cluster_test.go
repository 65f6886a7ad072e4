package integration

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// frameLog is what a client's connections carry: the requests that it sends, and, while it is deaf,
// none of the server's frames that tell it of a newer map.
type frameLog struct {
	mu   sync.Mutex
	deaf bool
	sent []sentFrame
}

type sentFrame struct {
	address string
	kind    protocol.Kind
}

// dial is for client.Config.
func (f *frameLog) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &frameConn{Conn: nc, log: f, address: address}, nil
}

// begin forgets what was sent.
func (f *frameLog) begin(deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf, f.sent = deaf, nil
}

// sentTo lists the addresses that requests of a kind went to since begin.
func (f *frameLog) sentTo(kind protocol.Kind) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sent {
		if s.kind == kind {
			list = append(list, s.address)
		}
	}
	return list
}

// frameConn is one of the connections.
type frameConn struct {
	net.Conn
	log     *frameLog
	address string

	written []byte // the beginning of a frame
	read    []byte // the same of the server's
	ready   []byte // whole frames for the client
}

// frames takes the whole frames from the front of b.
func frames(b []byte, each func(frame []byte, h protocol.Header)) (rest []byte, err error) {
	for {
		frame, n, err := protocol.SplitFrame(b, protocol.MaxFrameLen)
		if n == 0 || err != nil {
			return b, err
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			return b, err
		}
		each(b[:n], h)
		b = b[n:]
	}
}

func (c *frameConn) Write(p []byte) (int, error) {
	var err error
	c.written, err = frames(append(c.written, p...), func(_ []byte, h protocol.Header) {
		c.log.mu.Lock()
		c.log.sent = append(c.log.sent, sentFrame{c.address, h.Kind})
		c.log.mu.Unlock()
	})
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *frameConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		buf := make([]byte, 64<<10)
		n, err := c.Conn.Read(buf)
		if n == 0 {
			return 0, err
		}
		if c.read, err = frames(append(c.read, buf[:n]...), func(frame []byte, h protocol.Header) {
			c.log.mu.Lock()
			defer c.log.mu.Unlock()
			if !c.log.deaf || h.Kind != protocol.KindMapChanged && h.Kind != protocol.KindMap|protocol.KindReply {
				c.ready = append(c.ready, frame...)
			}
		}); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// TestMovedBucketInTwoRequests: buckets have moved to another instance, and a client has not heard
// of it. A request or a watch for one of them is sent twice: to the former owner, whose refusal
// names the shard that has the bucket, and to that shard's leader. The client needs no map for it,
// which never comes here.
func TestMovedBucketInTwoRequests(t *testing.T) {
	form.SkipUntil(t, form.Full, "two instances, and buckets that move")
	t.Parallel()
	k := twoHalves(t)
	a, b := k.server("a"), k.server("b")
	ctx, cancel := context.WithTimeout(t.Context(), eventLimit)
	defer cancel()
	seen := new(frameLog)
	c, err := client.Open(ctx, client.Config{Endpoints: []string{a.Addr(), b.Addr()}, Dial: seen.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	node := connect(t, a).node()
	owner := func(s *instance, bucket uint32) (shard uint64) {
		shard, _ = s.Meta.State().Route(0, bucket)
		return shard
	}
	hosts := func(s *instance, bucket uint32) bool { return s.Serving.Shards.Get(owner(s, bucket)) != nil }

	// A session whose home stays where it is, and a name in each bucket.
	var s *client.Session
	for s == nil || !hosts(b, uint32(protocol.SessionBucket(s.ID()))) {
		if s != nil {
			err = s.Close(ctx)
		}
		if err == nil {
			s, err = c.Session(ctx, client.DefaultNode, client.Timeout(20*time.Minute))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := make(map[uint32]string)
	for i := 0; len(names) < 64; i++ {
		name := fmt.Sprint("name-", i)
		if bucket := protocol.Bucket(node, []byte(name), 64); names[bucket] == "" {
			names[bucket] = name
			if err := s.Create(ctx, name, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Another client only watches. It has the same map.
	watched := new(frameLog)
	watching, err := client.Open(ctx, client.Config{Endpoints: []string{a.Addr(), b.Addr()}, Dial: watched.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watching.CloseWithoutRelease)
	n, err := watching.Node(ctx, client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}

	was := a.Meta.State()
	seen.begin(true)
	watched.begin(true)
	k.weigh(1000, 3000)
	for _, name := range k.names() {
		k.awaitOn(name, "the buckets divided by the weights", divided(16, 48))
	}
	k.mapFollowed()

	moved := 0
	for bucket, name := range names {
		before, _ := was.Route(0, bucket)
		now := owner(a, bucket)
		if before == now {
			continue
		}
		moved++
		seen.begin(true)
		if _, err := s.Update(ctx, name, []byte("moved")); err != nil {
			t.Fatal(err)
		}
		if at := seen.sentTo(protocol.KindUpdate); !slices.Equal(at, []string{a.Addr(), b.Addr()}) {
			t.Errorf("the update of %s in bucket %d went to %v, of a %s and b %s", name, bucket, at, a.Addr(), b.Addr())
		}
		// What was learned counts for the next one.
		seen.begin(true)
		if _, err := s.Update(ctx, name, []byte("again")); err != nil {
			t.Fatal(err)
		}
		if at := seen.sentTo(protocol.KindUpdate); !slices.Equal(at, []string{b.Addr()}) {
			t.Errorf("the next update of %s went to %v", name, at)
		}
		watched.begin(true)
		for e, err := range n.Watch(ctx, name) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == client.EventChanged {
				if string(e.Data) != "again" {
					t.Errorf("the watch of %s begins with %q", name, e.Data)
				}
				break
			}
		}
		if at := watched.sentTo(protocol.KindWatch); !slices.Equal(at, []string{a.Addr(), b.Addr()}) {
			t.Errorf("the watch of %s went to %v", name, at)
		}
	}
	if moved != 16 {
		t.Errorf("%d buckets have moved", moved)
	}

	// What the refusals say, of changes, of reads and of watches.
	raw := connect(t, a)
	for bucket, name := range names {
		if hosts(a, bucket) {
			continue
		}
		want := protocol.Failure{Shard: owner(a, bucket), MapVersion: a.Meta.State().MapVersion()}
		for kind, m := range map[protocol.Kind]protocol.Message{
			protocol.KindDescribe: &protocol.Describe{Node: node, Name: []byte(name)},
			protocol.KindWatch:    &protocol.Watch{Shard: owner(a, bucket), Node: node, Name: []byte(name)},
			protocol.KindSessionStart: &protocol.SessionStart{
				Node: node, CreateID: id16(1), Key: id16(1), Timeout: raw.timeout(), Nonce: 1},
		} {
			if e := raw.wrongShard(kind, uint64(bucket), m); e.Shard != want.Shard || e.MapVersion != want.MapVersion || e.Master != 0 {
				t.Errorf("%v in bucket %d is refused with %+v, want %+v", kind, bucket, e, want)
			}
		}
		// The shard that had the bucket is still here.
		former, _ := was.Route(0, bucket)
		if a.Serving.Shards.Get(former) == nil {
			continue
		}
		toFormer := &protocol.Watch{Shard: former, Node: node, Name: []byte(name)}
		if e := raw.wrongShard(protocol.KindWatch, uint64(bucket), toFormer); e.Shard != want.Shard ||
			e.MapVersion != want.MapVersion || e.Master != 0 {
			t.Errorf("a watch at the former shard of bucket %d is refused with %+v, want %+v", bucket, e, want)
		}
	}
	e := raw.wrongShard(protocol.KindDescribe, 1<<40, &protocol.Describe{Node: node, Name: []byte("x")})
	if e.Shard != 0 || e.MapVersion != a.Meta.State().MapVersion() {
		t.Errorf("a bucket that there is not is refused with %+v", e)
	}
}

// wrongShard calls, and gives the refusal.
func (c *raw) wrongShard(kind protocol.Kind, bucket uint64, m protocol.Message) *protocol.Error {
	c.t.Helper()
	err := c.call(kind, bucket, m, nil)
	e, ok := err.(*protocol.Error)
	if !ok || e.Status != protocol.StatusWrongShard {
		c.t.Fatalf("%v in bucket %d: %v", kind, bucket, err)
	}
	return e
}

// TestNoMapWhileBucketMoves: a client whose request is refused because its bucket is frozen asks
// nobody for a map. It sends the request again when the instance says that the bucket is served.
func TestNoMapWhileBucketMoves(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	seen := new(frameLog)
	c, err := client.Open(ctx, client.Config{Endpoints: []string{s.Addr()}, Dial: seen.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	holder, err := c.Session(ctx, client.DefaultNode, client.Timeout(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	raw := connect(t, s)
	node, name := raw.node(), ""
	for i := 0; name == ""; i++ { // in another bucket than the session's home
		if x := fmt.Sprint("name-", i); raw.bucket(node, x) != uint64(protocol.SessionBucket(holder.ID())) {
			name = x
		}
	}
	bucket := raw.bucket(node, name)
	if err := holder.Create(ctx, name, 1, nil); err != nil {
		t.Fatal(err)
	}
	d := s.shardAt(0, bucket)
	step := func(kind shard.CommandKind, epoch uint64) {
		t.Helper()
		run := shard.BucketsBody{Total: s.Config.Buckets, First: uint32(bucket), Count: 1, Epoch: epoch}
		if err := d.Replica().ProposeInternal(ctx, shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)}); err != nil {
			t.Fatal(err)
		}
	}
	step(shard.CmdFreeze, 100)
	started := uint64(1) // at home in the frozen bucket
	for raw.homeBucket(id16(started)) != bucket {
		started++
	}
	if e := raw.wrongShard(protocol.KindSessionStart, bucket, &protocol.SessionStart{
		Node: node, CreateID: id16(started), Key: id16(1), Timeout: raw.timeout(), Nonce: 1,
	}); e.Master != s.Instance() || e.Shard != d.ID() || e.MapVersion != s.Meta.State().MapVersion() {
		t.Errorf("the refusal says %+v", e)
	}
	seen.begin(false)
	done := make(chan error, 1)
	go func() {
		_, err := holder.Update(ctx, name, []byte("moved"))
		done <- err
	}()
	await.True(t, "some refusals", func() bool { return len(seen.sentTo(protocol.KindUpdate)) > 3 })
	step(shard.CmdActivate, 101)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := len(seen.sentTo(protocol.KindMap)); n != 0 {
		t.Errorf("the map was asked for %d times", n)
	}
}
