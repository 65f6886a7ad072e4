package gateway

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
)

// testInbound is an inbound whose bytes are counted.
func testInbound() *inbound {
	m := newMemory(1<<40, new(atomic.Uint64))
	return newInbound(m.join(func(error) {}))
}

// message is a message as gRPC sends it.
func message(length int) []byte {
	b := make([]byte, messageHeadLen+length)
	binary.BigEndian.PutUint32(b[1:], uint32(length))
	return b
}

// upload is one stream of a client: what it has still to send of its message, if anything.
type upload struct {
	id     uint32
	follow *follower // nil: it is not followed
	rest   []byte
	length int
}

// TestInbound: messages of several streams, cut into frames and reads at random, with padding. Their
// order, and what has come of long ones, are those that were sent.
func TestInbound(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		i := testInbound()
		var wire, back bytes.Buffer
		client, server := http2.NewFramer(&wire, nil), http2.NewFramer(&back, nil)
		wire.WriteString(http2.ClientPreface)
		_ = client.WriteSettings()
		deliver := func() {
			for wire.Len() > 0 {
				i.received(wire.Next(1 + r.IntN(100)))
			}
			i.sent(back.Next(back.Len()))
		}
		var streams []*upload
		byID := make(map[*inStream]*upload)
		for id := uint32(1); id < 8; id += 2 {
			_ = client.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, BlockFragment: []byte("x")})
			deliver()
			u := &upload{id: id}
			if s := i.streams[id]; r.IntN(4) > 0 {
				s.followed = true
				u.follow = &follower{of: i, s: s}
				byID[s] = u
			}
			streams = append(streams, u)
		}
		var order []*upload // of the whole messages of streams that are followed
		held := 0           // bytes of those that are long
		parts := func() (n int) {
			for _, u := range streams {
				if u.length >= longMessage && len(u.rest) > 0 && len(u.rest) < u.length {
					n += u.length - len(u.rest)
				}
			}
			return n
		}
		for range 200 {
			u := streams[r.IntN(len(streams))]
			if len(u.rest) == 0 {
				u.length = []int{0, 3, 100, longMessage - 1, longMessage, 3 * longMessage}[r.IntN(6)]
				u.rest = message(u.length)
			}
			n := 1 + r.IntN(min(len(u.rest), 1<<14))
			if r.IntN(3) == 0 {
				_ = client.WriteDataPadded(u.id, false, u.rest[:n], make([]byte, r.IntN(20)))
			} else {
				_ = client.WriteData(u.id, false, u.rest[:n])
			}
			if u.rest = u.rest[n:]; len(u.rest) == 0 && u.follow != nil {
				order = append(order, u)
				if u.length >= longMessage {
					held += u.length
				}
			}
			deliver()
			if got, want := i.unfinished(), int64(parts()); got != want {
				t.Fatalf("seed %d: %d bytes are unfinished, want %d", seed, got, want)
			}
			if got, want := i.kept.bytes, int64(parts()+held); got != want {
				t.Fatalf("seed %d: %d bytes are kept, want %d", seed, got, want)
			}
			if len(order) == 0 || r.IntN(2) == 0 {
				continue
			}
			first := i.arrived[0]
			a := order[0].follow.next()
			if a != first {
				t.Fatalf("seed %d: the first message is another stream's", seed)
			}
			order = order[1:]
			a.wait(t.Context()) // it need not wait
			a.take()
			held -= a.bytes
		}
		// The ends of streams give back what came of them.
		for n, u := range streams {
			switch n % 3 {
			case 0:
				_ = client.WriteRSTStream(u.id, http2.ErrCodeCancel)
			case 1:
				_ = client.WriteData(u.id, true, nil)
			case 2:
				_ = server.WriteHeaders(http2.HeadersFrameParam{StreamID: u.id, EndHeaders: true, EndStream: true})
			}
			deliver()
			if u.follow != nil {
				u.follow.end()
			}
		}
		if i.unfinished() != 0 || i.kept.bytes != 0 || len(i.arrived) != 0 || len(i.streams) != 0 {
			t.Fatalf("seed %d: %d and %d bytes are left, %d messages, %d streams", seed, i.unfinished(), i.kept.bytes,
				len(i.arrived), len(i.streams))
		}
	}
}

// TestArrivalWaits: a message waits for those before it, and for those that will not be read.
func TestArrivalWaits(t *testing.T) {
	i := testInbound()
	var streams []*inStream
	for range 3 {
		streams = append(streams, &inStream{followed: true})
	}
	for _, n := range []int{0, 1, 2} {
		i.mu.Lock()
		i.feed(streams[n], message(1))
		i.mu.Unlock()
	}
	one, two, three := &follower{of: i, s: streams[0]}, &follower{of: i, s: streams[1]}, &follower{of: i, s: streams[2]}
	a, c := one.next(), three.next()
	done := make(chan struct{})
	go func() {
		c.wait(t.Context())
		close(done)
	}()
	a.take()
	select {
	case <-done:
		t.Fatal("it passed another one")
	default:
	}
	two.end() // its message is not read
	<-done
	c.take()
	if three.next() != nil || len(i.arrived) != 0 {
		t.Fatal(i.arrived)
	}
}

// FuzzInbound: a client may send anything.
func FuzzInbound(f *testing.F) {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&b, nil)
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte("x")})
	_ = w.WriteData(1, false, message(longMessage)[:20])
	_ = w.WriteDataPadded(1, true, []byte("ab"), make([]byte, 9))
	f.Add(b.Bytes(), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		i := testInbound()
		for len(b) > 0 {
			n := min(int(cut)+1, len(b))
			i.received(b[:n])
			b = b[n:]
			if i.parts < 0 || i.kept.bytes != i.parts {
				t.Fatalf("%d bytes of messages in part, %d are kept", i.parts, i.kept.bytes)
			}
		}
	})
}

// TestNameOrder: each request waits for the writes before it, a write also for the reads before it,
// and nothing waits for what comes later. At random, against a list of what came.
func TestNameOrder(t *testing.T) {
	type op struct {
		reads, over bool
		after       <-chan struct{}
		leave       func()
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		var o nameOrder
		var all []*op
		key := nameKey{"/n", "lock"}
		mayGo := func(n int) bool {
			for _, before := range all[:n] {
				if !before.over && !(before.reads && all[n].reads) {
					return false
				}
				// Reads side by side wait for the same write, which the loop has seen.
			}
			return true
		}
		for range 60 {
			if r.IntN(2) == 0 {
				x := &op{reads: r.IntN(2) == 0}
				x.after, x.leave = o.join(key, x.reads)
				all = append(all, x)
			} else if len(all) > 0 {
				n := r.IntN(len(all))
				if x := all[n]; !x.over && mayGo(n) {
					x.over = true
					x.leave()
				}
			}
			for n, x := range all {
				going := x.after == nil
				select {
				case <-x.after:
					going = true
				default:
				}
				if !x.over && going != mayGo(n) {
					t.Fatalf("seed %d: request %d goes: %t", seed, n, going)
				}
			}
		}
		for n, x := range all {
			if !x.over {
				if !mayGo(n) {
					t.Fatalf("seed %d: request %d waits for nothing", seed, n)
				}
				x.over = true
				x.leave()
			}
		}
		if len(o.turns) != 0 {
			t.Fatalf("seed %d: %d names are kept", seed, len(o.turns))
		}
	}
}
