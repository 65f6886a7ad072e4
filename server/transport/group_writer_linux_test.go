package transport

import (
	"bytes"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/protocol"
)

// openConn stands for gnet's connection where only its being there counts.
type openConn struct{ gnet.Conn }

// testSocket is an open socket and what its other end has read.
type testSocket struct {
	*gnetSocket
	far       int
	want, got []byte
}

func openSocket(t *testing.T, x *Transport) *testSocket {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &testSocket{gnetSocket: &gnetSocket{fd: pair[0], gc: openConn{}}, far: pair[1]}
	if !s.open(x, s, "test") {
		t.Fatal("no room")
	}
	t.Cleanup(func() {
		x.conns.remove(&s.Conn)
		_ = unix.Close(pair[0])
		_ = unix.Close(pair[1])
	})
	return s
}

// say appends a message of so many bytes, and some.
func (s *testSocket) say(id uint64, size int) {
	m := &protocol.Failure{Message: string(bytes.Repeat([]byte{byte('a' + id%26)}, size))}
	s.want = protocol.AppendFrame(s.want, protocol.KindGoodbye, id, 0, m)
	s.append(protocol.KindGoodbye, id, 0, m)
}

func (s *testSocket) read() {
	buf := make([]byte, 1<<16)
	for {
		n, err := unix.Read(s.far, buf)
		if n <= 0 || err != nil {
			return
		}
		s.got = append(s.got, buf[:n]...)
	}
}

// loopWrites does what the event loop does for a socket.
func (s *testSocket) loopWrites() {
	var b writeBatch
	s.out.take(&b)
	for _, seg := range b.segs {
		for len(seg) > 0 {
			sent, err := unix.Write(s.fd, seg)
			if err != nil {
				s.read()
				continue
			}
			seg = seg[sent:]
		}
	}
	b.release()
}

// eachWriter runs a test with a ring and without one.
func eachWriter(t *testing.T, test func(t *testing.T, g *groupWriter)) {
	t.Run("ring", func(t *testing.T) {
		r, err := newSendRing()
		if err != nil {
			t.Skip(err)
		}
		test(t, &groupWriter{ring: r, asked: true})
	})
	t.Run("no ring", func(t *testing.T) { test(t, &groupWriter{asked: true}) })
}

// writeAll writes to sockets, and answers which are left.
func writeAll(g *groupWriter, sockets ...*testSocket) map[*gnetSocket]bool {
	var list []*gnetSocket
	for _, s := range sockets {
		list = append(list, s.gnetSocket)
	}
	left := map[*gnetSocket]bool{}
	g.write(list, func(k *gnetSocket) { left[k] = true })
	return left
}

// TestGroupWriteKeepsUnsentBytes fills sockets. What does not fit goes out later, in front of what
// is appended then.
func TestGroupWriteKeepsUnsentBytes(t *testing.T) {
	eachWriter(t, func(t *testing.T, g *groupWriter) {
		x, _ := start(t, nil)
		var sockets []*testSocket
		for range maxGroup + 1 { // the last one is written to alone
			sockets = append(sockets, openSocket(t, x))
		}
		refused := 0
		for i := range uint64(12) {
			for j, s := range sockets {
				s.say(i, 400+int(i)+30_000*(j%4)) // the longest are taken in parts
			}
			left := writeAll(g, sockets...)
			refused += len(left)
			for _, s := range sockets {
				if left[s.gnetSocket] {
					s.loopWrites()
				}
			}
		}
		for i, s := range sockets {
			s.read()
			if !bytes.Equal(s.got, s.want) {
				t.Errorf("socket %d: %d bytes were read, not the %d that were written, or in another order", i, len(s.got), len(s.want))
			}
			if s.Waiting() != 0 {
				t.Errorf("socket %d: %d bytes wait", i, s.Waiting())
			}
		}
		if refused == 0 {
			t.Error("no socket was ever full")
		}
	})
}

// TestGroupWriteLeaves: what a socket needs its event loop for is left to it, and costs the others
// nothing.
func TestGroupWriteLeaves(t *testing.T) {
	eachWriter(t, func(t *testing.T, g *groupWriter) {
		for _, c := range []struct {
			name    string
			change  func(*testSocket)
			left    bool
			written bool
		}{
			{"nothing special", func(*testSocket) {}, false, true},
			{"somebody writes", func(s *testSocket) { s.writing.Lock() }, true, false},
			{"gnet has bytes", func(s *testSocket) { s.setUnsent(1) }, true, false},
			{"it ends", func(s *testSocket) { s.Close(Graceful, protocol.StatusUnavailable, "") }, true, false},
			{"somebody has written it", func(s *testSocket) { s.loopWrites() }, false, true},
			{"two segments", func(s *testSocket) { s.AppendShared(make([]byte, sharedSize), false) }, true, false},
			{"it is closed", func(s *testSocket) { s.detachConn() }, false, false},
			{"the client is gone", func(s *testSocket) { _ = unix.Shutdown(s.far, unix.SHUT_RDWR) }, true, false},
			{"somebody waits for room", func(s *testSocket) { s.awaitsRoom.Store(true) }, true, true},
		} {
			x, _ := start(t, nil)
			before, k, after := openSocket(t, x), openSocket(t, x), openSocket(t, x)
			for _, s := range []*testSocket{before, k, after} {
				s.say(1, 100)
			}
			c.change(k)
			left := writeAll(g, before, k, after)
			if left[k.gnetSocket] != c.left || left[before.gnetSocket] || left[after.gnetSocket] {
				t.Errorf("%s: %d sockets are left", c.name, len(left))
			}
			for _, s := range []*testSocket{before, k, after} {
				s.read()
				if want := s != k || c.written; bytes.Equal(s.got, s.want) != want || !want && len(s.got) > 0 {
					t.Errorf("%s: %d bytes were read", c.name, len(s.got))
				}
			}
		}
	})
}

// TestRingIsUsed: who writes to several sockets does it with a ring, if the kernel gives one.
func TestRingIsUsed(t *testing.T) {
	if _, err := newSendRing(); err != nil {
		t.Skip(err)
	}
	x, _ := start(t, nil)
	a, b := openSocket(t, x), openSocket(t, x)
	var g groupWriter
	a.say(1, 10)
	if writeAll(&g, a); g.ring != nil {
		t.Error("there is a ring for one socket")
	}
	a.say(2, 10)
	b.say(2, 10)
	if writeAll(&g, a, b); g.ring == nil {
		t.Fatal("there is no ring for two sockets")
	}
	for _, s := range []*testSocket{a, b} {
		s.say(3, 100)
		if !g.take(s.gnetSocket) {
			t.Fatal("not taken")
		}
	}
	if err := g.ring.send(g.sends[:g.n]); err != nil {
		t.Fatal(err)
	}
	for i, s := range []*testSocket{a, b} {
		if !g.sends[i].finish() {
			t.Error("something is left")
		}
		if s.read(); !bytes.Equal(s.got, s.want) {
			t.Errorf("%d bytes were read, not the %d that were written", len(s.got), len(s.want))
		}
	}
}

// TestRingThatFails: when the kernel refuses a call, what it did not send is sent without the ring,
// and the ring is not used again.
func TestRingThatFails(t *testing.T) {
	r, err := newSendRing()
	if err != nil {
		t.Skip(err)
	}
	g := &groupWriter{ring: r, asked: true}
	x, _ := start(t, nil)
	a, b := openSocket(t, x), openSocket(t, x)
	check := func(what string) {
		t.Helper()
		for _, s := range []*testSocket{a, b} {
			if s.read(); !bytes.Equal(s.got, s.want) {
				t.Errorf("%s: %d bytes were read, not the %d that were written", what, len(s.got), len(s.want))
			}
		}
	}
	say := func() {
		a.say(1, 100)
		b.say(2, 200)
	}
	say()
	if writeAll(g, a, b); g.ring == nil {
		t.Fatal("the ring was not used")
	}
	check("with a ring")

	fd := r.kernel.fd
	defer func() { r.kernel.fd = fd }()
	r.kernel.fd = -1
	say()
	if left := writeAll(g, a, b); len(left) > 0 || g.ring != nil {
		t.Errorf("after an error %d sockets are left, and the ring is %v", len(left), g.ring)
	}
	check("with an error")

	// An error after a part was sent.
	g.ring = r
	say()
	if !g.take(a.gnetSocket) || !g.take(b.gnetSocket) {
		t.Fatal("not taken")
	}
	if g.sends[0].sent, err = unix.Write(a.fd, g.sends[0].batch.segs[0]); err != nil {
		t.Fatal(err)
	}
	if g.send(); !g.sends[0].finish() || !g.sends[1].finish() {
		t.Error("something is left")
	}
	check("with an error after a part")
}

// TestWritersTogether: goroutines that write by themselves and event loops write to the same
// connections, and each client reads what each of them said, in order.
func TestWritersTogether(t *testing.T) {
	const clients, writers, rounds = 40, 4, 300
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one loop, so that what is for all is for it alone
	x, _ := start(t, nil)
	var far []net.Conn
	for range clients {
		nc := dial(t, x, 1)
		pong(t, nc)
		far = append(far, nc)
	}
	var conns []*Conn
	x.Each(func(c *Conn) { conns = append(conns, c) })
	var wg sync.WaitGroup
	begun := make(chan struct{}) // one goroutine has written to all by itself
	for w := range uint64(writers) {
		wg.Go(func() {
			if w > 0 {
				<-begun
			}
			random := rand.New(rand.NewPCG(1, w))
			var direct DirectWriter
			for i := range uint64(rounds) {
				for _, c := range conns {
					c.Append(protocol.KindPong, w<<32|i, 0, nil)
				}
				if i == 0 && w == 0 {
					x.FlushDirect(&direct, clients)
					if direct.list == nil {
						t.Error("it wrote nothing by itself")
					}
					close(begun)
					continue
				}
				if random.IntN(2) == 0 {
					x.FlushDirect(&direct, clients)
				} else {
					x.Flush()
				}
			}
		})
	}
	for i, nc := range far {
		wg.Go(func() {
			var next [writers]uint64
			for range writers * rounds {
				h := pong(t, nc)
				if w := h.ID >> 32; h.ID&0xffffffff != next[w] {
					t.Errorf("client %d read %d of writer %d, not %d", i, h.ID&0xffffffff, w, next[w])
					return
				}
				next[h.ID>>32]++
			}
		})
	}
	wg.Wait()
}
