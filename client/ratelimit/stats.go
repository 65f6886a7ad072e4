package ratelimit

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Why says why a limiter has the rate that it has.
type Why string

// Reasons.
const (
	WhyDemand    Why = "demand"              // it has what its calls ask for
	WhyWeight    Why = "weight"              // others share the resource with it, by weight
	WhyCap       Why = "cap"                 // it has all that the resource may have
	WhyBurst     Why = "burst"               // the burst of the resource is too small for its calls
	WhyElsewhere Why = "elsewhere"           // its calls wait for another limit, which they need as well
	WhySilent    Why = "silent"              // it has a lease, and was not heard of for longer than that lasts
	WhyLearning  Why = "learning"            // the server's leader is new, and does not know yet who uses what
	WhyNone      Why = "cannot be used"      // there is no such resource, or it has children
	WhyNoLease   Why = "no lease at present" // the server has not been heard of for the length of a lease
)

var whys = map[protocol.LimitWhy]Why{protocol.LimitDemand: WhyDemand, protocol.LimitWeight: WhyWeight, protocol.LimitLearning: WhyLearning,
	protocol.LimitNone: WhyNone, protocol.LimitCap: WhyCap, protocol.LimitBurst: WhyBurst, protocol.LimitElsewhere: WhyElsewhere,
	protocol.LimitSilent: WhySilent}

// Stats is what a limiter has and did. Units may have fractions.
type Stats struct {
	Rate  float64       // of the lease, in units a second; 0 without one
	Burst float64       // units
	Level float64       // units that can be taken now; below zero after Spent
	Left  time.Duration // how long the lease is believed, if it is not renewed

	Remote bool // the server decides about each call
	Why    Why
	At     string // the resource that Why is about, if any

	Allowed, Denied, Waited uint64 // units, of all limiters of the session and resource
	Impossible              uint64 // units of calls that can never be admitted
	Waiting                 uint64 // units that calls wait for
	Refreshes, Failed       uint64 // refreshes of the session for the tree; those that failed
	RemoteAcquires          uint64
}

// Stats is the state of the limiter.
func (x *Limiter) Stats() Stats {
	at := x.e.beginStep()
	defer x.e.endStep()
	l, p := x.l, x.part
	s := Stats{Remote: l.remote, Why: whys[l.why], At: l.at, Waiting: l.waiting / 1000,
		Allowed: l.allowed.Load() / 1000, Denied: l.denied.Load() / 1000, Waited: l.waited.Load() / 1000, Impossible: l.impossible.Load() / 1000,
		Refreshes: p.refreshes, Failed: p.failed, RemoteAcquires: p.acquires}
	b := l.bucket.Load()
	if until := b.until.Load(); at < until {
		s.Rate, s.Burst, s.Left = float64(b.rate)/1000, float64(b.burst)/1000, time.Duration(until-at)
		if full := b.full.Load(); full != closed {
			s.Level = float64(b.levelAt(at, full)) / 1000
		}
	} else if l.demand.reported > 0 || l.queued.Load() > 0 {
		s.Why, s.At = WhyNoLease, ""
	} else {
		s.Why, s.At = WhyDemand, ""
	}
	return s
}
