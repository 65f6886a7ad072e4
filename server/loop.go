package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// loop is one of gnet's event loops, and what is waiting to be done on it.
type loop struct {
	door *gnetDoor
	el   gnet.EventLoop
	pass *pass // of the loop's goroutine
	b    batch // of the loop's goroutine

	stuck  map[*socket]struct{} // of the loop's goroutine: the kernel took not everything
	missed atomic.Int64         // beats since the last sign of life

	marked atomic.Bool // marks is not empty and nobody woke the loop for it

	mu    sync.Mutex
	marks []*socket
	spare []*socket
}

// mark notes a socket with something to write. Wake follows.
func (l *loop) mark(k *socket) {
	l.mu.Lock()
	l.marks = append(l.marks, k)
	if len(l.marks) == 1 {
		l.marked.Store(true)
	}
	l.mu.Unlock()
}

// kick wakes the loop if there are marks that it was not woken for. One task on the loop's queue writes for all of them, however many connections and batches
// they came from.
func (l *loop) kick() {
	if l.marked.Load() && l.marked.CompareAndSwap(true, false) {
		_ = l.el.Execute(context.Background(), l) // fails only when the loop ends, and closes its connections
	}
}

// few is how many sockets are written to by the goroutine that marked them, without the loop.
const few = 4

// takeFew takes the marks that nobody woke the loop for, if there are no more than a few.
func (l *loop) takeFew(list []*socket) []*socket {
	if !l.marked.Load() {
		return list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.marks) > few || !l.marked.CompareAndSwap(true, false) {
		return list
	}
	list = append(list, l.marks...)
	clear(l.marks)
	l.marks = l.marks[:0]
	return list
}

// Run is the loop's task: it writes what waits on marked sockets.
func (l *loop) Run(context.Context) error {
	l.mu.Lock()
	list := l.marks
	l.marks, l.spare = l.spare[:0], nil
	l.marked.Store(false)
	l.mu.Unlock()
	for i, k := range list {
		k.flushGuarded()
		list[i] = nil
	}
	l.mu.Lock()
	l.spare = list[:0]
	l.mu.Unlock()
	return nil
}

// socket is a connection on an event loop. The loop's goroutine owns it. What waits is taken and written by whoever holds writing: the loop, or the goroutine
// that appended it, as long as nothing waits in gnet's buffer.
type socket struct {
	conn
	loop *loop
	fd   int
	shut bool // the sending half is closed

	writing sync.Mutex // before conn.out.mu
	flushes bool       // the loop's goroutine holds writing
	gc      gnet.Conn  // set by the loop's goroutine, with writing held; nil when the connection is closed
}

// push implements wire.
func (k *socket) push() {
	if k.loop != nil {
		k.loop.mark(k)
	}
}

// pause implements wire. gnet reads whatever its poll reports; with a low-water mark the kernel reports nothing until there is that much, or the end.
func (k *socket) pause() {
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, restWake)
}

// resume implements wire.
func (k *socket) resume() {
	if k.loop == nil {
		return
	}
	_ = k.loop.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		if k.gc == nil || k.resting.Load() {
			return nil
		}
		_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) // from here on the loop hears of what the kernel has kept
		if k.gc.InboundBuffered() > 0 && k.loop.door.OnTraffic(k.gc) == gnet.Close {
			k.closeNow()
		}
		return nil
	}))
}

func (k *socket) flushGuarded() {
	defer k.srv.guard("flush", func() { k.closeNow() })
	k.flush()
}

// flush writes what waits, with one system call, and ends the connection when that is due. It runs on the loop's goroutine.
func (k *socket) flush() {
	if k.gc == nil {
		return
	}
	end := k.write()
	if k.gc == nil {
		return
	}
	if end == endHard {
		k.closeNow()
		return
	}
	if end == endSoft {
		k.shutWrite()
	}
	k.room()
}

// write takes what waits and hands it to gnet. An error closes the connection, from within.
func (k *socket) write() (end ending) {
	k.writing.Lock()
	k.flushes = true
	defer func() {
		k.flushes = false
		k.writing.Unlock()
	}()
	b := &k.loop.b
	k.out.take(b)
	end = b.end
	if len(b.segs) > 0 {
		m := k.srv.metrics
		m.writes.Inc()
		m.bytesOut.Add(b.size)
		if len(b.segs) == 1 {
			_, _ = k.gc.Write(b.segs[0])
		} else {
			_, _ = k.gc.Writev(b.segs)
		}
	}
	b.release()
	if k.gc != nil {
		k.settleHeld()
	}
	return end
}

// writeHere writes what waits from the goroutine that appended it, and spares the loop the wake-up. False: the loop must do it.
func (k *socket) writeHere(b *batch) bool {
	if !k.writing.TryLock() {
		return false
	}
	defer k.writing.Unlock()
	if k.gc == nil {
		return true // nobody is there to write to
	}
	if k.out.held.Load() != 0 || !k.out.takeOne(b) {
		return false
	}
	sent, err := unix.Write(k.fd, b.segs[0])
	if err != nil {
		sent = 0 // whether the socket is full or broken, the loop finds it so
	}
	all := sent == b.size
	if all {
		k.noteHeld(0)
	} else {
		k.putBack(b.segs[0][sent:])
	}
	m := k.srv.metrics
	m.writes.Inc()
	m.bytesOut.Add(sent)
	b.release()
	return all
}

// leave notes that gnet is about to close the socket: after it, its descriptor is somebody else's.
func (k *socket) leave() {
	if !k.flushes {
		k.writing.Lock()
		defer k.writing.Unlock()
	}
	k.gc = nil
}

// settleHeld notes what the kernel has not taken, and has it looked at again.
func (k *socket) settleHeld() {
	held := k.gc.OutboundBuffered()
	k.noteHeld(held)
	if held > 0 {
		k.loop.stuck[k] = struct{}{}
		k.loop.door.watchStuck()
	} else {
		delete(k.loop.stuck, k)
	}
}

// shutWrite half-closes once everything is written: the client reads the goodbye to its end, and closes. Closing at once, with bytes unread that it sent,
// would take the goodbye from it.
func (k *socket) shutWrite() {
	if !k.shut && k.gc.OutboundBuffered() == 0 {
		k.shut = true
		_ = unix.Shutdown(k.gc.Fd(), unix.SHUT_WR)
	}
}

func (k *socket) closeNow() {
	if k.gc != nil {
		_ = k.loop.el.Close(k.gc)
	}
}

// lookAtStuck looks at the sockets whose client reads too slowly: gnet does not tell when it has written the rest.
func (l *loop) lookAtStuck() (left bool) {
	for k := range l.stuck {
		k.settleHeld()
		if k.ending.Load() && k.out.held.Load() == 0 {
			k.shutWrite()
		}
		k.room()
	}
	return len(l.stuck) > 0
}

// stuckPeriod is how often that is.
const stuckPeriod = 20 * time.Millisecond
