package client

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Bounds of callers that read for themselves. A process that does nothing else keeps time by the
// millisecond.
const (
	closeBehind   = 100 * time.Microsecond // from an answer to the next call
	callsInARow   = 4                      // as close behind each other, until callers read
	goroutineBack = time.Millisecond       // after the last answer, the goroutine reads again
	maxCallerRead = 10 * time.Millisecond  // then the goroutine reads: the caller looks at its context
)

var (
	errStepAside = errors.New("callers read for themselves") // ends the goroutine's read
	// errUnwound: while a caller read, a handler of the program's log panicked or ended its
	// goroutine
	errUnwound = errors.New("the goroutine that read from it was ended")
)

// reader is who reads from a connection. As a rule a goroutine does, since events come at any time.
// It has to wake the caller of each answer. That takes the scheduler, often another thread, and
// memory that is in no cache. So it steps aside for calls that are alone on the connection and
// close behind each other: each caller reads its own answer, and whatever else comes. Between two
// calls nobody reads. The goroutine reads again a moment after the last answer, behind a caller
// that leaves others waiting, or when a caller has read for long.
//
// Each raw.Read begins by forgetting that something came. So the goroutine begins with a read, and
// a caller with its request, whose answer is sure to be reported. What came between two calls is
// read with the answer, or by the goroutine after maxCallerRead.
type reader struct {
	cn *conn

	// Guarded by the connection's mu.
	turn     readTurn
	inARow   int8          // calls that were close behind the answer before them
	recalled bool          // the caller is told to stop, by a deadline that has passed
	answered time.Duration // clock at the last answer to a call

	// Of whose turn it is.
	in      inbox
	own     *call  // the caller's
	request []byte // of own; nil: it was written
	more    bool   // the caller's last read left something
	failed  error  // why the caller stopped

	// Never changed once set, by the goroutine before it steps aside for the first time.
	raw   syscall.RawConn // nil: callers cannot read
	back  chan struct{}   // capacity 1: the goroutine's turn begins
	timer *time.Timer     // calls recall
	step  func(fd uintptr) bool
}

// readTurn is whose turn it is to read. While it is not the goroutine's, that one waits for back.
type readTurn int8

const (
	ofGoroutine readTurn = iota
	ofNobody
	ofCaller
)

// inbox is what was read and is not handled yet.
type inbox struct {
	buf    []byte
	filled bool // by the last read: there may be more
}

// room is where the next bytes belong.
func (in *inbox) room() []byte {
	if size := cap(in.buf); len(in.buf) == size || in.filled && size < maxReadBuffer {
		in.buf = append(make([]byte, 0, max(2*size, minReadBuffer)), in.buf...)
		in.filled = false
	}
	return in.buf[len(in.buf):cap(in.buf)]
}

// run is the goroutine: it reads to the end of the connection.
func (r *reader) run() {
	cn := r.cn
	defer cn.handler.connLost(cn)
	if raw := reportLeft(cn.nc); raw != nil && r.hold(raw) {
		cn.end(r.readHeld())
		_ = cn.nc.Close()
		return
	}
	for {
		n, err := cn.nc.Read(r.in.room())
		if n > 0 {
			if err := r.received(n); err != nil {
				cn.end(err)
				return
			}
		}
		if err != nil {
			cn.end(err)
			return
		}
	}
}

// hold has the goroutine close the socket, which would wait for who reads. It is false if the
// connection is over.
func (r *reader) hold(raw syscall.RawConn) bool {
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	if r.cn.err != nil {
		return false
	}
	r.raw = raw
	return true
}

// readHeld reads to the end, or has callers read, and returns why the connection ended.
func (r *reader) readHeld() error {
	for {
		var ended error
		err := r.raw.Read(func(fd uintptr) bool {
			if r.awaitsNothing() {
				delayAck(fd)
			}
			ended = drain(fd, r.in.room, r.receivedByGoroutine)
			return ended != nil
		})
		switch {
		case ended == nil:
			return err
		case ended != errStepAside:
			return ended
		case r.stepAside():
			<-r.back
		}
	}
}

// awaitsNothing says that what comes next is no answer, so that no request need follow it.
func (r *reader) awaitsNothing() bool {
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	return r.cn.calls.Open() == 0
}

// receivedByGoroutine says whether to read again, be it to see an end that would be missed.
func (r *reader) receivedByGoroutine(n int, left bool) (again bool, err error) {
	if err := r.received(n); err != nil {
		return false, err
	}
	cn := r.cn
	cn.mu.Lock()
	defer cn.mu.Unlock()
	switch {
	case cn.err != nil: // end does not close the socket, so more may come
		return false, errConnLost
	case !left && r.inARow == callsInARow && r.isQuiet():
		return false, errStepAside
	}
	return left || cn.calls.Open() > 0 || cn.goodbye != nil, nil
}

// isQuiet says that no call waits and nothing is known to come. The connection's mu is held.
func (r *reader) isQuiet() bool {
	return r.cn.err == nil && r.cn.calls.Open() == 0 && r.cn.goodbye == nil && len(r.in.buf) == 0
}

// stepAside ends the goroutine's turn. It is false if a call came meanwhile, which relies on it.
func (r *reader) stepAside() bool {
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	if !r.isQuiet() {
		return false
	}
	r.turn, r.inARow = ofNobody, 0
	if r.timer == nil {
		r.back, r.step = make(chan struct{}, 1), r.readStep
		r.timer = time.AfterFunc(goroutineBack, r.recall)
	} else {
		r.timer.Reset(goroutineBack)
	}
	return true
}

// begin takes a call into account that is about to be sent. If it is true the caller has the turn,
// and the call's read writes the request. request is nil if the call is not alone. mu is held.
func (r *reader) begin(cl *call, request []byte) bool {
	alone := request != nil && cl.reply == nil
	switch {
	case r.turn == ofNobody && alone:
		r.turn, r.own, r.request = ofCaller, cl, request
		cl.reads = true
		return true
	case r.turn == ofNobody:
		r.recallLocked()
	case r.turn == ofGoroutine && alone && r.raw != nil && r.cn.clock.now()-r.answered < closeBehind:
		r.inARow = min(r.inARow+1, callsInARow)
	default:
		r.inARow = 0
	}
	return false
}

// read sends the call of begin, reads until it is answered, and ends the caller's turn. It is false
// if there was no answer for long, or if the caller is not to wait for it any more.
func (r *reader) read(ctx context.Context, cl *call) (answered bool) {
	wait := maxCallerRead
	if at, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(at))
	}
	if ctx.Err() != nil {
		wait = 0
	}
	r.timer.Reset(wait)
	err := errUnwound
	defer func() { answered = r.endTurn(cl, err) }()
	if err = r.raw.Read(r.step); err == nil {
		err = r.failed
	}
	return false
}

// endTurn passes the turn on. err is why the connection is over; nil, or a deadline, if it is not.
func (r *reader) endTurn(cl *call, err error) (answered bool) {
	cn := r.cn
	if r.request != nil { // it was recalled before it began
		r.write()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		cn.end(err)
	}
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if r.recalled && cn.err == nil {
		_ = cn.nc.SetReadDeadline(time.Time{})
	}
	quiet := !r.recalled && !r.more && !cl.isQueued() && r.isQuiet()
	r.own, r.more, r.failed = nil, false, nil
	if quiet {
		r.turn = ofNobody
		r.timer.Reset(goroutineBack)
	} else {
		r.turn, r.recalled = ofGoroutine, false
		r.back <- struct{}{}
	}
	return len(cl.done) > 0
}

// readStep is what a caller does when the poller reports something, and before that.
func (r *reader) readStep(fd uintptr) bool {
	if r.request != nil {
		r.write()
		return false
	}
	r.failed = drain(fd, r.in.room, r.receivedByCaller)
	return r.failed != nil || len(r.own.done) > 0
}

func (r *reader) write() {
	request := r.request
	r.request = nil
	r.cn.write(request)
}

// receivedByCaller says whether to read again, until there is an answer. A server that always has
// more leaves the poller no moment to stop the caller.
func (r *reader) receivedByCaller(n int, left bool) (again bool, err error) {
	if err := r.received(n); err != nil {
		return false, err
	}
	if r.more = left; len(r.own.done) > 0 {
		return false, nil
	}
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	if r.cn.err != nil {
		return false, errConnLost
	}
	return !r.recalled, nil
}

// recall has the goroutine read again, as soon as a caller that reads has stopped.
func (r *reader) recall() {
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	r.recallLocked()
}

func (r *reader) recallLocked() {
	switch {
	case r.turn == ofNobody:
		r.turn = ofGoroutine
		r.back <- struct{}{}
	case r.turn == ofCaller && !r.recalled:
		r.recalled = true
		_ = r.cn.nc.SetReadDeadline(time.Now())
	}
}

// received handles n bytes that were read into the room.
func (r *reader) received(n int) error {
	in := &r.in
	in.buf = in.buf[:len(in.buf)+n]
	in.filled = len(in.buf) == cap(in.buf)
	r.cn.lastHeard.Store(int64(r.cn.clock.now()))
	if err := r.cn.consumeAll(&in.buf); err != nil {
		return err
	}
	if len(in.buf) == 0 && cap(in.buf) > maxKeptBuffer {
		in.buf = make([]byte, 0, maxReadBuffer)
	}
	return nil
}
