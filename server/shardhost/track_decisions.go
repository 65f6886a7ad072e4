package shardhost

import (
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/shard"
)

// targetKey is a reason for which a location of a track was given targets.
type targetKey struct {
	node            uint64
	track, location string
	reason          protocol.TrackReason
}

// trackDecisions counts the targets that this instance set for the tracks of one shard while it
// leads.
type trackDecisions struct {
	host *Shard

	mu         sync.Mutex
	targetsSet map[targetKey]uint64 // for the metrics; bounded by Config.Series
	uncounted  bool                 // there was no room for a target
}

func newTrackDecisions(d *Shard) *trackDecisions {
	return &trackDecisions{host: d, targetsSet: make(map[targetKey]uint64)}
}

// recordDecision counts a change of a track, and writes a line of the audit log if it is a
// decision, with its reason. The leader's instance does: others see the same changes. What was
// applied while nobody led has no line; the location's history has it.
func (t *trackDecisions) recordDecision(index uint64, c *shard.TrackChange) {
	e, ok := decisionOf(&c.TrackEvent)
	if !ok {
		return
	}
	s := t.host.serving
	if c.Kind == protocol.TrackEventTarget {
		t.mu.Lock()
		choice := targetKey{c.Node, string(c.Name), c.Location, c.Reason}
		if _, known := t.targetsSet[choice]; known || len(t.targetsSet) < s.Series {
			t.targetsSet[choice]++
		} else {
			t.uncounted = true
		}
		t.mu.Unlock()
	}
	path, _ := s.Requests.Routes().NodePath(c.Node)
	if c.Kind == protocol.TrackEventAlert {
		s.Log.Warn("rollout needs attention", "node", path, audit.Name("track", c.Name), "location", c.Location, "why",
			c.Text)
	}
	if c.Wall > 0 {
		e.Time = time.UnixMilli(int64(min(c.Wall, 1<<52)))
	}
	fields := []any{"node", path, "track", string(c.Name)}
	text := func(key, value string) {
		if value != "" {
			fields = append(fields, key, value)
		}
	}
	number := func(key string, value uint64) {
		if value != 0 {
			fields = append(fields, key, value)
		}
	}
	text("location", c.Location)
	number("version", c.Version)
	number("from", c.From)
	if c.Reason != 0 {
		text("reason", c.Reason.String())
	}
	if c.Share {
		fields = append(fields, "share", true)
	}
	text("rollout_instance", c.Instance)
	text("gate", c.Gate)
	number("attempt", c.Attempt)
	text("why", c.Text)
	number("log_time", c.Log)
	number("index", index)
	text("shard", strconv.FormatUint(t.host.ID(), 10))
	e.Fields = audit.Fields(fields...)
	s.Audit(e)
}

// decisionOf is the head of a change's line. Not all changes are decisions: states follow from
// them, and who comes and goes is seen in the status.
func decisionOf(c *protocol.TrackEvent) (e audit.Event, ok bool) {
	switch c.Kind {
	case protocol.TrackEventTarget:
		e = audit.Event{Title: "rollout_target", Message: "a location has a new target"}
		if c.Reason != protocol.ReasonInitial && c.Reason != protocol.ReasonAdvance {
			e.Severity = audit.Medium
		}
	case protocol.TrackEventWiden:
		e = audit.Event{Title: "rollout_widen", Message: "a location's share has the target, now all are to load it"}
	case protocol.TrackEventConverged:
		e = audit.Event{Title: "rollout_converged", Message: "all leaders of a location have the target"}
	case protocol.TrackEventSkip:
		e = audit.Event{Title: "rollout_skip", Message: "a version is skipped for good", Severity: audit.Medium}
	case protocol.TrackEventGate:
		e = audit.Event{Title: "rollout_gate", Message: "a gate is to be run"}
	case protocol.TrackEventGateDone:
		e = audit.Event{Title: "rollout_gate_done", Message: "a gate's run is over"}
	case protocol.TrackEventRole:
		e = audit.Event{Title: "rollout_role", Message: "an instance has another role"}
	case protocol.TrackEventAdmin:
		e = audit.Event{Title: "rollout_admin", Message: "an operator's command took effect", Severity: audit.Medium}
	case protocol.TrackEventPublished:
		e = audit.Event{Title: "rollout_published", Message: "a version can be chosen"}
	case protocol.TrackEventAlert:
		e = audit.Event{Title: "rollout_alert", Message: "a rollout needs attention", Severity: audit.High}
	default:
		return e, false
	}
	return e, true
}
