package sim

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// conn is a connection of a client to an instance, from the dial on. Each way keeps its order. What
// is sent arrives late, or never if the connection breaks before. The two sides learn of the end at
// different times.
type conn struct {
	id   uint64
	c    *client
	core *core.Conn
	in   *instance // nil: it is not accepted

	// What has come to the client's machine, and the engine is told by the client's next step.
	hello    *protocol.HelloReply
	readable []protocol.Header
	lost     bool // it is over
	up       bool // the hello was answered

	address     string            // that is tried
	behindHello []protocol.Header // what is sent with the hello

	open         bool // as the instance sees it
	lastReceived uint64
	ended        []uint64            // sessions that ended on it
	waiting      map[*replica]uint64 // last ping that waits for the log to have relaxed attaches, by home

	hungUntil  uint64
	lossyUntil uint64      // packets are lost until then
	broken     bool        // nothing arrives any more
	flights    [2][]flight // to the client, to the instance
}

const (
	cluster     = "simulated"
	dialTimeout = 5_000
)

// dial makes a connection to the first address that answers, from the place i of the list on.
func (w *simulation) dial(k *conn, i int) {
	c := k.c
	if i == len(k.core.Addresses) || c.dead {
		k.lost = true
		return
	}
	k.address = k.core.Addresses[i]
	in := w.instanceAt(k.address)
	decided := false
	next := func() {
		if !decided {
			decided = true
			w.dial(k, i+1)
		}
	}
	w.afterOrEnd(dialTimeout, next)
	w.after(w.delay(c.n), func() {
		switch {
		case w.now < c.unreachableUntil: // nothing comes back
		case in == nil || !in.up():
			w.after(w.delay(c.n), next) // refused
		default:
			in.call(func() {
				if !decided {
					decided = true
					k.accept(in)
					w.after(dialTimeout, func() { k.lost = k.lost || !k.up })
				}
			})
		}
	})
}

// accept is the instance's answer to the hello. What the client sent with it comes right behind.
func (k *conn) accept(in *instance) {
	w := in.w
	k.in, k.open, k.lastReceived = in, true, in.clock()
	w.conns[k.id] = k
	in.conns = append(in.conns, k)
	hello := &protocol.HelloReply{
		Version: protocol.Version, Cluster: cluster, Instance: in.id, Window: w.window, MapVersion: in.known.version,
	}
	k.toClient(func() { k.hello, k.up = hello, true })
	for _, h := range k.behindHello {
		in.serve(k, h)
	}
}

// flight is what is on its way over a connection, in one direction.
type flight struct {
	at uint64 // when it arrives
	do func()
}

// travel runs f at the other side, behind what was sent before, unless the connection breaks.
func (k *conn) travel(way int, f func()) {
	w := k.c.w
	at := w.now + w.delay(k.c.n)
	if !w.faultsOver {
		at = max(at, k.hungUntil, k.c.unreachableUntil)
	}
	if w.now < k.lossyUntil && !w.faultsOver {
		for again := uint64(200); w.chance(LosePackets, k.c.n, 0.2); again *= 2 { // it is sent again
			at += again
		}
	}
	if n := len(k.flights[way]); n > 0 {
		at = max(at, k.flights[way][n-1].at)
	}
	k.flights[way] = append(k.flights[way], flight{at, f})
	w.after(at-w.now, func() { k.arrive(way) })
}

func (k *conn) arrive(way int) {
	w := k.c.w
	for len(k.flights[way]) > 0 && (k.flights[way][0].at <= w.now || w.faultsOver) {
		f := k.flights[way][0]
		k.flights[way] = k.flights[way][1:]
		if !k.broken {
			f.do()
		}
	}
}

// endFaults has arrive what is on its way, and the client notice that a connection is gone.
func (k *conn) endFaults() {
	k.lost = k.lost || k.broken
	k.arrive(0)
	k.arrive(1)
}

func (k *conn) toClient(f func()) {
	k.travel(0, func() {
		if !k.c.dead {
			f()
		}
	})
}

// toInstance runs f at the instance, in the life that accepted the connection, once it runs.
func (k *conn) toInstance(f func()) {
	in, life := k.in, k.in.life
	k.travel(1, func() {
		in.call(func() {
			if k.open && in.life == life {
				f()
			}
		})
	})
}

// split takes frames apart.
func split(b []byte) (frames []protocol.Header) {
	for len(b) > 0 {
		frame, n, err := protocol.SplitFrame(b, protocol.MaxFrameLen)
		if err != nil {
			panic(err)
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			panic(err)
		}
		b, frames = b[n:], append(frames, h)
	}
	return frames
}

// send sends a frame to the client.
func (k *conn) send(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	if !k.open {
		return
	}
	frames := split(protocol.AppendFrame(nil, kind, id, arg, m))
	k.toClient(func() { k.readable = append(k.readable, frames...) })
}

func (k *conn) event(kind protocol.Kind, m protocol.Message) { k.send(kind, 0, 0, m) }

func (k *conn) reply(kind protocol.Kind, id uint64, m protocol.Message) {
	k.send(kind|protocol.KindReply, id, 0, m)
}

func (k *conn) fail(kind protocol.Kind, id uint64, status protocol.Status, f protocol.Failure) {
	k.send(kind|protocol.KindReply, id, uint64(status), &f)
}

// lose is the end of a connection, as the client's machine notices it.
func (k *conn) lose() { k.lost = true }

// write brings what the engine wrote to the instance.
func (k *conn) write(b []byte) {
	_, _ = k.c.w.trace.Write(b)
	frames := split(b)
	k.toInstance(func() {
		k.lastReceived = k.in.clock()
		for _, h := range frames {
			if k.open {
				k.in.serve(k, h)
			}
		}
	})
}

// hangUp is the end of a connection by the client.
func (k *conn) hangUp() {
	if k.in != nil {
		k.toInstance(k.closed)
	}
}

// close ends a connection at the instance, with a word to the client or without.
func (k *conn) close(why string) {
	if !k.open {
		return
	}
	if why != "" {
		k.event(protocol.KindGoodbye, &protocol.Goodbye{Status: protocol.StatusUnavailable, Message: why})
	}
	k.toClient(k.lose)
	k.closed()
}

// closed forgets a connection at the instance. The homes of its sessions learn when it was last
// heard.
func (k *conn) closed() {
	in := k.in
	bound := k.bindings()
	k.open = false
	in.conns = slices.DeleteFunc(in.conns, func(x *conn) bool { return x == k })
	delete(in.w.conns, k.id)
	var homes []*replica
	for _, b := range bound {
		if in.unbind(b); b.home != nil && !slices.Contains(homes, b.home) {
			homes = append(homes, b.home)
		}
	}
	life := in.life
	in.w.after(0, func() {
		if in.life != life {
			return
		}
		in.call(func() {
			for _, r := range homes {
				if in.life == life {
					r.leader.ConnClosed(r.clock(), k.id, k.lastReceived, protocol.LinkClosed)
					r.execute()
				}
			}
		})
	})
}

// breakDown is the end of a connection in the middle: what is on its way is lost. Each side learns
// it some time later, and the client maybe not at all.
func (w *simulation) breakDown(k *conn) {
	k.broken = true
	if !w.chance(ConnLost, k.c.n, 0.3) {
		w.after(w.pick(ConnLost, k.c.n, 1_500), k.lose)
	}
	in := k.in
	if in == nil {
		k.lost = true
		return
	}
	life := in.life
	w.after(w.pick(ConnLost, k.c.n, 1_500), func() {
		if in.life == life && k.open {
			k.closed()
		}
	})
}

var errReset = errors.New("connection reset")
