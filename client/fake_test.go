package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// fake is a cluster as the client sees it, for faults a real one cannot be made to have: it answers
// by a few simple rules, and a test takes over what it likes with on. Bucket b of four belongs to
// shard b+1, and shard s is mastered by instance master[s].
type fake struct {
	t        testing.TB
	window   uint32
	features uint64

	mu         sync.Mutex
	version    uint64
	master     map[uint64]uint64
	replicas   []uint64          // instances, which have all shards; nil: 1 and 2
	only       map[uint64]uint64 // shards -> the only instance that has it
	conns      map[*fakeConn]bool
	refuse     bool              // new connections
	noTiers    bool              // it has no tier yet
	moved      map[uint64]uint64 // bucket -> the shard that it belongs to instead
	log        []seenRequest
	on         func(fc *fakeConn, h protocol.Header) (handled bool) // called with mu held
	epochs     map[uint64]uint64                                    // sessions -> attach epoch
	attachedAt map[uint64]*fakeConn                                 // sessions -> where they are attached
	nonces     map[uint64]uint64                                    // of sessions
	sessions   uint64
	orders     uint64
	memory     map[uint64]uint64 // acquire's number -> order id
	holds      map[string]uint64 // names -> order id
}

// seenRequest is a request that arrived.
type seenRequest struct {
	instance uint64
	kind     protocol.Kind
	id       uint64
	arg      uint64
	body     []byte
}

type fakeConn struct {
	f        *fake
	nc       net.Conn
	instance uint64
	mu       sync.Mutex
	out      []byte
	wake     chan struct{}
	closed   chan struct{}
}

func newFake(t testing.TB) *fake {
	return &fake{
		t: t, window: 64, version: 1, master: map[uint64]uint64{1: 1, 2: 1, 3: 1, 4: 1}, conns: map[*fakeConn]bool{},
		epochs:     map[uint64]uint64{},
		attachedAt: map[uint64]*fakeConn{}, nonces: map[uint64]uint64{}, memory: map[uint64]uint64{}, holds: map[string]uint64{},
	}
}

// open dials the fake; the address of instance i is "i".
func (f *fake) open(t testing.TB, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Endpoints: []string{"1"}, Dial: f.dial, clock: bubbleClock{}}
	for _, c := range change {
		c(&cfg)
	}
	c, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseWithoutRelease()
		f.drop()
	})
	return c
}

// openNode is open, and the node /n.
func (f *fake) openNode(t testing.TB) (*Client, *Node) {
	t.Helper()
	c := f.open(t)
	n, err := c.Node(context.Background(), "/n")
	if err != nil {
		t.Fatal(err)
	}
	return c, n
}

func (f *fake) dial(ctx context.Context, address string) (net.Conn, error) {
	var instance uint64
	if _, err := fmt.Sscan(address, &instance); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	fc := &fakeConn{f: f, nc: there, instance: instance, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	f.conns[fc] = true
	go fc.write()
	go fc.serve()
	return here, nil
}

// drop closes all connections.
func (f *fake) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fc := range f.conns {
		_ = fc.nc.Close()
	}
	clear(f.conns)
}

// set changes the fake between requests.
func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// count is how many requests of a kind arrived.
func (f *fake) count(kind protocol.Kind) int { return len(f.all(kind)) }

// all is the requests of a kind that arrived.
func (f *fake) all(kind protocol.Kind) (list []seenRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.log {
		if s.kind == kind {
			list = append(list, s)
		}
	}
	return list
}

func decode[T any, M interface {
	*T
	protocol.Message
}](t testing.TB, body []byte) T {
	t.Helper()
	var v T
	if err := M(&v).DecodeBody(body); err != nil {
		t.Error(err)
	}
	return v
}

func (fc *fakeConn) serve() {
	defer close(fc.closed)
	defer fc.nc.Close()
	var buf []byte
	chunk := make([]byte, 4096)
	for {
		frame, n, err := protocol.SplitFrame(buf, protocol.MaxFrameLen)
		if err != nil {
			fc.f.t.Error(err)
			return
		}
		if n == 0 {
			k, err := fc.nc.Read(chunk)
			if err != nil {
				return
			}
			buf = append(buf, chunk[:k]...)
			continue
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			fc.f.t.Error(err)
			return
		}
		h.Body = append([]byte(nil), h.Body...)
		buf = buf[n:]
		fc.f.mu.Lock()
		fc.f.log = append(fc.f.log, seenRequest{fc.instance, h.Kind, h.ID, h.Arg, h.Body})
		if fc.f.on == nil || !fc.f.on(fc, h) {
			fc.answer(h)
		}
		fc.f.mu.Unlock()
	}
}

func (fc *fakeConn) write() {
	for {
		select {
		case <-fc.wake:
		case <-fc.closed:
			return
		}
		fc.mu.Lock()
		out := fc.out
		fc.out = nil
		fc.mu.Unlock()
		if _, err := fc.nc.Write(out); err != nil {
			return
		}
	}
}

func (fc *fakeConn) send(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	fc.sendBytes(protocol.AppendFrame(nil, kind, id, arg, m))
}

func (fc *fakeConn) sendBytes(b []byte) {
	fc.mu.Lock()
	fc.out = append(fc.out, b...)
	fc.mu.Unlock()
	select {
	case fc.wake <- struct{}{}:
	default:
	}
}

func (fc *fakeConn) reply(h protocol.Header, m protocol.Message) {
	fc.send(h.Kind|protocol.KindReply, h.ID, 0, m)
}

func (fc *fakeConn) fail(h protocol.Header, status protocol.Status) {
	fc.send(h.Kind|protocol.KindReply, h.ID, uint64(status), &protocol.Failure{Message: "says the fake"})
}

// answer is what the fake does by itself.
func (fc *fakeConn) answer(h protocol.Header) {
	f := fc.f
	switch h.Kind {
	case protocol.KindHello:
		fc.reply(h, &protocol.HelloReply{
			Version: protocol.Version, Features: f.features, Cluster: "fake", Instance: fc.instance, MaxFrame: protocol.MaxFrameLen,
			MaxData: protocol.MaxDataLen, Window: f.window, MapVersion: f.version,
		})
	case protocol.KindMap:
		fc.reply(h, f.mapReply())
	case protocol.KindNodeDescribe:
		m := decode[protocol.NodeDescribe](f.t, h.Body)
		fc.reply(h, &protocol.NodeInfo{ID: 7, Path: m.Path, Config: protocol.DefaultNodeConfig()})
	case protocol.KindSessionStart:
		m := decode[protocol.SessionStart](f.t, h.Body)
		if h.Arg == protocol.HomeOfCreateID {
			h.Arg = uint64(protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), 4))
			if f.features&protocol.FeatureStartByPath == 0 || f.master[h.Arg+1] != fc.instance {
				fc.fail(h, protocol.StatusWrongShard)
				return
			}
		}
		f.sessions++
		id := protocol.MakeSessionID(0, uint16(h.Arg), f.sessions)
		f.epochs[id], f.attachedAt[id], f.nonces[id] = 1, fc, m.Nonce
		reply := protocol.SessionReply{
			Session: id, Epoch: 1, Shard: h.Arg + 1, Timeout: m.Timeout, Grace: protocol.DefaultGracePeriod, Ticket: []byte("ticket 1"),
		}
		if f.features&protocol.FeatureStartByPath != 0 {
			reply.Node, reply.ReadConsistency = 7, protocol.Relaxed
		}
		fc.reply(h, &reply)
	case protocol.KindSessionAttach:
		m := decode[protocol.SessionAttach](f.t, h.Body)
		if m.Epoch < f.epochs[m.Session] || m.Epoch == f.epochs[m.Session] && m.Nonce != f.nonces[m.Session] {
			fc.fail(h, protocol.StatusBadSession)
			return
		}
		f.epochs[m.Session], f.attachedAt[m.Session], f.nonces[m.Session] = m.Epoch, fc, m.Nonce
		fc.reply(h, &protocol.SessionReply{
			Session: m.Session, Epoch: m.Epoch, Shard: h.Arg + 1, Timeout: m.Timeout, Grace: protocol.DefaultGracePeriod,
			Ticket: fmt.Appendf(nil, "ticket %d", m.Epoch),
		})
	case protocol.KindPing:
		fc.send(protocol.KindPong, h.ID, 0, nil)
		for shard, master := range f.master {
			if master == fc.instance {
				fc.send(protocol.KindPong, h.ID, shard, nil)
			}
		}
	case protocol.KindAcquire:
		m := decode[protocol.Acquire](f.t, h.Body)
		name := string(m.Name)
		switch {
		case f.memory[m.Seq] != 0 && f.holds[name] == f.memory[m.Seq]:
			fc.reply(h, &protocol.AcquireReply{State: protocol.Acquired, OrderID: f.memory[m.Seq]})
		case f.memory[m.Seq] != 0 || f.holds[name] != 0:
			fc.reply(h, &protocol.AcquireReply{State: protocol.NotAcquired})
		default:
			f.orders++
			f.memory[m.Seq], f.holds[name] = f.orders, f.orders
			fc.reply(h, &protocol.AcquireReply{State: protocol.Acquired, OrderID: f.orders})
		}
	case protocol.KindRelease:
		m := decode[protocol.Release](f.t, h.Body)
		held := f.holds[string(m.Name)]
		delete(f.holds, string(m.Name))
		fc.reply(h, &protocol.ReleaseReply{Released: held != 0})
	case protocol.KindDescribe:
		m := decode[protocol.Describe](f.t, h.Body)
		fc.reply(h, &protocol.DescribeReply{Index: 1, Revision: 1, Name: m.Name, Data: m.Name})
	case protocol.KindUpdate:
		fc.reply(h, &protocol.UpdateReply{Version: 2})
	default:
		fc.reply(h, &protocol.Empty{})
	}
}

func (f *fake) mapReply() *protocol.MapReply {
	m := &protocol.MapReply{Version: f.version, Cluster: "fake"}
	if f.noTiers {
		return m
	}
	m.Tiers = []protocol.MapTier{{Buckets: 4}}
	replicas := f.replicas
	if replicas == nil {
		replicas = []uint64{1, 2}
	}
	for _, i := range replicas {
		m.Instances = append(m.Instances, protocol.MapInstance{ID: i, Address: fmt.Sprint(i)})
	}
	for s := uint64(1); s <= 4; s++ {
		own := replicas
		if only := f.only[s]; only != 0 {
			own = []uint64{only}
		}
		m.Shards = append(m.Shards, protocol.MapShard{ID: s, Master: f.master[s], Replicas: own})
		owner := s
		if to := f.moved[s-1]; to != 0 {
			owner = to
		}
		m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: 1, Shard: owner})
	}
	return m
}

// bubbleClock is the time of a synctest bubble, or real time outside.
type bubbleClock struct{}

func (bubbleClock) now() time.Duration { return time.Since(time.Unix(0, 0)) }
func (bubbleClock) wall() time.Time    { return time.Now() }

// handClock adds to the bubble's time what a test says has passed unseen.
type handClock struct {
	mu          sync.Mutex
	slept, jump time.Duration
}

func (c *handClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bubbleClock{}.now() + c.slept
}

func (c *handClock) wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.slept + c.jump)
}

func (c *handClock) add(slept, jump time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += slept
	c.jump += jump
}

// nameIn is a name whose bucket is b.
func nameIn(b uint32) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("name", i)
		if protocol.Bucket(7, []byte(name), 4) == b {
			return name
		}
	}
}

// sessionIn is a session whose home is bucket b.
func (f *fake) sessionIn(t testing.TB, c *Client, b uint32, opts ...SessionOption) *Session {
	t.Helper()
	for {
		s, err := c.Session(context.Background(), "/n", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if protocol.SessionBucket(s.id) == b {
			return s
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // its callbacks are over before the next one's begin
	}
}

// stops is how many stops of a session arrived.
func (f *fake) stops(s *Session) (n int) {
	for _, r := range f.all(protocol.KindSessionStop) {
		if decode[protocol.SessionStop](f.t, r.body).Session == s.id {
			n++
		}
	}
	return n
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
