package request

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// trackRequestKinds are the requests that change tracks, and their streams. A report needs the
// right use, as an acquire does; a decision for others needs admin.
func trackRequestKinds() map[protocol.Kind]requestKind {
	var (
		decides = requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: submitTrack}
		makes   = requestKind{right: auth.RightAdmin, charge: chargeAsk, grows: true, handle: submitTrack}
		reports = requestKind{right: auth.RightUse, charge: chargeAsk, handle: submitTarget}
		adds    = requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: submitTarget}
		offers  = requestKind{right: auth.RightUse, charge: chargeAsk, handle: submitTrack}
	)
	return map[protocol.Kind]requestKind{
		protocol.KindTrackCreate:   onSession(func(m *protocol.TrackCreate) *uint64 { return &m.Session }, makes),
		protocol.KindTrackAlter:    onSession(func(m *protocol.TrackAlter) *uint64 { return &m.Session }, makes),
		protocol.KindTrackDelete:   onSession(func(m *protocol.TrackDelete) *uint64 { return &m.Session }, decides),
		protocol.KindTrackRegister: onSession(func(m *protocol.TrackRegister) *uint64 { return &m.Session }, adds),
		protocol.KindTrackUnregister: onSession(func(m *protocol.TrackUnregister) *uint64 { return &m.Session },
			requestKind{right: auth.RightRead, charge: chargeAlways, handle: submitTarget}),
		protocol.KindTrackPoll: onSession(func(m *protocol.TrackPoll) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, read: pollKind(), handle: readOfSession}),
		protocol.KindTrackReport:  onSession(func(m *protocol.TrackReport) *uint64 { return &m.Session }, reports),
		protocol.KindTrackSetRole: onSession(func(m *protocol.TrackSetRole) *uint64 { return &m.Session }, reports),
		protocol.KindTrackPublish: onSession(func(m *protocol.TrackPublish) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: submitTrack,
				data: func(m request) (string, []byte) { return "payload", m.(*protocol.TrackPublish).Payload }}),
		// Sent once for each version that exists: the audit log has the effect, not the request.
		protocol.KindTrackAdvance:    onSession(func(m *protocol.TrackAdvance) *uint64 { return &m.Session }, adds),
		protocol.KindTrackWithdraw:   onSession(func(m *protocol.TrackWithdraw) *uint64 { return &m.Session }, offers),
		protocol.KindTrackAdmin:      onSession(func(m *protocol.TrackAdmin) *uint64 { return &m.Session }, decides),
		protocol.KindTrackGateReport: onSession(func(m *protocol.TrackGateReport) *uint64 { return &m.Session }, offers),
		protocol.KindTrackWatch: onNode(func(m *protocol.TrackWatch) *uint64 { return &m.Node },
			requestKind{right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchTrack}),
	}
}

// submitTrack submits a decision about a track, and records who asked for it. The outcome is
// recorded when the log has it (trackDecisions of serving): a request may be refused, or be sent
// again.
func submitTrack(c *Client, p *cycle, h protocol.Header, t target) {
	path, _ := c.server.Routes().NodePath(t.node)
	track, e, fields := trackAsked(t.message)
	if h.Kind != protocol.KindTrackPublish && h.Kind != protocol.KindTrackGateReport {
		c.server.cfg.Log.Info("rollout change asked", "kind", h.Kind.String(), "node", path, audit.Name("track", track),
			"identity", c.identity, "remote", c.Remote())
	}
	e.Title = "ask_" + strings.TrimPrefix(h.Kind.String(), "track_") + "_rollout"
	writeAudit(c, e, append([]any{"node", path, "track", string(track)}, fields...)...)
	submitTarget(c, p, h, t)
}

// trackAsked returns a track request in the words of the audit log.
func trackAsked(m request) (track []byte, e audit.Event, fields []any) {
	switch m := m.(type) {
	case *protocol.TrackCreate:
		return m.Name, audit.Event{Message: "rollout creation requested"}, nil
	case *protocol.TrackAlter:
		return m.Name, audit.Event{Message: "rollout change requested"}, []any{"revision", m.Revision}
	case *protocol.TrackDelete:
		e = audit.Event{Message: "rollout deletion requested", Severity: audit.Medium}
		return m.Name, e, []any{"force", m.Force}
	case *protocol.TrackPublish:
		return m.Name, audit.Event{Message: "version offered"}, []any{"version", m.Version, "bytes", len(m.Payload)}
	case *protocol.TrackWithdraw:
		e = audit.Event{Message: "withdrawal of a version requested", Severity: audit.Medium}
		return m.Name, e, []any{"version", m.Version}
	case *protocol.TrackGateReport:
		return m.Name, audit.Event{Message: "gate outcome reported"}, []any{"location", m.Location, "gate", m.Gate,
			"version", m.Version, "attempt", m.Attempt, "outcome", m.Outcome.String(), "text", m.Text}
	case *protocol.TrackAdmin:
		e = audit.Event{Message: "rollout command requested"}
		if m.Verb == protocol.TrackRollback || m.Verb == protocol.TrackEvict {
			e.Severity = audit.Medium
		}
		fields = []any{"verb", m.Verb.String(), "locations", append([]string{}, m.Locations...)}
		if m.Version != 0 {
			fields = append(fields, "version", m.Version)
		}
		if m.ID != "" {
			fields = append(fields, "rollout_instance", m.ID)
		}
		if m.Hard {
			fields = append(fields, "hard", true)
		}
		if m.Reason != "" {
			fields = append(fields, "reason", m.Reason)
		}
		return m.Name, e, fields
	}
	return nil, e, nil
}

// watchTrack opens a stream over one track. How the track stands follows the reply, from the
// shard's pager. It is opened where the shard is led: that an instance hears in time that its
// location is ready is worth more than sparing the leader.
func watchTrack(c *Client, p *cycle, h protocol.Header, t target) {
	m, d := t.message.(*protocol.TrackWatch), t.shard
	if !d.Leading() {
		c.RejectSubmit(p.out, d, h.Kind, h.ID, protocol.StatusUnavailable)
		return
	}
	var err error
	most := uint64(0)
	d.Replica().View(func(machine *shard.Machine) {
		most = machine.Nodes().MaxWatchers(m.Node)
		err = machine.Tracks().CheckLocation(m.Node, m.Name, m.Location)
	})
	p.openStream(c, d, h, err, func() error {
		return d.Hubs().Tracks.Open(c.ID(), h.ID, m.Node, m.Name,
			delivery.TrackFilter{Location: m.Location, Targets: m.Targets}, most)
	})
}

// Thousands of instances poll their tracks once a second, and nearly no poll changes anything. Such
// a poll is a read: it waits for the barrier that all reads share, and is answered from the
// machine. A poll that would change something, or be rejected, goes to the log as it came. A
// poll never skips the barrier, whatever the node's read consistency: a deposed leader must not
// report an older target than the log has.

// pollKind describes how a poll is read.
func pollKind() *readKind {
	return &readKind{
		buffer: func() readBuffer { return readBuffer{new(protocol.TrackPoll), new(protocol.TrackPollReply)} },
		answer: func(x reading, q request, out protocol.Message) (bool, error) {
			return x.answerPoll(q.(*protocol.TrackPoll), out.(*protocol.TrackPollReply)), nil
		},
	}
}

// answerPoll answers a poll that changes nothing; false: it goes to the log. The caller holds the
// machine.
func (x reading) answerPoll(q *protocol.TrackPoll, out *protocol.TrackPollReply) bool {
	own := x.host.Requests()
	wall := uint64(own.server.cfg.Clock.Wall().UnixMilli())
	if !x.m.Tracks().Peek(x.it.scope.node, x.it.epoch, q, x.host.Replica().LogTime(), wall, out) {
		return false
	}
	own.PollsRead.Add(1)
	return true
}

// submitPolls hands the polls that reading could not answer to the log. The caller does not hold
// the machine.
func (r *readBatch) submitPolls(o *Outbox) {
	d := r.host
	for i := range r.toSubmit {
		it := &r.toSubmit[i]
		cmd := shard.Command{Kind: shard.CmdTrackPoll, Node: it.scope.node, Epoch: it.epoch, Body: it.body}
		origin := replica.Origin{Conn: it.conn.ID(), Request: it.id, Kind: it.kind,
			Tag: uint64(d.Requests().server.cfg.Clock.Now())}
		if st := d.Replica().Submit(cmd, origin); st != protocol.StatusOK {
			it.conn.RejectSubmit(o, d, it.kind, it.id, st)
			continue
		}
		d.Requests().PollsLogged.Add(1)
	}
	clear(r.toSubmit)
	r.toSubmit = r.toSubmit[:0]
}
