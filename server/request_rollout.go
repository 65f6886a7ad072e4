package server

import (
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
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

// trackRequest is what the listener has to know of a request that changes a track.
type trackRequest struct {
	session     uint64
	name        []byte
	right       Right
	description string        // what an operator wants, for the log and the audit log; empty for what instances do
	fields      []audit.Field // more about that
	severe      bool          // somebody may want to know who it was
}

// rollout serves the requests on a session that change a track: decoded and checked here, and handed on to the log as the bytes that came. Polls come to it too: they are
// read first, and go to the log if that is not enough.
func (c *conn) rollout(p *readCycle, h protocol.Header) {
	q, ok := c.trackRequest(p, h)
	if !ok {
		return
	}
	b := c.binding(q.session)
	if b == nil {
		c.rejectUnbound(p.out, h.Kind, h.ID, q.session)
		return
	}
	if bad := c.allowed(q.right, b.node); bad != nil {
		p.reject(c, h, bad)
		return
	}
	if !c.chargeQuota(p, h, b.node) {
		return
	}
	d := c.shardFor(p, h, protocol.SessionTier(q.session))
	if d == nil {
		return
	}
	if h.Kind == protocol.KindTrackPoll {
		p.queueRead(d, readItem{conn: c, id: h.ID, kind: h.Kind, body: h.Body, strict: true, scope: readScope{node: b.node}, epoch: b.epoch})
		return
	}
	if q.description != "" {
		c.auditTrackRequest(h, &q, b.node)
	}
	c.submitToShard(d, p, h, shard.Command{Node: b.node, Epoch: b.epoch})
}

// trackRequest decodes and checks. False: it was answered. Rights: who reports needs use, as whoever holds a semaphore does; what decides for others needs admin.
func (c *conn) trackRequest(p *readCycle, h protocol.Header) (q trackRequest, ok bool) {
	x := &p.requests.track
	q.right = RightUse
	switch h.Kind {
	case protocol.KindTrackCreate:
		m := &x.create
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.right, q.description = m.Session, m.Name, RightAdmin, "a new rollout is asked for"
		}
	case protocol.KindTrackAlter:
		m := &x.alter
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.right, q.description = m.Session, m.Name, RightAdmin, "another config of a rollout is asked for"
			q.fields = []audit.Field{{Key: "revision", Value: m.Revision}}
		}
	case protocol.KindTrackDelete:
		m := &x.delete
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.right, q.description, q.severe = m.Session, m.Name, RightAdmin, "the end of a rollout is asked for", true
			q.fields = []audit.Field{{Key: "force", Value: m.Force}}
		}
	case protocol.KindTrackRegister:
		m := &x.register
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackUnregister:
		m := &x.unregister
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackPoll:
		m := &p.requests.reads.poll
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackReport:
		m := &x.report
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackSetRole:
		m := &x.role
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackPublish:
		m := &x.publish
		if ok = p.decode(c, h, m); !ok {
			break
		}
		// Arguments are judged before the session.
		if limit := c.server.cfg.Limits.MaxData; len(m.Payload) > limit {
			p.out.failError(c, h.Kind, h.ID, protocol.Errorf(protocol.StatusBadRequest, "payload is %d bytes long; at most %d are allowed here", len(m.Payload), limit))
			return q, false
		}
		q.session, q.name, q.description = m.Session, m.Name, "a version is offered"
		q.fields = []audit.Field{{Key: "version", Value: m.Version}, {Key: "bytes", Value: len(m.Payload)}}
	case protocol.KindTrackAdvance: // one for each version there is: what it does is noted, not that it was asked
		m := &x.advance
		ok = p.decode(c, h, m)
		q.session, q.name = m.Session, m.Name
	case protocol.KindTrackWithdraw:
		m := &x.withdraw
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.description, q.severe = m.Session, m.Name, "the end of a version is asked for", true
			q.fields = []audit.Field{{Key: "version", Value: m.Version}}
		}
	case protocol.KindTrackAdmin:
		m := &x.admin
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.right, q.severe = m.Session, m.Name, RightAdmin, m.Verb == protocol.TrackRollback || m.Verb == protocol.TrackDrop
			q.description = "an operator's command is given"
			q.fields = []audit.Field{{Key: "verb", Value: m.Verb.String()}, {Key: "locations", Value: append([]string{}, m.Locations...)}}
			if m.Version != 0 {
				q.fields = append(q.fields, audit.Field{Key: "version", Value: m.Version})
			}
			if m.ID != "" {
				q.fields = append(q.fields, audit.Field{Key: "rollout_instance", Value: m.ID})
			}
			if m.Hard {
				q.fields = append(q.fields, audit.Field{Key: "hard", Value: true})
			}
		}
	case protocol.KindTrackGateReport:
		m := &x.gate
		if ok = p.decode(c, h, m); ok {
			q.session, q.name, q.description = m.Session, m.Name, "a gate's outcome is told"
			q.fields = []audit.Field{
				{Key: "location", Value: m.Location}, {Key: "gate", Value: m.Gate}, {Key: "version", Value: m.Version}, {Key: "attempt", Value: m.Attempt},
				{Key: "outcome", Value: m.Outcome.String()}, {Key: "text", Value: m.Text},
			}
		}
	}
	return q, ok
}

// auditTrackRequest notes who asked for what. What came of it is noted when the log has it (rollouts.recordDecision): a request may be refused, or be sent again.
func (c *conn) auditTrackRequest(h protocol.Header, q *trackRequest, node uint64) {
	path, _ := c.server.nodePath(node)
	name := string(q.name)
	if h.Kind != protocol.KindTrackPublish && h.Kind != protocol.KindTrackGateReport {
		c.server.log.Info("rollout change asked", "kind", h.Kind.String(), "node", path, "track", name, "identity", c.identity, "remote", c.remote)
	}
	e := audit.Event{Title: "ask_" + strings.TrimPrefix(h.Kind.String(), "track_") + "_rollout", Message: q.description, Initiator: c.identity}
	if q.severe {
		e.Severity = audit.Medium
	}
	e.Fields = append([]audit.Field{{Key: "node", Value: path}, {Key: "track", Value: name}}, q.fields...)
	c.server.audit.write(e)
}

// watchTrack opens a stream over one track. How the track stands follows the reply, from the shard's pager. It is opened where the shard is led: that an instance hears in time that
// its location is ready is worth more than sparing the leader.
func (c *conn) watchTrack(p *readCycle, h protocol.Header) {
	m := &p.requests.track.watch
	if !p.decode(c, h, m) {
		return
	}
	if bad := c.allowed(RightRead, m.Node); bad != nil {
		p.reject(c, h, bad)
		return
	}
	if !c.chargeQuota(p, h, m.Node) {
		return
	}
	d := c.shardFor(p, h, c.server.routing().tierOf(m.Node))
	if d == nil {
		return
	}
	if !d.leading.Load() {
		c.rejectSubmit(p.out, d, h.Kind, h.ID, protocol.StatusUnavailable)
		return
	}
	var err error
	most := uint64(0)
	d.raft.View(func(machine *shard.Machine) {
		most = machine.MaxWatchers(m.Node)
		err = machine.TrackLocation(m.Node, m.Name, m.Location)
	})
	if err == nil && c.registerWatcher(d) {
		c.pageMu.Lock()
		defer c.pageMu.Unlock()
		err = d.tracks.open(c.id, h.ID, m.Node, m.Name, trackFilter{m.Location, m.Targets}, most)
	}
	if err != nil {
		p.out.failError(c, h.Kind, h.ID, err)
		return
	}
	p.out.reply(c, h.Kind, h.ID, nil)
	d.pager.add(c)
}
