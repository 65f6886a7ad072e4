package driver

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// modelMachine is the clocks of a machine that sleeps, and whose time of day somebody sets. Timers
// are those of the bubble, and do not run while it sleeps.
type modelMachine struct {
	began        time.Time
	mu           sync.Mutex
	slept        time.Duration // which the clock of leases shows, and the time of day
	stood        time.Duration // the process alone, which the same clocks show
	unseen       time.Duration // which the time of day alone shows
	set          time.Duration // ahead, or back, for nothing
	disturbed    time.Duration // real time, when something of this happened last, or the server went or came back
	doubted      time.Duration // clock, when the machine slept unseen last
	wrongForward bool          // the time of day was set ahead
}

func (m *modelMachine) read(f func(ran time.Duration) time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return f(time.Since(m.began))
}

// real is the time that the server and everybody else has.
func (m *modelMachine) real() time.Duration {
	return m.read(func(ran time.Duration) time.Duration { return ran + m.slept + m.stood + m.unseen })
}

func (m *modelMachine) now() time.Duration {
	return m.read(func(ran time.Duration) time.Duration { return time.Hour + ran + m.slept + m.stood })
}

func (m *modelMachine) wall() time.Duration {
	return m.read(func(ran time.Duration) time.Duration {
		return 1000*time.Hour + ran + m.slept + m.stood + m.unseen + m.set
	})
}

func (m *modelMachine) asleep() time.Duration {
	return m.read(func(time.Duration) time.Duration { return m.slept })
}

const modelTimeout = 2 * time.Second

// modelServer has one session and its leases. It answers what is written before Write returns.
type modelServer struct {
	machine *modelMachine

	mu       sync.Mutex
	away     bool
	conns    []*modelConn
	started  bool
	ended    bool
	deadline time.Duration
	leases   map[string]*modelHold
	orders   uint64
}

type modelHold struct {
	token uint64
	seq   uint64        // of the acquire that set it
	until time.Duration // real time; 0: it has no bound
	hold  time.Duration // from when that was set
}

// modelConn is a connection to it.
type modelConn struct {
	net.Conn // nil
	s        *modelServer
	cond     *sync.Cond
	in, out  []byte
	over     bool
}

var errAway = errors.New("the server is away")

func (s *modelServer) dial(context.Context, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errAway
	}
	c := &modelConn{s: s, cond: sync.NewCond(&s.mu)}
	s.conns = append(s.conns, c)
	return c, nil
}

func (c *modelConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.over {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	if !c.s.away {
		c.serve()
	}
	return len(b), nil
}

func (c *modelConn) Read(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for len(c.out) == 0 && !c.over {
		c.cond.Wait()
	}
	if c.over {
		return 0, net.ErrClosed
	}
	n := copy(b, c.out)
	c.out = append(c.out[:0], c.out[n:]...)
	return n, nil
}

func (c *modelConn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.over = true
	c.cond.Broadcast()
	return nil
}

func (c *modelConn) SetDeadline(time.Time) error { return nil }

// reach has the server away, or back, with what was written to it meanwhile.
func (s *modelServer) reach(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away = away; away {
		return
	}
	for _, c := range s.conns {
		if !c.over {
			c.serve()
		}
	}
}

// has reports whether the server has given a lease away, or would.
func (s *modelServer) has(name string, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	l := s.leases[name]
	return l != nil && l.token == token
}

// lives reports whether the session does.
func (s *modelServer) lives() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	return s.started && !s.ended
}

// left is what is left of a hold, and how long it was; false: it has no bound.
func (s *modelServer) left(name string) (left, hold time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if l := s.leases[name]; l != nil && l.until != 0 {
		return l.until - s.machine.real(), l.hold, true
	}
	return 0, 0, false
}

// expire ends what ends by the time.
func (s *modelServer) expire() {
	now := s.machine.real()
	if s.started && now >= s.deadline {
		s.ended = true
	}
	for name, l := range s.leases {
		if s.ended || l.until != 0 && now >= l.until {
			delete(s.leases, name)
		}
	}
}

// preempt says to the holder of a name that a waiter wants it.
func (s *modelServer) preempt(name string, number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[name]
	if l == nil || s.away || len(s.conns) == 0 || s.conns[len(s.conns)-1].over {
		return false
	}
	c := s.conns[len(s.conns)-1]
	c.send(protocol.KindLeasePreempted, 0, 0, &protocol.LeasePreempted{
		Session: 1, Name: []byte(name), OrderID: l.token, Preemption: number, Now: s.millis(),
		Until: uint64(l.until.Milliseconds()),
	})
	return true
}

func (s *modelServer) millis() uint64 { return uint64(s.machine.real().Milliseconds()) }

func (c *modelConn) send(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	c.out = protocol.AppendFrame(c.out, kind, id, arg, m)
	c.cond.Signal()
}

// serve answers what was written.
func (c *modelConn) serve() {
	for {
		frame, n, err := protocol.SplitFrame(c.in, protocol.MaxFrameLen)
		if err != nil {
			panic(err)
		}
		if n == 0 {
			return
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		c.answer(h)
		c.in = c.in[n:]
	}
}

func (c *modelConn) answer(h protocol.Header) {
	s := c.s
	s.expire()
	reply := func(m protocol.Message) { c.send(h.Kind|protocol.KindReply, h.ID, 0, m) }
	switch h.Kind {
	case protocol.KindHello:
		reply(&protocol.HelloReply{
			Version: protocol.Version, Cluster: "c", Instance: 1, Window: 4096, MaxFrame: protocol.MaxFrameLen, MapVersion: 1,
		})
		return
	case protocol.KindMap:
		reply(&protocol.MapReply{
			Version: 1, Cluster: "c", Instances: []protocol.MapInstance{{ID: 1, Address: "1"}},
			Shards: []protocol.MapShard{{ID: 1, Master: 1, Replicas: []uint64{1}}},
			Tiers:  []protocol.MapTier{{Buckets: 16, Runs: []protocol.MapRun{{Count: 16, Shard: 1}}}},
		})
		return
	case protocol.KindPing:
		c.send(protocol.KindPong, h.ID, 0, nil)
		if s.started && !s.ended {
			s.renew()
			c.send(protocol.KindPong, h.ID, 1, nil)
		}
		return
	case protocol.KindSessionStart:
		s.started = true
		s.renew()
		reply(s.session(1))
		return
	}
	if s.ended {
		c.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusSessionExpired), &protocol.Failure{})
		return
	}
	switch h.Kind {
	case protocol.KindSessionAttach:
		var m protocol.SessionAttach
		_ = protocol.DecodeBody(&m, h.Body)
		s.renew()
		reply(s.session(m.Epoch))
	case protocol.KindSessionStop:
		s.ended = true
		reply(&protocol.Empty{})
	case protocol.KindAcquire:
		var m protocol.Acquire
		_ = m.DecodeBody(h.Body)
		reply(s.acquire(&m))
	case protocol.KindRelease:
		var m protocol.Release
		_ = m.DecodeBody(h.Body)
		l := s.leases[string(m.Name)]
		released := l != nil && (m.OrderID == 0 || m.OrderID == l.token)
		if released {
			delete(s.leases, string(m.Name))
		}
		reply(&protocol.ReleaseReply{Released: released})
	default:
		reply(&protocol.Empty{})
	}
}

func (s *modelServer) renew() { s.deadline = s.machine.real() + modelTimeout }

func (s *modelServer) session(epoch uint64) *protocol.SessionReply {
	return &protocol.SessionReply{
		Session: 1, Epoch: epoch, Shard: 1, Timeout: uint64(modelTimeout.Milliseconds()), Node: 7,
	}
}

// acquire grants, changes, or says again what the present state is. What it was asked by an older
// number it has done.
func (s *modelServer) acquire(m *protocol.Acquire) *protocol.AcquireReply {
	l := s.leases[string(m.Name)]
	switch {
	case l == nil && m.Timeout == 0: // it asks about a lease, or changes one, which is gone
		return &protocol.AcquireReply{State: protocol.NotAcquired}
	case l == nil:
		s.orders++
		l = &modelHold{token: s.orders}
		s.leases[string(m.Name)] = l
	}
	if m.Seq > l.seq {
		if l.seq = m.Seq; m.Options != nil && m.Options.Hold != 0 {
			hold := time.Duration(m.Options.Hold) * time.Millisecond
			if until := s.machine.real() + hold; until > l.until { // it never becomes shorter
				l.until, l.hold = until, hold
			}
		}
	}
	reply := &protocol.AcquireReply{State: protocol.Acquired, OrderID: l.token}
	if l.until != 0 {
		reply.Grant = &protocol.Grant{Now: s.millis(), Until: uint64(l.until.Milliseconds())}
	}
	return reply
}
