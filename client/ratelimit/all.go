package ratelimit

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Together admits calls within several limits at once.
type Together struct{ list []*Limiter }

// All makes limits that a call needs together, such as one on requests and one on tokens. A call is
// admitted by all or takes nothing of any: nobody holds units of one while it waits for another.
// The limiters stay the caller's. All of them must be leased: a call that meets one that is served
// remotely is denied.
func All(limiters ...*Limiter) *Together { return &Together{limiters} }

// Allow takes n units of each now, or none of any.
func (x *Together) Allow(n uint64) bool {
	amount, ok := amountOf(n)
	if !ok {
		return false
	}
	for _, l := range x.list {
		if l.ctx.Err() != nil {
			return false
		}
		l.l.attempt(amount)
	}
	short := x.take(amount)
	if short == nil {
		for _, l := range x.list {
			l.l.allowed.Add(amount)
		}
		return true
	}
	short.l.denied.Add(amount)
	signal(short.p.poke)
	return false
}

// take takes an amount of each, or returns one that has too little.
func (x *Together) take(amount uint64) (short *Limiter) {
	at := now()
	for i, l := range x.list {
		if l.l.queued.Load() == 0 && l.l.decide(at, amount) || l.l.shadow.Load() {
			continue
		}
		for _, before := range x.list[:i] {
			before.l.giveBack(amount)
		}
		return l
	}
	return nil
}

// Wait takes n units of each, and waits until all have them. Calls that wait on single limiters go
// first. Errors: those of Limiter.Wait.
func (x *Together) Wait(ctx context.Context, n uint64) error {
	amount, ok := amountOf(n)
	for _, l := range x.list {
		if most := l.l.most.Load(); !ok || amount > most {
			return protocol.Errorf(protocol.StatusBadRequest,
				"%d units are more than the burst of %s allows at once, %d; ask for less, or raise the burst", n, l.l.path, most/1000)
		}
		l.l.attempt(amount)
	}
	for {
		for _, l := range x.list {
			if err := context.Cause(l.ctx); err != nil {
				return err
			}
		}
		short := x.take(amount)
		if short == nil {
			for _, l := range x.list {
				l.l.allowed.Add(amount)
				l.l.waited.Add(amount)
			}
			return nil
		}
		signal(short.p.poke)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-short.ctx.Done():
		case <-time.After(min(short.RetryAfter(n), demandGap)):
		}
	}
}
