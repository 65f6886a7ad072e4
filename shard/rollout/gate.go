package rollout

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

type gateState uint8

const (
	gateRunning gateState = iota
	gateWaiting           // it was inconclusive, and is run again later
	gatePassed            // all gates are: the next poll takes the version
)

// gate is a location's progress through the gates before version. While it is set no other version
// is looked at: newer ones cannot hold it up for ever.
type gate struct {
	version uint64 // 0: none
	index   uint64 // of the gate that is run. Invariant: below the number of gates
	attempt uint64 // of that gate, above base
	at      uint64 // log time of the start, or since when it waits
	state   gateState
}

// base is the number from which attempts count: 0, or a multiple of attemptsPerBegin after gates
// were given up. It never decreases, because the same version may be gated again: an outcome of a
// former run must count for no later one.
func (g *gate) base() uint64 { return g.attempt - g.attempt%attemptsPerBegin }

// end resets the gates after a version that is never gated again.
func (g *gate) end() { *g = gate{attempt: g.base()} }

// giveUp resets the gates before they have decided on their version, which may be gated again.
func (g *gate) giveUp() {
	if g.version != 0 {
		*g = gate{attempt: g.base() + attemptsPerBegin}
	}
}

// gateDeadline returns when the gate changes by time alone, or 0.
func (pl *plan) gateDeadline(l *location) uint64 {
	g := &l.gate
	if l.pos < 0 || g.version == 0 || g.state == gatePassed {
		return 0
	}
	c := &pl.locationConfig(l).Gates[g.index]
	if g.state == gateRunning {
		return g.at + c.Timeout
	}
	return g.at + c.Retry
}

func (c change) finishGate(l *location, o protocol.GateOutcome, text string) {
	g := &l.gate
	done := protocol.TrackEvent{Kind: protocol.TrackEventGateDone, Location: l.name,
		Gate: c.locationConfig(l).Gates[g.index].Name, Version: g.version, Attempt: g.attempt}
	done.Text = o.String()
	if text != "" {
		done.Text += ": " + text
	}
	c.emit(done)
	switch o {
	case protocol.GateSuccess:
		if g.index++; int(g.index) == len(c.locationConfig(l).Gates) {
			g.index, g.attempt, g.at, g.state = 0, g.base(), c.clock, gatePassed
			return
		}
		g.attempt = g.base()
		c.runGate(l)
	case protocol.GateFailure:
		l.floor = max(l.floor, g.version)
		g.end()
	default:
		g.state, g.at = gateWaiting, c.clock
	}
}

func (c change) runGate(l *location) {
	g := &l.gate
	g.attempt++
	g.state, g.at = gateRunning, c.clock
	conf := &c.locationConfig(l).Gates[g.index]
	c.emit(protocol.TrackEvent{
		Kind: protocol.TrackEventGate, Location: l.name, Gate: conf.Name, Version: g.version,
		Attempt: g.attempt, Until: c.clock + conf.Timeout,
		Text: "gate " + conf.Name + " is to be run, attempt " + strconv.FormatUint(g.attempt, 10),
	})
}

// tickGate times a run out, or runs it again. The state of the location it comes from has not
// changed, so that the version is still good.
func (c change) tickGate(l *location) {
	if at := c.gateDeadline(l); at == 0 || c.clock < at {
		return
	}
	if l.gate.state == gateRunning {
		c.finishGate(l, protocol.GateInconclusive, "no outcome in time")
		return
	}
	c.runGate(l)
}

// dropGates gives up gates, and promotions, for versions that may not be passed on any more.
func (c change) dropGates() {
	for _, l := range c.ordered() {
		if l.gate.version == 0 && l.promoted == 0 {
			continue
		}
		p, from := c.predecessor(l, c.clock), "the source"
		if p != nil {
			from = p.name
		}
		bad := func(version uint64) bool {
			if c.givenUp(version, p, l) {
				return true
			}
			if p == nil {
				return false
			}
			r := p.row(version)
			return r == nil || p.givesUp(r) || r.payload && !c.published.has(version)
		}
		// Since a change of the config delays may count from convergence. A version that p has
		// replaced never converges there.
		stuck := func(version uint64) bool {
			if p == nil || version == p.target {
				return false
			}
			_, ok := c.versionMatureAt(p, version, l)
			return !ok
		}
		if v := l.gate.version; v != 0 && (bad(v) || stuck(v)) {
			c.emit(protocol.TrackEvent{Kind: protocol.TrackEventGateDone, Location: l.name, Version: v,
				Text: "given up: " + from + " does not pass the version on any more"})
			l.gate.giveUp()
		}
		if l.promoted > l.target && bad(l.promoted) {
			l.promoted = 0
		}
	}
}
