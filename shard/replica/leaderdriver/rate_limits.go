package leaderdriver

import (
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// LimitSink receives what the leader of a shard's rate limits tells sessions.
type LimitSink interface {
	// NotifyLimit tells a session to refresh its leases of a tree at once. The machine is locked
	// for reading. What is told may be lost.
	NotifyLimit(node uint64, name string, session, revision uint64)
	// FlushLimits ends a series of calls.
	FlushLimits()
	// ContainLimits is deferred around each series. It recovers a panic.
	ContainLimits()
}

// LimitReplica is what the part of rate limits needs of its replica.
type LimitReplica interface {
	LimitSink
	View(fn func(*shard.Machine))
	LogTime() uint64 // ms
}

// RateLimits is the part that keeps the leases of rate limits.
type RateLimits struct {
	Alarm
	r LimitReplica

	mu     sync.Mutex // taken after the machine's, and before those of what NotifyLimit does
	term   uint64     // that leases are of, 0 while this replica does not lead
	leases *leader.RateLimits
}

var _ Part = (*RateLimits)(nil)

// NewRateLimits returns the part for a replica.
func NewRateLimits(r LimitReplica) *RateLimits {
	return &RateLimits{Alarm: newAlarm(), r: r, leases: leader.NewRateLimits()}
}

// Do calls fn with the leases while this replica leads, and returns false otherwise. It is called
// inside View, behind a barrier if fn grants or tells something. That has proved the leadership
// some time ago, and m may be another leader's by now: so its epoch is compared.
func (p *RateLimits) Do(m *shard.Machine, fn func(*leader.RateLimits)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leads(m) {
		return false
	}
	fn(p.leases)
	if in, has := p.next(); has {
		p.WakeWithin(in)
	}
	return true
}

func (p *RateLimits) leads(m *shard.Machine) bool { return p.term != 0 && m.Epoch()>>16 == p.term }

func (p *RateLimits) next() (in time.Duration, has bool) {
	ms, has := p.leases.Next(p.r.LogTime())
	return time.Duration(ms) * time.Millisecond, has
}

// Start implements Part.
func (p *RateLimits) Start(t Term) { p.begin(t.Number()) }

// Stop implements Part.
func (p *RateLimits) Stop() { p.begin(0) }

// begin begins with no leases: they are of one leadership.
func (p *RateLimits) begin(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
	p.leases.Reset()
}

// Tick implements Part: it notifies sessions that are to refresh at once.
func (p *RateLimits) Tick(bool) {
	defer p.r.ContainLimits()
	defer p.r.FlushLimits() // nobody else sends what a timer says
	p.r.View(func(m *shard.Machine) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.leads(m) {
			p.leases.Tick(m, p.r.LogTime(), p.r.NotifyLimit)
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
