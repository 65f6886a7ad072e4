package leaderdriver

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// LimitSink receives the notifications of the leader of a shard's rate limits to sessions.
type LimitSink interface {
	// NotifyLimit notifies a session to refresh its leases of a tree at once. The machine is locked
	// for reading. The notification may be lost.
	NotifyLimit(node uint64, name string, session, revision uint64)
	// FlushLimits ends a series of calls.
	FlushLimits()
	// AnswerLimits runs fn, whose answers to calls that waited for units are sent together. fn's
	// answer returns false if nobody takes an answer any more.
	AnswerLimits(fn func(answer func(*ratelimit.Answer) bool))
	// ContainLimits is deferred around each series. It recovers a panic.
	ContainLimits()
}

// LimitReplica is the rate limits' part's view of its replica.
type LimitReplica interface {
	LimitSink
	View(fn func(*shard.Machine))
	LogTime() uint64 // ms
	// Barrier calls fn when it is known whether this replica led when it was called.
	Barrier(fn func(ok bool))
}

// RateLimits is the part that keeps the leases of rate limits.
type RateLimits struct {
	Alarm
	r LimitReplica

	mu     sync.Mutex // taken after the machine's, and before those that NotifyLimit takes
	term   uint64     // that leases are of, 0 while this replica does not lead
	leases *leader.RateLimits

	admitting bool   // a barrier is under way, behind which calls are admitted
	again     uint64 // log time before which none begins, as the last one failed
}

var _ Part = (*RateLimits)(nil)

// NewRateLimits returns the part for a replica.
func NewRateLimits(r LimitReplica) *RateLimits {
	return &RateLimits{Alarm: newAlarm(), r: r, leases: leader.NewRateLimits()}
}

// Do calls fn with the leases while this replica leads, and returns false otherwise. It is called
// inside View, behind a barrier if fn grants or notifies. That has proved the leadership some time
// ago, and m may be another leader's by now: so its epoch is compared.
func (p *RateLimits) Do(m *shard.Machine, fn func(*leader.RateLimits)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leads(m) {
		return false
	}
	defer p.wake() // after a panic, too
	fn(p.leases)
	return true
}

// wake sets the alarm for what is to be done next.
func (p *RateLimits) wake() {
	if in, has := p.next(); has && p.term != 0 {
		p.WakeWithin(in)
	}
}

func (p *RateLimits) leads(m *shard.Machine) bool { return p.term != 0 && m.Epoch()>>16 == p.term }

func (p *RateLimits) next() (in time.Duration, has bool) {
	logTime := p.r.LogTime()
	ms, has := p.leases.Next(logTime)
	if at, ok := p.leases.AdmitIn(logTime); ok && !p.admitting {
		if at = max(at, p.again-min(p.again, logTime)); !has || at < ms {
			ms, has = at, true
		}
	}
	return time.Duration(ms) * time.Millisecond, has
}

// notConfirmed is after how many ms a barrier is tried again that did not prove the leadership: another leader is
// known soon.
const notConfirmed = 10

// admit admits calls behind a barrier that begins now.
func (p *RateLimits) admit() {
	p.admitting = true
	logTime := p.r.LogTime()
	p.r.Barrier(func(ok bool) {
		defer p.r.ContainLimits()
		defer p.r.FlushLimits()
		p.r.View(func(m *shard.Machine) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.admitting = false
			defer p.wake() // after a panic, too
			if ok && p.leads(m) {
				p.r.AnswerLimits(func(answer func(*ratelimit.Answer) bool) { p.leases.Admit(m, logTime, p.r.LogTime(), answer) })
			}
			if !ok {
				p.again = p.r.LogTime() + notConfirmed
			}
		})
	})
}

// Start implements Part.
func (p *RateLimits) Start(t Term) { p.begin(t.Number()) }

// Stop implements Part.
func (p *RateLimits) Stop() { p.begin(0) }

// begin begins with no leases: they are of one leadership.
func (p *RateLimits) begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term, p.again = term, 0
	p.leases.Reset()
	p.r.AnswerLimits(p.leases.AnswerLost)
}

// Tick implements Part: it notifies sessions that are to refresh at once.
func (p *RateLimits) Tick(bool) {
	defer p.r.ContainLimits()
	defer p.r.FlushLimits() // nobody else sends the notifications of a timer
	p.r.View(func(m *shard.Machine) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leads(m) {
			logTime := p.r.LogTime()
			p.leases.Tick(m, logTime, p.r.NotifyLimit)
			if in, ok := p.leases.AdmitIn(logTime); ok && in == 0 && !p.admitting && logTime >= p.again {
				p.admit()
			}
		}
	})
}

// Next implements Part.
func (p *RateLimits) Next() (in time.Duration, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == 0 {
		return 0, false
	}
	return p.next()
}

// Close implements Part.
func (p *RateLimits) Close() { p.Stop() }
