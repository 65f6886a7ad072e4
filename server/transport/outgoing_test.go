package transport

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestOutgoingKeepsOrder appends at random, own frames and shared ones, and takes it in both ways,
// with writes that are cut short: the bytes come out as they went in.
func TestOutgoingKeepsOrder(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := &Conn{t: &Transport{}}
		o := &c.out
		var b writeBatch
		var in, out []byte
		take := func(one bool) {
			if one {
				if !o.takeOne(&b) || b.size == 0 {
					return
				}
				n := r.IntN(b.size + 1)
				out = append(out, b.segs[0][:n]...)
				if n < b.size {
					if r.IntN(2) == 0 { // somebody appends meanwhile
						frame := bytes.Repeat([]byte{'m'}, 1+r.IntN(20))
						o.share(frame)
						defer func() { in = append(in, frame...) }()
					}
					c.putBack(b.segs[0][n:])
				}
			} else {
				o.take(&b)
				size := 0
				for _, s := range b.segs {
					out = append(out, s...)
					size += len(s)
				}
				if size != b.size {
					t.Fatalf("seed %d: %d bytes were taken, and %d counted", seed, size, b.size)
				}
			}
			b.release()
		}
		for i := range 60 {
			switch x := r.IntN(10); {
			case x == 0:
				large := &protocol.Failure{Message: strings.Repeat("l", r.IntN(fullSize))}
				o.append(protocol.KindPing|protocol.KindReply, uint64(i), 7, large)
				in = protocol.AppendFrame(in, protocol.KindPing|protocol.KindReply, uint64(i), 7, large)
			case x == 1:
				o.append(protocol.KindPong, uint64(i), 7, nil)
				in = protocol.AppendFrame(in, protocol.KindPong, uint64(i), 7, nil)
			case x < 6:
				frame := bytes.Repeat([]byte{byte(i)}, 1+r.IntN(100))
				if x == 5 {
					frame = bytes.Repeat([]byte{byte(i)}, sharedSize+r.IntN(100))
				}
				o.share(frame)
				in = append(in, frame...)
			default:
				take(x < 8)
			}
			if want := len(in) - len(out); o.size != want {
				t.Fatalf("seed %d: %d bytes wait, and %d are counted", seed, want, o.size)
			}
		}
		take(false)
		if !bytes.Equal(in, out) {
			t.Fatalf("seed %d: %d bytes went in, and others came out", seed, len(in))
		}
	}
}

// TestSharedFrameIsNotCopied: a small frame that many connections get is not copied for each of
// them.
func TestSharedFrameIsNotCopied(t *testing.T) {
	frame := []byte("a change for thousands")
	list := make([]outgoing, 1000)
	b := writeBatch{segs: make([][]byte, 0, 1)}
	if n := testing.AllocsPerRun(10, func() {
		for i := range list {
			list[i].share(frame)
		}
		for i := range list {
			list[i].take(&b)
			if len(b.segs) != 1 || &b.segs[0][0] != &frame[0] || b.size != len(frame) {
				t.Fatalf("%d segments, %d bytes", len(b.segs), b.size)
			}
			b.release()
		}
	}); n > 0 && !form.Race {
		t.Errorf("a change for %d connections allocates %v times", len(list), n)
	}
}

// TestBuffersReturnToThePool: a burst of answers after very many small ones finds the buffers that
// the burst before it has grown.
func TestBuffersReturnToThePool(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	var o outgoing
	var b writeBatch
	refusal := &protocol.Failure{Message: strings.Repeat("w", 100)}
	answer := func(n int) {
		for range n {
			o.append(protocol.KindDescribe|protocol.KindReply, 7, uint64(protocol.StatusOverloaded), refusal)
		}
		o.take(&b)
		b.release()
	}
	for range 100_000 {
		answer(1)
	}
	for _, answers := range []int{64, 8192} {
		bursts := (1 << 18) / answers
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range bursts {
			answer(answers)
		}
		runtime.ReadMemStats(&after)
		if each := int(after.TotalAlloc-before.TotalAlloc) / bursts; each > answers*256 {
			t.Errorf("a burst of %d answers allocates %d bytes", answers, each)
		}
	}
}

// TestDeferredWriteIsNotLost: what is to be written while the listener still reads is written when
// it has read, although the bytes may have waited.
func TestDeferredWriteIsNotLost(t *testing.T) {
	c := &Conn{}
	var b writeBatch
	for _, late := range []bool{true, false, true} {
		c.out.holdNotify()
		c.deferrable = c.out.append(protocol.KindPong, 1, 0, nil)
		if late {
			c.WriteDeferred()
		}
		if c.deferWrite() == late {
			t.Errorf("asked for while it was read: %v; the write waits: %v", late, !late)
		}
		c.out.take(&b)
		b.release()
	}
}

// TestImmediateCloseIsSignalled: the listener is told of an immediate close although it knows
// already that something waits. It may stand in a write that nobody reads.
func TestImmediateCloseIsSignalled(t *testing.T) {
	for _, how := range []CloseMode{Immediate, Graceful} {
		var o outgoing
		o.append(protocol.KindPong, 1, 0, nil)
		if !o.notify() {
			t.Fatal("nobody is notified of the first bytes")
		}
		if first, mark := o.close(how, protocol.Goodbye{}); !first || mark != (how == Immediate) {
			t.Errorf("close %v: the first %v, notified %v", how, first, mark)
		}
	}
}
