package transport

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/server/fanout"
)

// eventLoop is one of gnet's event loops with its pending work.
type eventLoop struct {
	listener *gnetListener
	el       gnet.EventLoop

	// Of the loop's goroutine.
	cycle Cycle
	batch writeBatch
	group groupWriter
	stuck map[*gnetSocket]struct{} // the kernel took not everything

	missedBeats atomic.Int64 // beats since the last sign of life
	hadTraffic  atomic.Bool  // since the last beat
	rested      int          // beats that it was spared in a row; of the goroutine that beats

	needsWake atomic.Bool // marks is not empty and nobody woke the loop for it

	mu    sync.Mutex
	dirty []*gnetSocket
	spare []*gnetSocket

	shared     atomic.Int32   // marks since the last Flush for shared frames
	fanOut     []*gnetSocket  // for the goroutine of runFanOut
	fanOutWake chan struct{}  // of capacity 1
	fanOutPace *fanout.Writer // begins and ends under mu
}

// noteTraffic records that bytes arrived.
func (l *eventLoop) noteTraffic() {
	if !l.hadTraffic.Load() {
		l.hadTraffic.Store(true)
	}
}

// rests reports whether the loop is spared this beat.
func (l *eventLoop) rests() bool {
	if l.hadTraffic.Swap(false) || l.missedBeats.Load() > 0 || l.rested == beatsRested {
		l.rested = 0
		return false
	}
	l.rested++
	return true
}

// wakeAt is the number of marks for shared frames at which the loop is woken before all are made:
// it writes to the first of thousands of connections while the others are marked. Those from there
// on are written to beside the loop, which reads no requests while it writes.
const wakeAt = 64

// markDirty notes a socket with something to write. Wake follows.
func (l *eventLoop) markDirty(k *gnetSocket, shared bool) {
	l.mu.Lock()
	if shared && l.shared.Add(1) > wakeAt {
		l.fanOut = append(l.fanOut, k)
		k.inFanOut.Store(true)
		begins := l.fanOutPace.Begin()
		l.mu.Unlock()
		if begins {
			wake(l.fanOutWake)
		}
		return
	}
	l.dirty = append(l.dirty, k)
	n := len(l.dirty)
	if n == 1 {
		l.needsWake.Store(true)
	}
	l.mu.Unlock()
	if shared && n == wakeAt {
		l.wake()
	}
}

// runFanOut writes to the connections that get the same as many others, beside the loop. It lets
// other goroutines go first after each call of the kernel.
func (l *eventLoop) runFanOut(ctx context.Context) {
	var group groupWriter
	var list []*gnetSocket
	left := func(k *gnetSocket) { l.markDirty(k, false) }
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.fanOutWake:
		}
		for l.fanOutPace.Start(); ; l.fanOutPace.Wrote() {
			clear(list)
			if list = l.takeFanOut(list[:0]); len(list) == 0 {
				break
			}
			for part := range slices.Chunk(list, maxGroup) {
				group.write(part, left)
				runtime.Gosched()
			}
			l.wake()
		}
	}
}

// takeFanOut takes all that is marked for runFanOut. If that is nothing, the fan-out is over.
func (l *eventLoop) takeFanOut(empty []*gnetSocket) (list []*gnetSocket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, l.fanOut = l.fanOut, empty
	if len(list) == 0 {
		l.fanOutPace.End()
	}
	return list
}

// wake wakes the loop if there are marks that it was not woken for. One task on the loop's queue
// writes for all that are there when it runs, however many connections and batches they came from.
func (l *eventLoop) wake() {
	if l.needsWake.Load() && l.needsWake.CompareAndSwap(true, false) {
		_ = l.el.Execute(context.Background(), l) // fails only when the loop ends, and closes its connections
	}
}

// maxDirectWrites is how many sockets with answers of some commands are written to by the goroutine
// that marked them, without the loop. With 4 instead of 8, eight callers wait longer; with 16
// nobody waits less.
const maxDirectWrites = 8

// takeDirty appends the loop's dirty sockets to list if the goroutine, which has answered commands
// requests, should write them itself: when they are few, or when each answer has a socket of its
// own, so that the loop could not join several into one write. If several loops have dirty sockets,
// none has as many as commands, and the loops write in parallel.
func (l *eventLoop) takeDirty(list []*gnetSocket, commands int) []*gnetSocket {
	if !l.needsWake.Load() {
		return list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.dirty)
	if max(n, commands) > maxDirectWrites && n != commands || !l.needsWake.CompareAndSwap(true, false) {
		return list
	}
	list = append(list, l.dirty...)
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	return list
}

// Run is the loop's task: it writes the pending frames of marked sockets.
func (l *eventLoop) Run(context.Context) error {
	l.mu.Lock()
	list := l.dirty
	l.dirty, l.spare = l.spare[:0], nil
	l.needsWake.Store(false)
	l.mu.Unlock()
	l.group.write(list, (*gnetSocket).flushGuarded)
	clear(list)
	l.mu.Lock()
	l.spare = list[:0]
	l.mu.Unlock()
	return nil
}

// gnetSocket is a connection on an event loop. The loop's goroutine owns it. What waits is taken
// and written by the holder of writing: the loop, or a groupWriter, as long as nothing waits in
// gnet's buffer.
type gnetSocket struct {
	Conn
	loop        *eventLoop
	fd          int
	writeClosed bool        // the sending half is closed
	inFanOut    atomic.Bool // it is marked for eventLoop.runFanOut, which may take long

	writing  sync.Mutex // before Conn.out.mu
	flushing bool       // the loop's goroutine holds writing
	gc       gnet.Conn  // set by the loop's goroutine, with writing held; nil when the connection is closed
}

// markDirty implements socket.
func (g *gnetSocket) markDirty(shared bool) {
	if g.loop != nil {
		g.loop.markDirty(g, shared)
	}
}

// hasten implements socket.
func (g *gnetSocket) hasten() {
	if g.inFanOut.Load() && g.inFanOut.CompareAndSwap(true, false) {
		g.loop.markDirty(g, false)
	}
}

// pauseReads implements socket. gnet reads whatever its poll reports; with a low-water mark the
// kernel reports nothing until pausedLowWater bytes, or the end, have arrived.
func (g *gnetSocket) pauseReads() {
	_ = unix.SetsockoptInt(g.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, pausedLowWater)
}

// resumeReads implements socket.
func (g *gnetSocket) resumeReads() {
	if g.loop == nil {
		return
	}
	_ = g.loop.el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		if g.gc == nil || g.paused.Load() {
			return nil
		}
		// from here on the kernel notifies the loop of the bytes that it has kept
		_ = unix.SetsockoptInt(g.fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1)
		if g.gc.InboundBuffered() > 0 && g.loop.listener.OnTraffic(g.gc) == gnet.Close {
			g.closeNow()
		}
		return nil
	}))
}

func (g *gnetSocket) flushGuarded() {
	defer g.t.guard("flush", func() { g.closeNow() })
	g.flush()
}

// flush writes the pending frames, with one system call, and ends the connection when that is due.
// It runs on the loop's goroutine.
func (g *gnetSocket) flush() {
	if g.gc == nil {
		return
	}
	end := g.write()
	if g.gc == nil {
		return
	}
	if end == Immediate {
		g.closeNow()
		return
	}
	if end == Graceful {
		g.closeWrite()
	}
	g.checkRoom()
}

// maxSegments is the most segments of one vectored write: Linux refuses more (IOV_MAX), and gnet
// passes its argument on as it is.
const maxSegments = 1024

// write hands the pending bytes to gnet. An error closes the connection, from within.
func (g *gnetSocket) write() (end CloseMode) {
	g.writing.Lock()
	g.flushing = true
	defer func() {
		g.flushing = false
		g.writing.Unlock()
	}()
	b := &g.loop.batch
	g.out.take(b)
	end = b.end
	if len(b.segs) > 0 {
		m := g.t.Metrics
		m.Writes.Inc()
		m.BytesOut.Add(b.size)
		if len(b.segs) == 1 {
			_, _ = g.gc.Write(b.segs[0])
		} else {
			for part := range slices.Chunk(b.segs, maxSegments) {
				if g.gc != nil {
					_, _ = g.gc.Writev(part)
				}
			}
		}
	}
	b.release()
	if g.gc != nil {
		g.updateUnsent()
	}
	return end
}

// detachConn records that gnet is about to close the socket: after it, its descriptor is somebody
// else's.
func (g *gnetSocket) detachConn() {
	if !g.flushing {
		g.writing.Lock()
		defer g.writing.Unlock()
	}
	g.gc = nil
}

// updateUnsent counts the bytes that the kernel has not taken, and has them looked at again.
func (g *gnetSocket) updateUnsent() {
	held := g.gc.OutboundBuffered()
	g.setUnsent(held)
	if held > 0 {
		g.loop.stuck[g] = struct{}{}
		g.loop.listener.checkStuckSoon()
	} else {
		delete(g.loop.stuck, g)
	}
}

// closeWrite half-closes once everything is written: the client reads the goodbye to its end, and
// closes. Closing at once, with bytes unread that it sent, would take the goodbye from it.
func (g *gnetSocket) closeWrite() {
	if !g.writeClosed && g.gc.OutboundBuffered() == 0 {
		g.writeClosed = true
		_ = unix.Shutdown(g.gc.Fd(), unix.SHUT_WR)
	}
}

func (g *gnetSocket) closeNow() {
	if g.gc != nil {
		_ = g.loop.el.Close(g.gc)
	}
}

// checkStuck looks at the sockets whose client reads too slowly: gnet does not report when it has
// written the rest.
func (l *eventLoop) checkStuck() (left bool) {
	for k := range l.stuck {
		k.updateUnsent()
		if k.ending.Load() && k.out.unsent.Load() == 0 {
			k.flush() // the goodbye may wait still
		} else {
			k.checkRoom()
		}
	}
	return len(l.stuck) > 0
}

// stuckPeriod is how often that is.
const stuckPeriod = 20 * time.Millisecond
