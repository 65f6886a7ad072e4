package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// wake admits calls of the queue, and has it called again when the next can be admitted. mu is
// held.
func (l *leaf) wake(p *participant) {
	if l.remote.Load() && l.err == nil {
		if len(l.queue) > 0 && !l.asking {
			l.asking = true
			go l.ask(p)
		}
		return
	}
	again := l.pump(now())
	if len(l.queue) == 0 {
		return
	}
	signal(p.poke)
	if again > 0 {
		if l.timer == nil {
			l.timer = time.AfterFunc(time.Duration(again), func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.wake(p)
			})
		} else {
			l.timer.Reset(time.Duration(again))
		}
	}
}

// ask acquires the units of the queue's calls at the server, one call after the other.
func (l *leaf) ask(p *participant) {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 || !l.remote.Load() || p.ctx.Err() != nil {
			l.asking = false
			if len(l.queue) > 0 && p.ctx.Err() == nil {
				l.wake(p)
			}
			l.mu.Unlock()
			return
		}
		amount := l.queue[0].amount
		l.mu.Unlock()
		retry, err := l.acquire(p.ctx, p, amount, true)
		if err == nil && retry == 0 {
			l.mu.Lock()
			for _, w := range l.queue { // the first may have given up
				if w.amount <= amount {
					l.finish(w, nil)
					break
				}
			}
			l.mu.Unlock()
			continue
		}
		if err != nil {
			retry = demandGap
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(retry):
		}
	}
}

// acquire asks the server for an amount. Retry is when to ask again; 0: it was granted.
func (l *leaf) acquire(ctx context.Context, p *participant, amount uint64, wait bool) (retry time.Duration, err error) {
	p.mu.Lock()
	p.stats.acquires++
	p.mu.Unlock()
	m := &protocol.LimitAcquire{Session: p.object.SessionID(), Path: []byte(l.path), Amount: amount, Wait: wait}
	var r protocol.LimitAcquireReply
	if err = p.object.Send(ctx, protocol.KindLimitAcquire, m, &r); err != nil {
		if errors.Is(err, protocol.StatusAborted) || errors.Is(err, protocol.StatusPreconditionFailed) {
			signal(p.notice)
		}
		return 0, err
	}
	return time.Duration(r.Retry) * time.Millisecond, nil
}
