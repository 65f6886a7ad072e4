package rollout

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// gateState of a run.
type gateState uint8

const (
	gateRunning gateState = iota
	gateWaiting           // it was inconclusive, and is run again later
	gatePassed            // all gates are: the next poll takes the version
)

// gate is where a location stands with the gates before version. While it is set no other version
// is looked at: newer ones cannot hold it up for ever.
type gate struct {
	version uint64 // 0: none
	index   uint64 // of the gate that is run. Invariant: below the number of gates
	attempt uint64 // of that gate, from 1
	at      uint64 // log time of the start, or since when it waits
	state   gateState
}

// PendingGates lists the gates that are to be run, in order of the locations. A new leader begins
// with it; later ones come as TrackEventGate.
func (t *Track) PendingGates() (list []protocol.GateRun) {
	for _, l := range t.ordered() {
		if g := &l.gate; g.version != 0 && g.state == gateRunning {
			c := t.locationConfig(l).Gates[g.index]
			list = append(list, protocol.GateRun{
				Location: l.name, Version: g.version, Attempt: g.attempt, Deadline: g.at + c.Timeout, Gate: c,
			})
		}
	}
	return list
}

// ReportGate reports the outcome of a run, which PendingGates or TrackEventGate named. Errors:
// ErrUnknownLocation, ErrGateMoved, BAD_REQUEST.
func (t *Track) ReportGate(
	now Now, location string, version uint64, name string, attempt uint64, o protocol.GateOutcome, text string, out *Events,
) error {
	if o < protocol.GateSuccess || o > protocol.GateInconclusive || !validText(text, protocol.MaxTrackMessage) {
		return badRequest("gate: the outcome is success, failure or inconclusive, with at most 256 printable bytes")
	}
	l, err := t.find(location)
	if err != nil {
		return err
	}
	g := &l.gate
	if g.version == 0 || g.version != version || g.state != gateRunning || g.attempt != attempt || t.locationConfig(l).Gates[g.index].Name != name {
		return ErrGateMoved
	}
	t.clock = t.clockAt(now)
	t.finishGate(now, l, o, text, out)
	t.updateStates(now, out)
	return nil
}

func (t *Track) finishGate(now Now, l *location, o protocol.GateOutcome, text string, out *Events) {
	g := &l.gate
	done := protocol.TrackEvent{Kind: protocol.TrackEventGateDone, Location: l.name,
		Gate: t.locationConfig(l).Gates[g.index].Name, Version: g.version, Attempt: g.attempt}
	done.Text = o.String()
	if text != "" {
		done.Text += ": " + text
	}
	t.emit(now, out, done)
	switch o {
	case protocol.GateSuccess:
		if g.index++; int(g.index) == len(t.locationConfig(l).Gates) {
			g.index, g.attempt, g.at, g.state = 0, 0, t.clock, gatePassed
			return
		}
		g.attempt = 0
		t.runGate(now, l, out)
	case protocol.GateFailure:
		l.floor = max(l.floor, g.version)
		l.gate = gate{}
	default:
		g.state, g.at = gateWaiting, t.clock
	}
}

func (t *Track) runGate(now Now, l *location, out *Events) {
	g := &l.gate
	g.attempt++
	g.state, g.at = gateRunning, t.clock
	c := &t.locationConfig(l).Gates[g.index]
	t.emit(now, out, protocol.TrackEvent{
		Kind: protocol.TrackEventGate, Location: l.name, Gate: c.Name, Version: g.version, Attempt: g.attempt, Until: t.clock + c.Timeout,
		Text: "gate " + c.Name + " is to be run, time " + strconv.FormatUint(g.attempt, 10),
	})
}

// gateDeadline is when the gate changes by time alone, 0 never.
func (t *Track) gateDeadline(l *location) uint64 {
	g := &l.gate
	if l.pos < 0 || g.version == 0 || g.state == gatePassed {
		return 0
	}
	c := &t.locationConfig(l).Gates[g.index]
	if g.state == gateRunning {
		return g.at + c.Timeout
	}
	return g.at + c.Retry
}

// tickGate times a run out, or runs it again. The state of the location it comes from has not
// changed, so that the version is still good.
func (t *Track) tickGate(now Now, l *location, out *Events) {
	if at := t.gateDeadline(l); at == 0 || t.clock < at {
		return
	}
	if l.gate.state == gateRunning {
		t.finishGate(now, l, protocol.GateInconclusive, "no outcome in time", out)
		return
	}
	t.runGate(now, l, out)
}

// dropGates gives up gates, and promotions, for versions that may not be passed on any more.
func (t *Track) dropGates(now Now, out *Events) {
	for _, l := range t.ordered() {
		if l.gate.version == 0 && l.promoted == 0 {
			continue
		}
		p := t.predecessor(l, t.clock)
		if p == nil {
			continue
		}
		bad := func(version uint64) bool {
			r := p.row(version)
			return r == nil || r.skip || r.payload && !t.isPublished(version)
		}
		if v := l.gate.version; v != 0 && bad(v) {
			t.emit(now, out, protocol.TrackEvent{Kind: protocol.TrackEventGateDone, Location: l.name, Version: v,
				Text: "given up: " + p.name + " does not pass the version on any more"})
			l.gate = gate{}
		}
		if l.promoted > l.target && bad(l.promoted) {
			l.promoted = 0
		}
	}
}
