package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// acceptFrom lets connections in until the listener is closed.
func (t *Transport) acceptFrom(l net.Listener, admit func(*net.TCPConn)) {
	const slowest = time.Second
	pause := 5 * time.Millisecond
	var pace acceptPacer
	for {
		asked := time.Now()
		nc, err := l.Accept()
		pace.accepted(asked, time.Now())
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of open files or of memory: clients wait in the kernel's queue until some are
			// free.
			t.Metrics.AcceptErrors.Inc()
			level := slog.LevelDebug
			if pause >= slowest {
				level = slog.LevelWarn
			}
			t.cfg.Log.Log(context.Background(), level, "accept failed, waits", "error", err)
			select {
			case <-time.After(pause):
			case <-t.ctx.Done():
				return
			}
			pause = min(2*pause, slowest)
			continue
		}
		pause = 5 * time.Millisecond
		admit(nc.(*net.TCPConn))
		if rest := pace.pause(time.Now()); rest > 0 {
			select {
			case <-time.After(rest):
			case <-t.ctx.Done():
			}
		}
	}
}

// acceptPacer keeps connections that come in a flood from taking a processor for themselves: while
// more of them wait, letting them in takes a third of the time of one, and they reach the event
// loops a few at a time.
type acceptPacer struct {
	began time.Time
	n     int // let in since then
}

const (
	acceptBatch  = 32
	acceptWaited = time.Millisecond // an accept that takes longer has waited for a client: there is no flood
)

// accepted notes that an accept was asked for and returned.
func (p *acceptPacer) accepted(asked, now time.Time) {
	if p.n == 0 || now.Sub(asked) > acceptWaited {
		p.began, p.n = now, 0
	}
	p.n++
}

// pause is how long to let nobody in.
func (p *acceptPacer) pause(now time.Time) time.Duration {
	if p.n < acceptBatch {
		return 0
	}
	p.n = 0
	return 2 * now.Sub(p.began)
}
