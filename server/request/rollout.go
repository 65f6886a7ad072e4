package request

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
)

// trackRequests is memory for decoding requests about rollouts.
type trackRequests struct {
	create     protocol.TrackCreate
	alter      protocol.TrackAlter
	delete     protocol.TrackDelete
	register   protocol.TrackRegister
	unregister protocol.TrackUnregister
	report     protocol.TrackReport
	role       protocol.TrackSetRole
	publish    protocol.TrackPublish
	withdraw   protocol.TrackWithdraw
	admin      protocol.TrackAdmin
	gate       protocol.TrackGateReport
	advance    protocol.TrackAdvance
	watch      protocol.TrackWatch
}

// trackRequestKinds are the requests that change tracks, and their streams. A report needs
// the right use, as an acquire does; what decides for others needs admin.
func trackRequestKinds() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindTrackCreate: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.create, &b.track.create.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, grows: true, routed: true, handle: trackCreate,
		},
		protocol.KindTrackAlter: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.alter, &b.track.alter.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, grows: true, routed: true, handle: trackAlter,
		},
		protocol.KindTrackDelete: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.delete, &b.track.delete.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, routed: true, handle: trackDelete,
		},
		protocol.KindTrackRegister: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.register, &b.track.register.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: submitTarget,
		},
		protocol.KindTrackUnregister: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.unregister, &b.track.unregister.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindTrackPoll: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.reads.poll, &b.reads.poll.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, routed: true, read: pollKind(), handle: trackPoll,
		},
		protocol.KindTrackReport: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.report, &b.track.report.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, routed: true, handle: submitTarget,
		},
		protocol.KindTrackSetRole: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.role, &b.track.role.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, routed: true, handle: submitTarget,
		},
		protocol.KindTrackPublish: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.publish, &b.track.publish.Session },
			data:  func(b *requestBuffers) (string, []byte) { return "payload", b.track.publish.Payload },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: trackPublish,
		},
		// One for each version there is: what it does is noted, not that it was asked.
		protocol.KindTrackAdvance: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.advance, &b.track.advance.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: submitTarget,
		},
		protocol.KindTrackWithdraw: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.withdraw, &b.track.withdraw.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, routed: true, handle: trackWithdraw,
		},
		protocol.KindTrackAdmin: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.admin, &b.track.admin.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, routed: true, handle: trackAdmin,
		},
		protocol.KindTrackGateReport: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.gate, &b.track.gate.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, routed: true, handle: trackGateReport,
		},
		protocol.KindTrackWatch: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.track.watch, &b.track.watch.Node },
			names: ofNode, right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchTrack,
		},
	}
}

// trackPoll is read first, and goes to the log if that is not enough.
func trackPoll(c *Client, p *cycle, h protocol.Header, t target) {
	p.queueRead(t.shard, readItem{conn: c, id: h.ID, kind: h.Kind, body: h.Body, strict: true,
		scope: readScope{node: t.node}, epoch: t.binding.Epoch})
}

func trackCreate(c *Client, p *cycle, h protocol.Header, t target) {
	submitTrack(c, p, h, t, p.requests.track.create.Name, audit.Event{Message: "a new rollout is asked for"})
}

func trackAlter(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.track.alter
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "another config of a rollout is asked for"},
		audit.Field{Key: "revision", Value: m.Revision})
}

func trackDelete(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.track.delete
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "the end of a rollout is asked for", Severity: audit.Medium},
		audit.Field{Key: "force", Value: m.Force})
}

func trackPublish(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.track.publish
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "a version is offered"},
		audit.Field{Key: "version", Value: m.Version}, audit.Field{Key: "bytes", Value: len(m.Payload)})
}

func trackWithdraw(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.track.withdraw
	submitTrack(c, p, h, t, m.Name, audit.Event{Message: "the end of a version is asked for", Severity: audit.Medium},
		audit.Field{Key: "version", Value: m.Version})
}

func trackAdmin(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.track.admin
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
	m := &p.requests.track.gate
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
	m, d := &p.requests.track.watch, t.shard
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
