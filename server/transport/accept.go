package transport

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// acceptFrom lets connections in until the listener is closed.
func (t *Transport) acceptFrom(l net.Listener, admit func(*net.TCPConn)) {
	const slowest = time.Second
	pause := 5 * time.Millisecond
	var pace acceptPacer
	waits := clientWaits(l)
	for {
		waited := waits()
		asked := time.Now()
		nc, err := l.Accept()
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
			if !beat.Sleep(t.ctx, pause) {
				return
			}
			pause = min(2*pause, slowest)
			continue
		}
		pause = 5 * time.Millisecond
		took := time.Duration(0)
		if waited {
			took = time.Since(asked)
		}
		admit(nc.(*net.TCPConn))
		if rest := pace.letIn(asked, took, time.Now()); rest > 0 {
			beat.Sleep(t.ctx, rest)
		}
	}
}

// acceptPacer keeps connections that come in a flood from taking a processor for themselves: while
// more of them wait, letting them in takes a third of the time of one, and they reach the event
// loops a few at a time.
//
// What letting one in costs is twice the least time that accepting one of a batch took, of those
// that waited already: to hand one over costs as much, but has to wait for a loop. Connections that
// come no faster than the pace are never held up.
type acceptPacer struct {
	began time.Time     // of the batch, at the pace
	least time.Duration // that accepting one of the batch took; 0: all were waited for
	n     int           // of the batch
}

const (
	acceptBatch = 32
	acceptPace  = 2 * 3 // the pace is one accept per acceptPace times the least time

	// acceptWaited bounds an accept that waited neither for a client nor for a CPU.
	acceptWaited = time.Millisecond
)

// letIn records an accept that began at asked and lasted took, or 0 if it waited for a client. It
// returns how long to pause accepting.
func (p *acceptPacer) letIn(asked time.Time, took time.Duration, now time.Time) time.Duration {
	if p.n == 0 {
		if asked.Sub(p.began) > acceptBatch*acceptPace*p.least {
			p.began = asked // there was a pause: unused time before it is no credit
		}
		p.least = 0
	}
	p.n++
	if took > 0 && took <= acceptWaited && (p.least == 0 || took < p.least) {
		p.least = took
	}
	if p.n < acceptBatch {
		return 0
	}
	p.n = 0
	due := p.began.Add(acceptBatch * acceptPace * p.least)
	if due.Before(now) {
		p.began = now
		return 0
	}
	p.began = due // a pause that lasts longer than asked for is made up for
	return due.Sub(now)
}
