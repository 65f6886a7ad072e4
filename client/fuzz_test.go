package client

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// deafConn swallows what is written and never has anything to read.
type deafConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func newDeafConn() *deafConn { return &deafConn{closed: make(chan struct{})} }

func (d *deafConn) Read([]byte) (int, error) {
	<-d.closed
	return 0, net.ErrClosed
}
func (d *deafConn) Write(b []byte) (int, error) { return len(b), nil }
func (d *deafConn) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
func (d *deafConn) Close() error {
	d.once.Do(func() { close(d.closed) })
	return nil
}

// FuzzServer feeds bytes of a server to a client with a session, a lease, a waiting acquire, a
// watch and a call under way. Whatever they are, it must not panic or hang, and frames cut into
// pieces must have the effect of whole ones.
func FuzzServer(f *testing.F) {
	id := protocol.MakeSessionID(0, 1, 1)
	frame := protocol.AppendFrame
	snapshot := &protocol.Snapshot{First: true, Last: true, Index: 3, Semaphores: []protocol.SnapshotItem{
		{Name: []byte("w"), Limit: 3, Version: 1, Data: []byte("d"), Owners: []protocol.Owner{{OrderID: 1, Session: 2, Count: 1}}},
	}}
	delta := &protocol.Delta{Node: 7, Name: []byte("w"), Index: 4, Changes: []protocol.SemaphoreChange{
		{Kind: protocol.ChangeOwnerRemoved, Owner: protocol.Owner{OrderID: 1}}, {Kind: protocol.ChangeDeleted}, {Kind: protocol.ChangeCreated, Limit: 1},
		{Kind: protocol.ChangeOwnerAdded, Owner: protocol.Owner{OrderID: 9}}, {Kind: 99},
	}}
	for _, seed := range [][]byte{
		{},
		[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		{0, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff},
		{0, 0, 0, 5, 0xc6, 0xff, 0xff, 0xff, 0xff},
		append([]byte{0, 0, 0x40, 0}, bytes.Repeat([]byte{0x91}, 0x4000)...),
		frame(nil, protocol.KindDescribe|protocol.KindReply, 1, 0,
			&protocol.DescribeReply{Name: []byte("x"), Owners: []protocol.Owner{{}}}),
		frame(nil, protocol.KindDescribe|protocol.KindReply, 1, 300, nil),
		frame(nil, protocol.KindDescribe|protocol.KindReply, 1, 2, &protocol.Failure{Message: "no"}),
		frame(nil, protocol.KindDescribe|protocol.KindReply, 1, 10,
			&protocol.Failure{Master: 1, Term: 1 << 63, Shard: 1, MapVersion: 1 << 63}),
		frame(nil, protocol.KindWatch|protocol.KindReply, 2, 9, &protocol.Failure{Message: "no"}),
		frame(nil, protocol.KindPong, 1, 1, nil),
		frame(nil, protocol.KindPong, 1<<63, 1, nil),
		frame(nil, protocol.KindGoodbye, 0, 0, &protocol.Goodbye{Status: 9}),
		frame(nil, protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 99}),
		frame(nil, protocol.KindSessionEnded, 0, 2, &protocol.SessionEnded{Session: id, Reason: 77}),
		frame(nil, protocol.KindTakenOver, 0, 2, &protocol.TakenOver{Session: id, Epoch: 9}),
		frame(nil, protocol.KindAcquireResult, 0, 2, &protocol.AcquireResult{Session: id, Seq: 1, State: protocol.Acquired}),
		frame(nil, protocol.KindLeaseLost, 0, 2, &protocol.LeaseLost{Session: id, Name: []byte("held"), OrderID: 5}),
		frame(nil, protocol.KindWatchFired, 0, 2, &protocol.WatchFired{WatchID: 1}),
		append(frame(nil, protocol.KindSnapshot, 2, 1, snapshot), frame(nil, protocol.KindDelta, 0, 1, delta)...),
		append(frame(nil, protocol.KindDelta, 0, 1, delta), frame(nil, protocol.KindStreamCut, 2, 1, &protocol.StreamCut{Status: 2})...),
		frame(nil, protocol.KindAcquire, 1, 0, nil),
		frame(nil, 0x7f, 1, 0, nil),
	} {
		f.Add(seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		whole := feed(t, id, data, len(data)+1)
		if cut > 0 {
			if pieces := feed(t, id, data, int(cut)); pieces != whole {
				t.Fatalf("in pieces %q, whole %q", pieces, whole)
			}
		}
	})
}

// feed gives bytes to a fresh client and says what they did.
func feed(t *testing.T, id uint64, data []byte, piece int) string {
	c := newClient(Config{
		Endpoints: []string{"x"}, clock: bubbleClock{}, Logger: discard(),
		Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody there") },
	})
	r, err := newRouteTable(&protocol.MapReply{Version: 1, Shards: []protocol.MapShard{{ID: 1, Master: 1}},
		Tiers: []protocol.MapTier{{Buckets: 1, Runs: []protocol.MapRun{{Count: 1, Shard: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	c.routes.Store(r)
	cn := newConn(c, newDeafConn(), protocol.HelloReply{Instance: 1, Window: 100, MaxFrame: protocol.MaxFrameLen}, nil, c.clock)
	cn.serve()
	c.adopt(cn, "x")
	n := nodeOf(c, "/n", &protocol.NodeInfo{ID: 7, Config: protocol.DefaultNodeConfig()})
	s := newSession(&n, sessionOptions{timeout: time.Hour})
	if err := s.activate(s.clockBeforeStart(), cn,
		&protocol.SessionReply{Session: id, Epoch: 1, Shard: 1, Timeout: 3_600_000}, false); err != nil {
		t.Fatal(err)
	}
	e := &nameLock{name: "held"}
	e.lease = &Lease{s: s, name: "held", token: 5, route: requestRoute{att: s.attachment, cn: cn}}
	a := &acquireOp{s: s}
	s.mu.Lock()
	a.x.seq = 1
	s.nameLocks.put(e)
	s.mu.Unlock()
	s.expect(a)
	shot := &oneShot{id: 1, c: c, cn: cn, ch: make(chan WatchResult, 1)}
	shot.arm()

	cl, first, err := cn.startCall(bg, nil, protocol.KindDescribe, 0, nil, nil)
	if err != nil || first != 1 {
		t.Fatal(first, err)
	}
	w := &watch{n: &s.node, name: "", prefix: true, wake: make(chan struct{}, 1), names: map[string]*watchedSemaphore{}, routes: r}
	p := newShardWatch(w, 1)
	w.shardWatches, w.idle = []*shardWatch{p}, 1
	if err := p.open(bg); err != nil {
		t.Fatal(err)
	}

	var buf []byte
	for len(data) > 0 && err == nil {
		n := min(piece, len(data))
		buf = append(buf, data[:n]...)
		data = data[n:]
		err = cn.consumeAll(&buf)
	}
	if err != nil {
		cn.end(err)
	}
	var out bytes.Buffer
	select {
	case <-cl.done:
		out.WriteString("answered ")
		if cl.err == nil {
			var reply protocol.DescribeReply
			_ = cl.answer(&reply)
		}
	default:
	}
	if err == nil {
		s.mu.Lock()
		if s.m.State() == sessionstate.Expired {
			out.WriteString("expired ")
		}
		if e.lease == nil {
			out.WriteString("lost ")
		}
		if a.result != nil {
			out.WriteString("result ")
		}
		s.mu.Unlock()
		if shot.over.Load() {
			out.WriteString("fired ")
		}
		for {
			var ev Event
			ok, err := w.next(&ev)
			if !ok {
				if err != nil {
					out.WriteString("watch ended")
				}
				break
			}
			out.WriteString(ev.Name)
			out.WriteByte('0' + byte(ev.Kind))
		}
	}
	c.CloseWithoutRelease()
	cn.end(ErrClientClosed)
	return out.String()
}

// FuzzMap reads any map a server may send.
func FuzzMap(f *testing.F) {
	f.Add((&protocol.MapReply{Version: 1,
		Tiers: []protocol.MapTier{{Buckets: 4, Runs: []protocol.MapRun{{Count: 4, Shard: 1}}}}}).AppendBody(nil))
	f.Add((&protocol.MapReply{Version: 1, Tiers: []protocol.MapTier{{Buckets: 1 << 31,
		Runs: []protocol.MapRun{{Count: 1 << 31, Shard: 1}, {Count: 1 << 31}}}}}).AppendBody(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m protocol.MapReply
		if protocol.CheckBody(data) != nil || m.DecodeBody(data) != nil {
			return
		}
		r, err := newRouteTable(&m)
		if err != nil {
			return
		}
		for i, tier := range r.tiers {
			if tier == nil {
				continue
			}
			id, bucket := uint8(i), uint32(0)
			for _, run := range lastTier(m.Tiers, id).Runs {
				for range run.Count {
					if r.owner(id, bucket) != run.Shard {
						t.Fatal("a bucket has another owner than its run")
					}
					bucket++
				}
			}
			if bucket != tier.buckets || r.owner(id, bucket) != 0 {
				t.Fatal("a tier with holes")
			}
			for _, shard := range tier.shards {
				if r.owner(id, tier.someBucket[shard]) != shard {
					t.Fatal("a bucket of a shard is another's")
				}
			}
		}
	})
}

// lastTier is the tier that counts when a server names one twice.
func lastTier(list []protocol.MapTier, id uint8) (last protocol.MapTier) {
	for _, t := range list {
		if t.ID == id {
			last = t
		}
	}
	return last
}
