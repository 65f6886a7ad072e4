package rollout_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// fakeServer is a server with one shard in one instance, as little as the SDK needs, around the
// machine that real servers run. It speaks the protocol over pipes, so that a test may run in
// virtual time: log time is the time of the test.
type fakeServer struct {
	t     testing.TB
	begun time.Time

	mu       sync.Mutex
	away     bool // nobody can connect
	conns    map[*fakeConn]bool
	sessions map[uint64]*fakeConn // where each is attached; nil: nowhere
	answers  map[protocol.Head]any
	last     uint64 // session
	tracks   map[string]*hostedTrack
	polls    int
	expiry   time.Duration // of a session without a connection
	log      []protocol.TrackEvent

	intercept func(l *fakeConn, h protocol.Header) (handled bool) // if set, sees each request first
}

type watchKey struct {
	on *fakeConn
	id uint64
}

// fakeConn is one connection.
type fakeConn struct {
	c    *fakeServer
	nc   net.Conn
	mu   sync.Mutex
	out  []byte
	wake chan struct{}
	over chan struct{}
}

func newFakeServer(t testing.TB) *fakeServer {
	return &fakeServer{
		t: t, begun: time.Now(), conns: map[*fakeConn]bool{}, sessions: map[uint64]*fakeConn{},
		answers: map[protocol.Head]any{}, tracks: map[string]*hostedTrack{},
		expiry: 30 * time.Second,
	}
}

// dial opens a client of the coordinator. It is abandoned with the test.
func (c *fakeServer) dial() *client.Client {
	c.t.Helper()
	cl, err := client.Open(context.Background(), c.config())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.CloseWithoutRelease)
	return cl
}

func (c *fakeServer) config() client.Config {
	return client.Config{Endpoints: []string{"one"}, Dial: c.connect}
}

func (c *fakeServer) connect(context.Context, string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	l := &fakeConn{c: c, nc: there, wake: make(chan struct{}, 1), over: make(chan struct{})}
	c.conns[l] = true
	go l.write()
	go l.serve()
	return here, nil
}

// setUnreachable cuts all connections and lets nobody in, until it is undone.
func (c *fakeServer) setUnreachable(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
	if away {
		for l := range c.conns {
			_ = l.nc.Close()
		}
	}
}

// close ends what the coordinator has going.
func (c *fakeServer) close() {
	c.setUnreachable(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.tracks {
		if h.timer != nil {
			h.timer.Stop()
		}
	}
}

func (c *fakeServer) now() rollout.Now {
	now := time.Now()
	return rollout.Now{Log: uint64(now.Sub(c.begun)/time.Millisecond) + 1, Wall: uint64(now.UnixMilli())}
}

func (l *fakeConn) serve() {
	defer close(l.over)
	defer l.gone()
	var buf []byte
	chunk := make([]byte, 4096)
	for {
		frame, n, err := protocol.SplitFrame(buf, protocol.MaxFrameLen)
		if err != nil {
			l.c.t.Error(err)
			return
		}
		if n == 0 {
			k, err := l.nc.Read(chunk)
			if err != nil {
				return
			}
			buf = append(buf, chunk[:k]...)
			continue
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			l.c.t.Error(err)
			return
		}
		l.c.mu.Lock()
		l.answer(h)
		l.c.mu.Unlock()
		buf = buf[n:]
	}
}

// gone takes in that the connection is over. Its sessions expire after a while, unless they are
// attached elsewhere by then.
func (l *fakeConn) gone() {
	_ = l.nc.Close()
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, l)
	for _, h := range c.tracks {
		maps.DeleteFunc(h.watches, func(k watchKey, _ *protocol.TrackWatch) bool { return k.on == l })
	}
	for id, at := range c.sessions {
		if at == l {
			c.sessions[id] = nil
			time.AfterFunc(c.expiry, func() {
				c.mu.Lock()
				defer c.mu.Unlock()
				if at, ok := c.sessions[id]; ok && at == nil {
					c.end(id)
				}
			})
		}
	}
}

// end ends a session. mu is held.
func (c *fakeServer) end(session uint64) {
	delete(c.sessions, session)
	for _, name := range slices.Sorted(maps.Keys(c.tracks)) {
		c.step(c.tracks[name], func(h *hostedTrack, out *rollout.Events) error {
			h.SessionEnded(c.now(), session, out)
			return nil
		})
	}
}

func (l *fakeConn) write() {
	for {
		select {
		case <-l.wake:
		case <-l.over:
			return
		}
		l.mu.Lock()
		out := l.out
		l.out = nil
		l.mu.Unlock()
		if _, err := l.nc.Write(out); err != nil {
			return
		}
	}
}

func (l *fakeConn) send(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	l.mu.Lock()
	l.out = protocol.AppendFrame(l.out, kind, id, arg, m)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// reply answers a request: with a message, or with the error that there is instead.
func (l *fakeConn) reply(h protocol.Header, m protocol.Message, err error) {
	if err == nil {
		l.send(h.Kind|protocol.KindReply, h.ID, 0, m)
		return
	}
	var e *protocol.Error
	if !errors.As(err, &e) {
		l.c.t.Errorf("%v has no status", err)
		return
	}
	l.send(h.Kind|protocol.KindReply, h.ID, uint64(e.Status), &protocol.Failure{Message: e.Message, Refusal: e.Refusal})
}

func decode[M protocol.Message](l *fakeConn, h protocol.Header, m M) M {
	if err := protocol.DecodeBody(m, h.Body); err != nil {
		l.c.t.Error(err)
	}
	return m
}

var errNoTrack = protocol.Errorf(protocol.StatusNotFound, "there is no such track; create it first")

// answer serves a request. mu is held.
func (l *fakeConn) answer(h protocol.Header) {
	c := l.c
	if c.intercept != nil && c.intercept(l, h) {
		return
	}
	switch h.Kind {
	case protocol.KindHello:
		l.reply(h, &protocol.HelloReply{
			Version: protocol.Version, Cluster: "test", Instance: 1, MaxFrame: protocol.MaxFrameLen,
			MaxData: protocol.MaxDataLen, Window: 64,
		}, nil)
	case protocol.KindMap:
		l.reply(h, &protocol.MapReply{
			Version: 1, Cluster: "test", Instances: []protocol.MapInstance{{ID: 1, Name: "one", Address: "one"}},
			Shards: []protocol.MapShard{{ID: 1, Master: 1, Term: 1, Replicas: []uint64{1}}},
			Tiers:  []protocol.MapTier{{Name: "default", Buckets: 4, Runs: []protocol.MapRun{{Count: 4, Shard: 1}}}},
		}, nil)
	case protocol.KindNodeDescribe:
		l.reply(h, &protocol.NodeInfo{ID: 7, Path: decode(l, h, &protocol.NodeDescribe{}).Path, Config: protocol.DefaultNodeConfig()}, nil)
	case protocol.KindPing:
		l.send(protocol.KindPong, h.ID, 0, nil)
		l.send(protocol.KindPong, h.ID, 1, nil)
	case protocol.KindSessionStart:
		m := decode(l, h, &protocol.SessionStart{})
		c.last++
		id := protocol.MakeSessionID(0, uint16(h.Arg), c.last)
		c.sessions[id] = l
		l.reply(h, &protocol.SessionReply{Session: id, Epoch: 1, Shard: 1, Timeout: m.Timeout,
			Grace: protocol.DefaultGracePeriod, Ticket: []byte("t")}, nil)
	case protocol.KindSessionAttach:
		m := decode(l, h, &protocol.SessionAttach{})
		if _, ok := c.sessions[m.Session]; !ok {
			l.reply(h, nil, protocol.Errorf(protocol.StatusSessionExpired, "it expired"))
			return
		}
		c.sessions[m.Session] = l
		l.reply(h, &protocol.SessionReply{
			Session: m.Session, Epoch: m.Epoch, Shard: 1, Timeout: m.Timeout, Grace: protocol.DefaultGracePeriod, Ticket: []byte("t"),
		}, nil)
	case protocol.KindSessionStop:
		c.end(decode(l, h, &protocol.SessionStop{}).Session)
		l.reply(h, &protocol.Empty{}, nil)
	case protocol.KindTrackWatch:
		l.watch(h, decode(l, h, &protocol.TrackWatch{}))
	case protocol.KindUnwatch:
		m := decode(l, h, &protocol.Unwatch{})
		for _, t := range c.tracks {
			delete(t.watches, watchKey{l, m.WatchID})
		}
		l.reply(h, &protocol.Empty{}, nil)
	default:
		l.track(h)
	}
}

func (l *fakeConn) watch(h protocol.Header, m *protocol.TrackWatch) {
	t := l.c.tracks[string(m.Name)]
	if t == nil {
		l.reply(h, nil, errNoTrack)
		return
	}
	t.watches[watchKey{l, h.ID}] = m
	l.reply(h, &protocol.Empty{}, nil)
	w := t.Describe(l.c.now())
	w.Name = m.Name
	l.send(protocol.KindTrackStatus, h.ID, 1, &w)
}
