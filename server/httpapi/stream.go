package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
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
	// quiet is how long nothing is sent: proxies cut what is silent for longer.
	quiet = 15 * time.Second
	// reconnect is after how many milliseconds a browser's kind of reader asks again.
	reconnect = 2000
	// together is the time within which events alive go out at once: that spares wake-ups.
	together = 50 * time.Millisecond
)

// errGone is of a caller that does not read its answer any more.
var errGone = unavailable("the caller has closed its side of the connection, which ends the stream")

// stream is a request that tells how a lock fares for as long as its caller reads.
type stream struct {
	x     *call
	s     *session
	own   bool      // the session ends with it
	begun bool      // events were sent
	until time.Time // the caller may rely on the session until then, by what it was told
	fixed []byte    // what each event alive has, as JSON without its beginning
}

// serve acquires, and tells what becomes of it until the lease or the caller is gone. An error
// before the first event is an answer like others.
func (st *stream) serve(a *set) error {
	x, s := st.x, st.s
	s.api.counts.streams.Add(1)
	defer s.api.counts.streams.Add(-1)
	web.SetUserTimeout(x.r.Context(), unacknowledged)
	l, err := x.acquire(a, st.queue())
	switch {
	case err != nil:
	case l == nil:
		err = x.notAcquired()
	default:
		if err = st.begin(l); err == nil {
			err = st.hold(l)
		}
	}
	x.forget()
	return st.end(err)
}

// end says why a stream ends, and then leaves its session: the next holder is granted nothing while
// the caller may rely on what it has read. It may have closed its side of the connection alone, and
// read still.
func (st *stream) end(err error) error {
	s, ctx := st.s, st.x.r.Context()
	informed := true // the caller's kernel has the end, or its caller has gone
	if p := problemOf(err); st.begun || p.code == notAcquired {
		event := "lost"
		switch {
		case p.code == notAcquired:
			event = notAcquired
		case p.code == errClosing.code, p.code == errMoved.code, p == errTokenEnds:
			event = errClosing.code
		}
		if err = st.send(event, p.document()); err == nil {
			if ctx.Err() != nil {
				defer st.finish()()
			}
			informed = st.acknowledged()
		} else {
			informed = ctx.Err() != nil && !web.Lost(ctx) // it has closed or reset it
		}
	}
	switch {
	case !st.own:
		s.leave()
	case !informed:
		s.step(func(m *machine.Session, now time.Duration) { m.Leave(now, time.Until(st.until)+machine.ExtraTTL) })
	case s.ctx.Err() != nil && s.api.ctx.Err() == nil: // the cluster may not hear of it: nobody waits for that
		go s.leaveNow()
	default:
		s.leaveNow()
	}
	if st.begun {
		return nil
	}
	return err
}

// finish ends the answer to a caller that has closed its side alone. net/http would do so only when
// the handler has returned, after the session. The connection is closed by the result.
func (st *stream) finish() (end func()) {
	conn, _, err := http.NewResponseController(st.x.w).Hijack() // not with HTTP/2, which knows no such callers
	if err != nil {
		return func() {}
	}
	_ = conn.SetWriteDeadline(time.Now().Add(sentTime))
	_, _ = io.WriteString(conn, "0\r\n\r\n") // the last chunk
	web.CloseWrite(st.x.r.Context())
	return func() { _ = conn.Close() }
}

// leaveNow is leave of a stream whose own the session is: it has ended when it returns.
func (s *session) leaveNow() {
	s.step(func(m *machine.Session, now time.Duration) { m.Leave(now, 0) })
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
		return next, st.write(comment)
	}
}

// comment is sent where no event is due.
var comment = []byte(":\n\n")

// begin sends the event of a grant, with the time for which the caller may rely on it, counted from
// the moment it reads the event.
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
func (st *stream) hold(l *client.Lease) (err error) {
	s, third := st.s, st.s.ttl/3
	due := boottime.Now() + third // the next event alive
	tick := time.NewTimer(min(third, quiet))
	defer tick.Stop()
	preempted, ended := l.Preempted(), l.Context().Done()
	for {
		select {
		case <-preempted:
			preempted = nil
			err = st.send("preempt", document{"token": l.Token()})
		case <-tick.C:
			now := boottime.Now()
			if now < due {
				tick.Reset(min(due-now, quiet))
				err = st.write(comment)
				break
			}
			// What the cluster does not renew is not said again. It is lost before it is over.
			left := time.Until(st.until)
			switch renewed := min(s.ttl, s.native.Remaining()); {
			case renewed-left >= third/2:
				due = now + third - now%together
				err = st.alive(l)
			case left <= third/4:
				err = unavailable("the cluster does not renew the session; stop now")
			default:
				due = now + third/8
			}
			tick.Reset(min(due-now, quiet))
		case <-ended:
			return st.lost(l)
		case <-s.ctx.Done():
			return st.lost(l)
		case <-st.x.replies:
			return errAborted
		case <-st.x.r.Context().Done():
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
		text = append(fmt.Appendf(nil, "retry: %d\n\n", reconnect), text...)
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

// acknowledged waits until the caller's kernel has the last event, and reports whether it does or the
// caller has closed the connection.
func (st *stream) acknowledged() bool {
	ctx := st.x.r.Context()
	for end := time.Now().Add(sentTime); !web.Acknowledged(ctx); time.Sleep(5 * time.Millisecond) {
		if web.Gone(ctx) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
	return true
}
