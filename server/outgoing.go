package server

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/signalbox-dev/signalbox/protocol"
)

// closeMode is how a connection goes on once what waits for it is written.
type closeMode uint8

const (
	closeNone      closeMode = iota
	closeGraceful            // half-close, wait for the client's end for lingerTimeout, close: what was said is read
	closeImmediate           // close at once
)

// lingerTimeout is how long a connection that was said goodbye may take to read it.
const lingerTimeout = time.Second

// minOutSoft is the soft bound while too much waits for slow readers altogether, and the least that may be configured.
const minOutSoft = 64 << 10

// sharedSize is the length from which a shared frame is referred to instead of copied.
const sharedSize = 2048

// outgoing is what waits to be written on one connection: whole frames only, in order. Any goroutine appends; the transport takes everything at once and
// writes it with one call.
//
// Invariant: size is the bytes of segs and tail. size + held is what the client has not read, and never more than the hard bound plus one frame.
type outgoing struct {
	mu       sync.Mutex
	segs     [][]byte // filled bytes of full buffers, and shared frames
	full     []*bytebufferpool.ByteBuffer
	tail     *bytebufferpool.ByteBuffer // appended to; not in segs yet
	size     int
	notified bool      // the transport knows that there is something to take
	closing  closeMode // nothing is appended any more unless it is closeNone

	unsent    atomic.Int64 // bytes the transport holds because the kernel took no more
	counted   atomic.Int64 // of size + held, what is in Server.unread: all of it, or nothing when it is little; changed under mu
	total     uint64       // bytes ever appended
	markTotal uint64       // of total, at markAt: while it is not sent, something waits since markAt
	markAt    time.Duration
}

// writeBatch is what a transport takes to write. Its segments may be written with one vectored write; they are changed by nobody.
type writeBatch struct {
	segs [][]byte
	full []*bytebufferpool.ByteBuffer
	size int
	end  closeMode
}

// buffer is the pooled buffer to append frames to. Caller holds mu.
func (o *outgoing) buffer() *bytebufferpool.ByteBuffer {
	if o.tail == nil {
		o.tail = bytebufferpool.Get()
	}
	return o.tail
}

// share appends a frame that others refer to as well. Caller holds mu.
func (o *outgoing) share(frame []byte) {
	if len(frame) < sharedSize {
		b := o.buffer()
		b.B = append(b.B, frame...)
	} else {
		o.sealTail()
		o.segs = append(o.segs, frame)
	}
	o.size += len(frame)
	o.total += uint64(len(frame))
}

func (o *outgoing) sealTail() {
	if o.tail == nil {
		return
	}
	o.segs = append(o.segs, o.tail.B)
	o.full = append(o.full, o.tail)
	o.tail = nil
}

// holdNotify lets the transport's own goroutine append without being told of it: it takes what waits when it is done.
func (o *outgoing) holdNotify() {
	o.mu.Lock()
	o.notified = true
	o.mu.Unlock()
}

// releaseNotify ends holdNotify without a take, if only the caller's own bytes wait. The next append, or
// notifyTransport, has everything written.
func (o *outgoing) releaseNotify(own int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size != own || o.closing != closeNone {
		return false // somebody else's bytes came meanwhile, relying on the taking
	}
	o.notified = false
	return true
}

// notifyTransport has written what waits without anybody knowing.
func (c *conn) notifyTransport() {
	c.out.mu.Lock()
	push := c.out.size > 0 && !c.out.notified
	c.out.notified = c.out.notified || push
	c.out.mu.Unlock()
	if push {
		c.transport.markDirty()
	}
}

// take hands over everything that waits. The transport gives it back with release once it is written or copied.
func (o *outgoing) take(b *writeBatch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealTail()
	// The slices change hands both ways, so that neither side allocates in steady state.
	o.segs, b.segs = b.segs[:0], o.segs
	o.full, b.full = b.full[:0], o.full
	b.size, o.size = o.size, 0
	b.end = o.closing
	o.notified = false
}

// takeOne is take, if all that waits is one segment and the connection stays open.
func (o *outgoing) takeOne(b *writeBatch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone || o.tail == nil || len(o.segs) > 0 {
		return false
	}
	b.segs, b.full = append(b.segs[:0], o.tail.B), append(b.full[:0], o.tail)
	b.size, b.end = o.size, closeNone
	o.tail, o.size, o.notified = nil, 0, false
	return true
}

// putBack puts what could not be written in front of what waits. The transport is told by the caller.
func (c *conn) putBack(rest []byte) {
	o := &c.out
	f := bytebufferpool.Get()
	f.B = append(f.B[:0], rest...)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.segs = slices.Insert(o.segs, 0, f.B)
	o.full = append(o.full, f)
	o.size += len(rest)
	o.notified = true
	c.countWaiting()
}

func (b *writeBatch) release() {
	clear(b.segs)
	for i, f := range b.full {
		bytebufferpool.Put(f)
		b.full[i] = nil
	}
	b.segs, b.full, b.size = b.segs[:0], b.full[:0], 0
}

// discard forgets what waits: the connection is closed.
func (o *outgoing) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b writeBatch
	o.sealTail()
	b.segs, b.full = o.segs, o.full
	o.segs, o.full, o.size, o.closing = nil, nil, 0, closeImmediate
	b.release()
}

// outSoft is the bytes that may wait for one connection before streams stop and reads are turned away. A thousand readers that stopped reading may not each make the
// server hold the most that one may: what waits for all of them is bounded too.
func (s *Server) outSoft() int {
	if s.unread.Load() > int64(s.cfg.Limits.OutTotal) {
		return minOutSoft
	}
	return s.cfg.Limits.OutSoft
}

// setUnsent notes how many bytes the transport holds because the kernel took no more. The transport's goroutine calls it after writing.
func (c *conn) setUnsent(bytes int) {
	o := &c.out
	if was := o.unsent.Swap(int64(bytes)); was != int64(bytes) || o.counted.Load() != 0 {
		o.mu.Lock()
		c.countWaiting()
		o.mu.Unlock()
	}
}

// countWaiting keeps what waits for this connection in the total of all. Little of it does not count, so that connections that are read from never touch the total.
// It counts when appended, not when the transport has failed to write it: a burst of changes is appended to a thousand connections before any of them is written
// to. Caller holds out.mu.
func (c *conn) countWaiting() {
	o := &c.out
	waiting := int64(o.size) + o.unsent.Load()
	if waiting <= minOutSoft {
		waiting = 0
	}
	if was := o.counted.Load(); was != waiting {
		o.counted.Store(waiting)
		c.server.unread.Add(waiting - was)
	}
}

// waiting is how many bytes the client has not read.
func (o *outgoing) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size + int(o.unsent.Load())
}

// tooOld says whether some byte waits for longer than age. It is asked now and then; what waits is found at an age below twice that.
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

// outbox is how one goroutine sends: it marks transports while it appends, wakes them together at the end, and holds the scratch memory of encoding. It is
// used by one goroutine at a time.
type outbox struct {
	server  *Server
	counts  *replyCounts
	written int // bytes appended, by whoever cares to reset it
	failure protocol.Failure
	direct  directWriter
}

func (s *Server) newOutbox() *outbox { return &outbox{server: s, counts: s.metrics.newReplyCounts()} }

// reply answers a request with success.
func (o *outbox) reply(c *conn, kind protocol.Kind, id uint64, m protocol.Message) {
	o.counts.count(kind, protocol.StatusOK)
	c.answered()
	o.put(c, kind|protocol.KindReply, id, uint64(protocol.StatusOK), m)
}

// fail answers a request with a status and a sentence.
func (o *outbox) fail(c *conn, kind protocol.Kind, id uint64, status protocol.Status, text string) {
	o.counts.count(kind, status)
	c.answered()
	if countsAsExcess(status) {
		c.rejections.Add(1)
	}
	o.failure.Message = text
	o.put(c, kind|protocol.KindReply, id, uint64(status), &o.failure)
}

// rejectByShard answers a request of a shard with an error. With WRONG_SHARD the client is told who leads
// the shard, as far as is known here: that is where to ask, or, if it is this instance, there is no
// use in looking for another leader of it.
func (o *outbox) rejectByShard(c *conn, d *shardHost, kind protocol.Kind, id uint64, status protocol.Status, text string) {
	if status == protocol.StatusWrongShard {
		o.failure.Master, o.failure.Term = d.leaderInstance()
		defer func() { o.failure.Master, o.failure.Term = 0, 0 }()
	}
	o.fail(c, kind, id, status, text)
}

// failError answers a request with an error, which carries the status.
func (o *outbox) failError(c *conn, kind protocol.Kind, id uint64, err error) {
	status, text := statusText(err)
	o.fail(c, kind, id, status, text)
}

// event sends something nobody asked for.
func (o *outbox) event(c *conn, kind protocol.Kind, id, arg uint64, m protocol.Message) {
	o.put(c, kind, id, arg, m)
}

func (o *outbox) put(c *conn, kind protocol.Kind, id, arg uint64, m protocol.Message) {
	n, over, push := c.append(kind, id, arg, m)
	o.written += n
	if push {
		c.transport.markDirty()
	}
	if over {
		c.closeSlow()
	}
}

// flush wakes the transports that have something to write. It is called once after everything that belongs together was sent.
func (o *outbox) flush() { o.server.wakeWriters() }

// flushDirect is flush for a goroutine that may spend the time of a few writes itself.
func (o *outbox) flushDirect() {
	if o.server.plain != nil {
		o.server.plain.writeDirect(&o.direct)
	}
}

// closeSlow ends a connection that does not read. False: it ended before.
func (c *conn) closeSlow() bool {
	l := &c.server.cfg.Limits
	why := fmt.Sprintf("more than %d bytes wait for this connection, or one waits for longer than %s; read faster", l.OutHard, l.OutAge)
	if !c.close(closeImmediate, protocol.StatusOverloaded, why) {
		return false
	}
	c.server.metrics.slowCut.Inc()
	c.server.log.Info("slow reader cut", "conn", c.id, "remote", c.remote)
	return true
}

// append encodes a frame behind what waits and answers its length. Over says that the hard bound is passed, push that the transport is to be told.
func (c *conn) append(kind protocol.Kind, id, arg uint64, m protocol.Message) (n int, over, push bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone {
		return 0, false, false
	}
	b := o.buffer()
	n = len(b.B)
	b.B = protocol.AppendFrame(b.B, kind, id, arg, m)
	n = len(b.B) - n
	o.size += n
	o.total += uint64(n)
	c.countWaiting()
	push = !o.notified
	o.notified = true
	return n, o.size+int(o.unsent.Load()) > c.server.cfg.Limits.OutHard, push
}

// appendShared is append for a frame that is encoded already and is never changed. With droppable it takes nothing when more than the soft
// bound waits.
func (c *conn) appendShared(frame []byte, droppable bool) (taken, over, push bool) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing != closeNone {
		return true, false, false
	}
	waiting := o.size + int(o.unsent.Load())
	if droppable && waiting > c.server.outSoft() {
		return false, false, false
	}
	o.share(frame)
	c.countWaiting()
	push = !o.notified
	o.notified = true
	return true, waiting+len(frame) > c.server.cfg.Limits.OutHard, push
}
