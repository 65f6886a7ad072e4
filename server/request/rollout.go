package request

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
)

// trackRequestKinds are the requests that change tracks, and their streams. A report needs
// the right use, as an acquire does; what decides for others needs admin.
func trackRequestKinds() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindTrackCreate: onSession(func(m *protocol.TrackCreate) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, grows: true, handle: trackCreate}),
		protocol.KindTrackAlter: onSession(func(m *protocol.TrackAlter) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, grows: true, handle: trackAlter}),
		protocol.KindTrackDelete: onSession(func(m *protocol.TrackDelete) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: trackDelete}),
		protocol.KindTrackRegister: onSession(func(m *protocol.TrackRegister) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: submitTarget}),
		protocol.KindTrackUnregister: onSession(func(m *protocol.TrackUnregister) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAlways, handle: submitTarget}),
		protocol.KindTrackPoll: onSession(func(m *protocol.TrackPoll) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, read: pollKind(), handle: trackPoll}),
		protocol.KindTrackReport: onSession(func(m *protocol.TrackReport) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: submitTarget}),
		protocol.KindTrackSetRole: onSession(func(m *protocol.TrackSetRole) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: submitTarget}),
		protocol.KindTrackPublish: onSession(func(m *protocol.TrackPublish) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: trackPublish,
				data: func(m request) (string, []byte) { return "payload", m.(*protocol.TrackPublish).Payload }}),
		// One for each version there is: what it does is noted, not that it was asked.
		protocol.KindTrackAdvance: onSession(func(m *protocol.TrackAdvance) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: submitTarget}),
		protocol.KindTrackWithdraw: onSession(func(m *protocol.TrackWithdraw) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: trackWithdraw}),
		protocol.KindTrackAdmin: onSession(func(m *protocol.TrackAdmin) *uint64 { return &m.Session },
			requestKind{right: auth.RightAdmin, charge: chargeAsk, handle: trackAdmin}),
		protocol.KindTrackGateReport: onSession(func(m *protocol.TrackGateReport) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, handle: trackGateReport}),
		protocol.KindTrackWatch: onNode(func(m *protocol.TrackWatch) *uint64 { return &m.Node },
			requestKind{right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchTrack}),
	}
}

// trackPoll is read first, and goes to the log if that is not enough.
func trackPoll(c *Client, p *cycle, h protocol.Header, t target) {
	p.queueRead(t.shard, readItem{conn: c, id: h.ID, kind: h.Kind, body: h.Body, strict: true,
		scope: readScope{node: t.node}, epoch: t.binding.Epoch})
}

func trackCreate(c *Client, p *cycle, h protocol.Header, t target) {
	submitTrack(c, p, h, t, t.message.(*protocol.TrackCreate).Name, audit.Event{Message: "a new rollout is asked for"})
}

func trackAlter(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackAlter)
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "another config of a rollout is asked for"},
		audit.Field{Key: "revision", Value: m.Revision})
}

func trackDelete(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackDelete)
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "the end of a rollout is asked for", Severity: audit.Medium},
		audit.Field{Key: "force", Value: m.Force})
}

func trackPublish(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackPublish)
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "a version is offered"},
		audit.Field{Key: "version", Value: m.Version}, audit.Field{Key: "bytes", Value: len(m.Payload)})
}

func trackWithdraw(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackWithdraw)
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "the end of a version is asked for", Severity: audit.Medium},
		audit.Field{Key: "version", Value: m.Version})
}

func trackAdmin(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackAdmin)
	e := audit.Event{Message: "an operator's command is given"}
	if m.Verb == protocol.TrackRollback || m.Verb == protocol.TrackDrop {
		e.Severity = audit.Medium
	}
	fields := []audit.Field{{Key: "verb", Value: m.Verb.String()}, {Key: "locations", Value: append([]string{}, m.Locations...)}}
	if m.Version != 0 {
		fields = append(fields, audit.Field{Key: "version", Value: m.Version})
	}
	if m.ID != "" {
		fields = append(fields, audit.Field{Key: "rollout_instance", Value: m.ID})
	}
	if m.Hard {
		fields = append(fields, audit.Field{Key: "hard", Value: true})
	}
	if m.Reason != "" {
		fields = append(fields, audit.Field{Key: "reason", Value: m.Reason})
	}
	submitTrack(c, p, h, t, m.Name, e, append(fields, via(c)...)...)
}

func trackGateReport(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.TrackGateReport)
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "a gate's outcome is told"},
		audit.Field{Key: "location", Value: m.Location}, audit.Field{Key: "gate", Value: m.Gate},
		audit.Field{Key: "version", Value: m.Version},
		audit.Field{Key: "attempt", Value: m.Attempt}, audit.Field{Key: "outcome", Value: m.Outcome.String()},
		audit.Field{Key: "text", Value: m.Text})
}

// submitTrack submits what was decided about a track, and notes who asked for it. What came of it
// is noted when the log has it (trackDecisions of serving): a request may be refused, or be
// sent again.
func submitTrack(c *Client, p *cycle, h protocol.Header, t target, track []byte, e audit.Event, fields ...audit.Field) {
	path, _ := c.server.Routes().NodePath(t.node)
	name := string(track)
	if h.Kind != protocol.KindTrackPublish && h.Kind != protocol.KindTrackGateReport {
		c.server.cfg.Log.Info("rollout change asked", "kind", h.Kind.String(), "node", path, "track", name,
			"identity", c.identity, "remote", c.Remote())
	}
	e.Title, e.Initiator = "ask_"+strings.TrimPrefix(h.Kind.String(), "track_")+"_rollout", c.identity
	e.Fields = append([]audit.Field{{Key: "node", Value: path}, {Key: "track", Value: name}}, fields...)
	c.server.cfg.Audit(e)
	submitTarget(c, p, h, t)
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
	d.Raft().View(func(machine *shard.Machine) {
		most = machine.Nodes().MaxWatchers(m.Node)
		err = machine.Tracks().CheckLocation(m.Node, m.Name, m.Location)
	})
	if err == nil && c.Watch(d.Delivery()) {
		c.pageMu.Lock()
		defer c.pageMu.Unlock()
		err = d.Delivery().Tracks.Open(c.ID(), h.ID, m.Node, m.Name, delivery.TrackFilter{Location: m.Location, Targets: m.Targets}, most)
	}
	if err != nil {
		status, text := statusText(err)
		p.out.RejectByShard(c, d, h.Kind, h.ID, status, text)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
	d.Requests().SendPages(c)
}
