package transport

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/signalbox-dev/signalbox/protocol"
)

// CloseMode is how a connection goes on once its pending frames are written.
type CloseMode uint8

const (
	closeNone CloseMode = iota
	Graceful            // half-close, wait up to LingerTimeout for the client's end, close: it reads the last frames
	Immediate           // close at once
)

// LingerTimeout is how long a connection may take to read its goodbye.
const LingerTimeout = time.Second

// MinOutSoft is the soft bound while too much waits for slow readers altogether, and the least that
// may be configured.
const MinOutSoft = 64 << 10

// fullSize is the length from which a buffer is left for the next. A larger one would be grown by
// copying, and would not return to the pool.
const fullSize = MinOutSoft / 2

// sharedSize is the length from which a shared frame is referred to instead of copied.
const sharedSize = 2048

// buffers are empty ones of up to MinOutSoft. The pool of package bytebufferpool is not used: it
// learns a largest capacity from the most frequent lengths of some 42,000 buffers, and drops larger
// ones. When most answers are small, each burst of answers to one connection then grew a buffer
// again, and garbage collections took a fifth of the processors.
var buffers = sync.Pool{New: func() any { return new(bytebufferpool.ByteBuffer) }}

func getBuffer() *bytebufferpool.ByteBuffer { return buffers.Get().(*bytebufferpool.ByteBuffer) }

func putBuffer(b *bytebufferpool.ByteBuffer) {
	if cap(b.B) <= MinOutSoft {
		b.Reset()
		buffers.Put(b)
	}
}

// outgoing is the queue of frames to write on one connection: whole frames only, in order. Any
// goroutine appends; the writing one takes everything at once and writes it with one call.
//
// Invariant: size is the bytes of segs, tail and lone; while lone is set, segs and tail are empty.
// The client has size + unsent bytes to read, and never more than the hard bound plus one frame.
type outgoing struct {
	mu       sync.Mutex
	segs     [][]byte // filled bytes of full buffers, and shared frames
	full     []*bytebufferpool.ByteBuffer
	tail     *bytebufferpool.ByteBuffer // appended to; not in segs yet
	lone     []byte                     // a small shared frame while nothing else waits
	size     int
	notified bool      // the listener knows that there is something to take
	overdue  bool      // WriteDeferred came while it did
	closing  CloseMode // nothing is appended any more unless it is closeNone

	unsent atomic.Int64 // bytes the listener holds because the kernel took no more
	// the part of size + unsent that Transport.unread counts: all of it, or 0 when it is little;
	// changed under mu
	counted   atomic.Int64
	pages     atomic.Int64 // bytes of pages that wait, which are in Transport.pages; changed under mu
	pagesEnd  uint64       // of total: where the last page ends
	total     uint64       // bytes ever appended
	markTotal uint64       // of total, at markAt: while it is not sent, something waits since markAt
	markAt    time.Duration
}

// writeBatch is a batch of frames that a listener takes to write. Its segments may be written with
// one vectored write; nobody changes them.
type writeBatch struct {
	segs [][]byte
	full []*bytebufferpool.ByteBuffer
	size int
	end  CloseMode
}

// append encodes a frame behind the pending ones, and returns its length. Caller holds mu.
func (o *outgoing) append(kind protocol.Kind, id, arg uint64, m protocol.Message) int {
	b := o.openTail()
	n := len(b.B)
	b.B = protocol.AppendFrame(b.B, kind, id, arg, m)
	n = len(b.B) - n
	o.size += n
	o.total += uint64(n)
	return n
}

// openTail is the buffer that is appended to. What waited alone goes in front.
func (o *outgoing) openTail() *bytebufferpool.ByteBuffer {
	if o.tail != nil && len(o.tail.B) >= fullSize {
		o.sealTail()
	}
	if o.tail == nil {
		o.tail = getBuffer()
	}
	if o.lone != nil {
		o.tail.B, o.lone = append(o.tail.B, o.lone...), nil
	}
	return o.tail
}

// share appends a frame that others refer to as well. A small one is copied behind pending frames,
// or referred to if none is pending: a change for thousands of connections mostly is all that each
// of them gets, and copies of it would be as many buffers that are in no cache. Caller holds mu.
func (o *outgoing) share(frame []byte) {
	switch {
	case len(frame) >= sharedSize:
		o.sealTail()
		o.segs = append(o.segs, frame)
	case o.size == 0:
		o.lone = frame
	default:
		b := o.openTail()
		b.B = append(b.B, frame...)
	}
	o.size += len(frame)
	o.total += uint64(len(frame))
}

// notify records that the listener is to know of the appended bytes. It returns true if the caller
// must notify it. Caller holds mu.
func (o *outgoing) notify() bool {
	mark := !o.notified
	o.notified = true
	return mark
}

// close appends the goodbye, after which nothing is appended any more. It reports whether it is the
// first, and whether the caller must notify the listener. That is so of an immediate close even if
// the listener knows of bytes: it may be in a write that nobody reads.
func (o *outgoing) close(how CloseMode, goodbye protocol.Goodbye) (first, mark bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing == closeNone {
		o.append(protocol.KindGoodbye, 0, 0, &goodbye)
		o.closing = how
		return true, o.notify() || how == Immediate
	}
	if how == Immediate && o.closing == Graceful {
		o.closing = Immediate
		o.notified = true
		return false, true
	}
	return false, false
}

func (o *outgoing) sealTail() {
	if o.lone != nil {
		o.openTail()
	}
	if o.tail == nil {
		return
	}
	o.segs = append(o.segs, o.tail.B)
	o.full = append(o.full, o.tail)
	o.tail = nil
}

// holdNotify lets the listener's own goroutine append without a notification: it takes the pending
// frames when it is done.
func (o *outgoing) holdNotify() {
	o.mu.Lock()
	o.notified = true
	o.mu.Unlock()
}

// releaseNotify ends holdNotify without a take, if only the caller's own bytes wait. The next
// append, or Conn.WriteDeferred, has everything written.
func (o *outgoing) releaseNotify(own int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size != own || o.closing != closeNone || o.overdue {
		return false // somebody else's bytes came meanwhile, relying on the taking, or WriteDeferred did
	}
	o.notified = false
	return true
}

// take hands over everything that waits. The listener gives it back with release once it is written
// or copied.
func (o *outgoing) take(b *writeBatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.closing
	if !o.takeSegment(b) {
		o.sealTail()
		// The slices change hands both ways, so that neither side allocates in steady state.
		o.segs, b.segs = b.segs[:0], o.segs
		o.full, b.full = b.full[:0], o.full
		b.size, o.size = o.size, 0
		o.notified, o.overdue = false, false
	}
	b.end = end
}

// takeSegment takes the pending frames, if they are one segment, into the slices of the batch.
// Caller holds mu.
func (o *outgoing) takeSegment(b *writeBatch) bool {
	switch {
	case len(o.segs) > 0:
		return false
	case o.lone != nil:
		b.segs, b.full = append(b.segs[:0], o.lone), b.full[:0]
	case o.tail != nil:
		b.segs, b.full = append(b.segs[:0], o.tail.B), append(b.full[:0], o.tail)
	default:
		return false
	}
	b.size, b.end = o.size, closeNone
	o.lone, o.tail, o.size, o.notified, o.overdue = nil, nil, 0, false, false
	return true
}

// takeOne is take, if all that waits is one segment, or nothing, and the connection stays open.
func (o *outgoing) takeOne(b *writeBatch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closing == closeNone && (o.size == 0 || o.takeSegment(b))
}

func (b *writeBatch) release() {
	clear(b.segs)
	for i, f := range b.full {
		putBuffer(f)
		b.full[i] = nil
	}
	b.segs, b.full, b.size = b.segs[:0], b.full[:0], 0
}

// discard drops the pending frames: the connection is closed.
func (o *outgoing) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b writeBatch
	o.lone = nil
	o.sealTail()
	b.segs, b.full = o.segs, o.full
	o.segs, o.full, o.size, o.closing = nil, nil, 0, Immediate
	b.release()
}

// waiting is how many bytes the client has not read.
func (o *outgoing) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size + int(o.unsent.Load())
}

// tooOld reports whether some byte waits for longer than age. It is asked now and then; a waiting
// byte is found at an age below twice that.
func (o *outgoing) tooOld(now, age time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent := o.total - uint64(o.size) - uint64(max(0, o.unsent.Load()))
	if sent == o.total || sent >= o.markTotal {
		o.markTotal, o.markAt = o.total, now
		return false
	}
	return now-o.markAt > age
}

// Append encodes a frame behind the pending ones, and returns its length. It is written at the
// latest after Transport.Flush. A connection that is closed takes nothing; one that passes the hard
// bound is closed.
func (c *Conn) Append(kind protocol.Kind, id, arg uint64, m protocol.Message) (n int) {
	n, over, mark := c.append(kind, id, arg, m)
	if mark {
		c.socket.markDirty(false)
	} else {
		c.socket.hasten()
	}
	if over {
		c.closeSlow()
	}
	return n
}

// append also returns whether the hard bound is passed, and whether to notify the listener.
func (c *Conn) append(kind protocol.Kind, id, arg uint64, m protocol.Message) (n int, over, mark bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone {
		return 0, false, false
	}
	n = o.append(kind, id, arg, m)
	c.countWaiting()
	return n, o.size+int(o.unsent.Load()) > c.t.cfg.Limits.OutHard, o.notify()
}

// AppendShared is Append for a frame that is encoded already and is never changed. A droppable one
// is not taken when more than the soft bound waits; it answers false then.
func (c *Conn) AppendShared(frame []byte, droppable bool) bool {
	taken, over, mark := c.appendShared(frame, droppable)
	if mark {
		c.socket.markDirty(true)
	}
	if over && c.closeSlow() {
		c.t.Flush()
	}
	return taken
}

func (c *Conn) appendShared(frame []byte, droppable bool) (taken, over, mark bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone {
		return true, false, false
	}
	waiting := o.size + int(o.unsent.Load())
	if droppable && waiting > c.t.SoftBound() {
		return false, false, false
	}
	o.share(frame)
	c.countWaiting()
	return true, waiting+len(frame) > c.t.cfg.Limits.OutHard, o.notify()
}

// AppendPage is AppendShared for a frame in two parts. The first one is copied; others refer to the
// second one as well. It is always taken.
func (c *Conn) AppendPage(head, shared []byte) {
	over, mark := c.appendPage(head, shared)
	if mark {
		c.socket.markDirty(false)
	}
	if over && c.closeSlow() {
		c.t.Flush()
	}
}

func (c *Conn) appendPage(head, shared []byte) (over, mark bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone {
		return false, false
	}
	b := o.openTail()
	b.B = append(b.B, head...)
	o.size += len(head)
	o.total += uint64(len(head))
	if len(shared) > 0 {
		o.share(shared)
	}
	c.countPage(len(head) + len(shared))
	c.countWaiting()
	return o.size+int(o.unsent.Load()) > c.t.cfg.Limits.OutHard, o.notify()
}

// closeSlow ends a connection that does not read. It returns false if it ended before.
func (c *Conn) closeSlow() bool {
	l := &c.t.cfg.Limits
	why := fmt.Sprintf("more than %d bytes wait for this connection, or one waits for longer than %s; read faster",
		l.OutHard, l.OutAge)
	if !c.Close(Immediate, protocol.StatusOverloaded, why) {
		return false
	}
	c.t.Metrics.SlowReader.Inc()
	c.t.cfg.Log.Info("slow reader closed", "conn", c.id, "remote", c.remote)
	return true
}

// Waiting is how many bytes the client has not read.
func (c *Conn) Waiting() int { return c.out.waiting() }

// OverSoftBound reports whether more than the soft bound waits.
func (c *Conn) OverSoftBound() bool { return c.Waiting() > c.t.SoftBound() }

// HasRoom reports whether no more than half of the soft bound waits.
func (c *Conn) HasRoom() bool { return c.Waiting() <= c.t.SoftBound()/2 }

// AwaitRoom has Client.Room called once there is room, which may be at once and from within.
func (c *Conn) AwaitRoom() {
	c.awaitsRoom.Store(true)
	c.checkRoom()
}

// checkRoom is called after each write.
func (c *Conn) checkRoom() {
	if c.awaitsRoom.Load() && c.HasRoom() && c.awaitsRoom.CompareAndSwap(true, false) {
		c.client.Room()
	}
}

// deferWrite ends the hold of a listener that has read, and reports whether the pending frames go
// on waiting, or there are none. If not, the listener writes them.
func (c *Conn) deferWrite() bool { return c.out.releaseNotify(c.deferrable) }

// WriteDeferred has the deferred frames written. Transport.Flush follows.
func (c *Conn) WriteDeferred() {
	c.out.mu.Lock()
	mark := c.out.size > 0 && c.out.notify()
	c.out.overdue = c.out.size > 0
	c.out.mu.Unlock()
	if mark {
		c.socket.markDirty(false)
	}
}

// putBack puts unwritten bytes in front of the pending frames. The caller notifies the listener.
func (c *Conn) putBack(rest []byte) {
	o := &c.out
	f := getBuffer()
	f.B = append(f.B, rest...)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lone != nil {
		o.openTail() // it no longer waits alone
	}
	o.segs = slices.Insert(o.segs, 0, f.B)
	o.full = append(o.full, f)
	o.size += len(rest)
	o.notified = true
	c.countWaiting()
}

// setUnsent sets the number of bytes that the listener holds because the kernel took no more. The
// writing goroutine calls it after writing.
func (c *Conn) setUnsent(bytes int) {
	o := &c.out
	if was := o.unsent.Swap(int64(bytes)); was != int64(bytes) || o.counted.Load() != 0 || o.pages.Load() != 0 {
		o.mu.Lock()
		c.countWaiting()
		o.mu.Unlock()
	}
}

// countWaiting adds the bytes that wait for this connection to the total of all connections. A
// small amount does not count, so that connections that are read never touch the total. Bytes count
// when they are appended, not when a write fails: a burst of changes is appended to a thousand
// connections before any of them is written to. The caller holds out.mu.
func (c *Conn) countWaiting() {
	o := &c.out
	waiting := int64(o.size) + o.unsent.Load()
	c.countPagesSent(waiting)
	if waiting <= MinOutSoft {
		waiting = 0
	}
	if was := o.counted.Load(); was != waiting {
		o.counted.Store(waiting)
		c.t.unread.Add(waiting - was)
	}
}

// countPage counts a page that was appended. Caller holds out.mu.
func (c *Conn) countPage(bytes int) {
	o := &c.out
	o.pagesEnd = o.total
	o.pages.Add(int64(bytes))
	c.t.pages.add(int64(bytes))
}

// countPagesSent subtracts the client's received pages. Frames waiting between two pages count as a
// page. Caller holds out.mu.
func (c *Conn) countPagesSent(waiting int64) {
	o := &c.out
	pages := o.pages.Load()
	if pages == 0 {
		return
	}
	if left := max(0, waiting-int64(o.total-o.pagesEnd)); left < pages {
		o.pages.Store(left)
		c.t.pages.add(left - pages)
	}
}
