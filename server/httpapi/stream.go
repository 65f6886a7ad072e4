package httpapi

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
	"github.com/signalbox-dev/signalbox/server/web"
)

const (
	eventStream = "text/event-stream"

	// The ttl of a session that is a stream's own.
	streamTTL    = 15 * time.Second
	minStreamTTL = 5 * time.Second
	maxStreamTTL = 5 * time.Minute

	// unacknowledged is how long a caller's kernel may not acknowledge what it is sent.
	unacknowledged = 15 * time.Second
	// sentTime is how long the end of a stream waits until its last event is acknowledged.
	sentTime = time.Second
	// Who waits is told its place when it changes. It is looked up at these intervals.
	minQueueTime = time.Second
	maxQueueTime = 8 * time.Second
	// together is the time within which events alive go out at once: that spares wake-ups.
	together = 50 * time.Millisecond
)

// errGone is of a caller that does not read its answer any more.
var errGone = unavailable("the caller has hung up")

// stream is a request that tells how a lock fares for as long as its caller reads.
type stream struct {
	x     *call
	s     *session
	ctx   context.Context // of the caller
	conn  net.Conn        // nil: net/http writes
	own   bool            // the session ends with it
	begun bool            // events were sent
	until time.Time       // the caller may rely on the session until then, by what it was told
	fixed []byte          // what each event alive has, as JSON without its beginning
}

// serve acquires, and tells what becomes of it until the lease or the caller is gone. An error
// before the first event is an answer like others. A stream of HTTP/1.1 that holds its lock goes on
// without net/http, which would keep 20 KB for it.
func (st *stream) serve(a *set) error {
	x, s := st.x, st.s
	s.api.counts.streams.Add(1)
	st.ctx = x.r.Context()
	web.SetUserTimeout(st.ctx, unacknowledged)
	newer := s.newStream(x.name)
	l, err := x.acquire(a, st.queue())
	switch {
	case err != nil:
	case l == nil:
		err = x.notAcquired()
	default:
		if err = st.begin(l); err == nil && st.detach() {
			go func() { _ = st.end(st.hold(l, newer)) }()
			return nil
		}
	}
	if err == nil {
		err = st.hold(l, newer)
	}
	return st.end(err)
}

// detach takes the connection from net/http, if that can be done.
func (st *stream) detach() bool {
	x := st.x
	if conn, ctx := web.Detach(x.w, x.r); conn != nil {
		st.conn, st.ctx = conn, ctx
		st.x = &call{api: x.api, route: x.route, status: x.status, unkeep: x.unkeep}
		x.detached = true
		x.api.detached.Add(1)
	}
	return st.conn != nil
}

// end says why a stream ends, and leaves its session.
func (st *stream) end(err error) error {
	s := st.s
	defer s.api.counts.streams.Add(-1)
	if p := problemOf(err); !errors.Is(err, errGone) && (st.begun || p.code == notAcquired) {
		event := "lost"
		switch p.code {
		case notAcquired:
			event = notAcquired
		case errClosing.code, errMoved.code:
			event = errClosing.code
		}
		if err = st.send(event, p.document()); err == nil {
			err = st.acknowledged()
		}
	}
	switch {
	case !st.own:
		s.leave()
	case errors.Is(err, errGone) && (st.ctx.Err() == nil || web.Lost(st.ctx)):
		s.leaveFor(time.Until(st.until) + extraTTL) // it may rely still on what it was told last
	default:
		s.leaveFor(0)
	}
	if st.conn != nil {
		_, _ = io.WriteString(st.conn, "0\r\n\r\n")
		_ = st.conn.Close()
		st.x.done(nil)
		if s.api.detached.Add(-1) == 0 {
			select {
			case s.api.none <- struct{}{}:
			default:
			}
		}
	}
	if st.begun {
		return nil
	}
	return err
}

// newStream ends the stream of a name that there is. The result is closed when another one comes.
func (s *session) newStream(name string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heldOf(name)
	if h.stream != nil {
		close(h.stream)
	}
	h.stream = make(chan struct{})
	return h.stream
}

// queue makes a function that tells the place in the queue when it changes, and says when it is to
// be called again.
func (st *stream) queue() func() (time.Duration, error) {
	var sent document
	next := time.Duration(0)
	return func() (time.Duration, error) {
		now := document{}
		st.x.describeQueue(now)
		if now["position"] != nil && !reflect.DeepEqual(now, sent) {
			sent, next = now, minQueueTime
			return next, st.send("queued", now)
		}
		next = min(max(2*next, minQueueTime), maxQueueTime)
		return next, st.write([]byte(": it waits\n\n"))
	}
}

// begin sends the event of a grant, with how long it may be relied on. It counts from when it is
// read.
func (st *stream) begin(l *client.Lease) error {
	d, err := st.x.grant(l)
	if err != nil {
		return err
	}
	st.fixed = encode(document{"node": d["node"], "session_id": d["session_id"], "token": d["token"]})[1:]
	left, err := st.believe(l)
	if err != nil {
		return err
	}
	delete(d, "waited_ms")
	d["expires_in_ms"], d["time"] = left, timeText(time.Now())
	return st.send("acquired", d)
}

// hold tells how a lease fares until it ends. It is called by the thousand: its frame is small.
func (st *stream) hold(l *client.Lease, newer <-chan struct{}) (err error) {
	s, third := st.s, st.s.ttl/3
	tick := time.NewTimer(third)
	defer tick.Stop()
	preempted, ended := l.Preempted(), l.Context().Done()
	for {
		select {
		case <-preempted:
			preempted = nil
			err = st.send("preempt", document{"token": l.Token()})
		case <-tick.C:
			// What the cluster does not renew is not said again. It is lost before it is over.
			left := time.Until(st.until)
			switch renewed := min(s.ttl, s.native.Remaining()); {
			case renewed-left >= third/2:
				tick.Reset(third - boottime.Now()%together)
				err = st.alive(l)
			case left <= third/4:
				err = unavailable("the cluster does not renew the session; stop now")
			default:
				tick.Reset(third / 8)
			}
		case <-ended:
			return st.lost(l)
		case <-s.ctx.Done():
			return st.lost(l)
		case <-newer:
			return errAborted
		case <-st.ctx.Done():
			return errGone
		}
		if err != nil {
			return err
		}
	}
}

// lost is why a lease has ended, or is not told of any more.
func (st *stream) lost(l *client.Lease) error {
	switch {
	case st.s.api.ctx.Err() != nil:
		return errClosing
	case st.s.ctx.Err() != nil:
		return context.Cause(st.s.ctx)
	case l.Lost() != nil:
		return l.Lost()
	}
	return errLost
}

// believe is how long a caller may rely on an event of now, in milliseconds.
func (st *stream) believe(l *client.Lease) (int64, error) {
	st.until = time.Now().Add(min(st.s.ttl, st.s.native.Remaining()))
	left, err := st.s.believe(l)
	if err != nil && !l.Held() {
		err = st.lost(l)
	}
	return left, err
}

// alive sends the event that thousands of streams send every few seconds, with hardly any garbage.
func (st *stream) alive(l *client.Lease) error {
	left, err := st.believe(l)
	if err != nil {
		return err
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := append((*buffer)[:0], "event: alive\ndata: {\"expires_in_ms\":"...)
	b = append(strconv.AppendInt(b, left, 10), ",\"time\":\""...)
	b = append(time.Now().UTC().AppendFormat(b, timeForm), "\","...)
	*buffer = append(append(b, st.fixed...), '\n')
	return st.write(*buffer)
}

// buffers are for events.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (st *stream) send(event string, d document) error {
	return st.write([]byte("event: " + event + "\ndata: " + string(encode(d)) + "\n"))
}

// write sends text. An error is errGone.
func (st *stream) write(text []byte) error {
	if st.conn != nil {
		return st.writeChunk(text)
	}
	c := http.NewResponseController(st.x.w)
	_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if !st.begun {
		st.begun = true
		h := st.x.w.Header()
		h.Set("Content-Type", eventStream)
		h.Set("Cache-Control", "no-store, no-transform")
		h.Set("X-Accel-Buffering", "no")
		if st.x.r.ProtoMajor == 1 {
			h.Set("Connection", "close")
		}
	}
	_, err := st.x.w.Write(text)
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		return errGone
	}
	return nil
}

// writeChunk sends text to a connection that was taken from net/http.
func (st *stream) writeChunk(text []byte) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := append(strconv.AppendInt((*buffer)[:0], int64(len(text)), 16), "\r\n"...)
	*buffer = append(append(b, text...), "\r\n"...)
	_ = st.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := st.conn.Write(*buffer); err != nil {
		return errGone
	}
	return nil
}

// acknowledged waits until the caller's kernel has the last event.
func (st *stream) acknowledged() error {
	ctx, cancel := context.WithTimeout(st.ctx, sentTime)
	defer cancel()
	for !web.Acknowledged(ctx) {
		select {
		case <-ctx.Done():
			return errGone
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
