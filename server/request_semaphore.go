package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/shard"
)

// change serves the requests on a session that change a semaphore: decoded and checked here, so that what enters the log is worth its sync, and handed on as
// the bytes that came.
func (c *conn) change(p *readCycle, h protocol.Header) {
	var (
		session uint64
		data    int
		right   = RightUse
		ok      bool
	)
	switch h.Kind {
	case protocol.KindAcquire:
		m := &p.requests.acquire
		ok = p.decode(c, h, m)
		session, data = m.Session, len(m.Data)
	case protocol.KindRelease:
		m := &p.requests.release
		ok = p.decode(c, h, m)
		session = m.Session
	case protocol.KindCreate:
		m := &p.requests.create
		ok = p.decode(c, h, m)
		session, data = m.Session, len(m.Data)
	case protocol.KindUpdate:
		m := &p.requests.update
		ok = p.decode(c, h, m)
		session, data = m.Session, len(m.Data)
	case protocol.KindResize:
		m := &p.requests.resize
		ok = p.decode(c, h, m)
		session, right = m.Session, RightAdmin
	case protocol.KindDelete:
		m := &p.requests.delete
		ok = p.decode(c, h, m)
		session, right = m.Session, RightAdmin
	}
	if !ok {
		return
	}
	// Arguments are judged before the session.
	if limit := c.server.cfg.Limits.MaxData; data > limit {
		p.out.failError(c, h.Kind, h.ID, protocol.Errorf(protocol.StatusBadRequest, "data is %d bytes long; at most %d are allowed here", data, limit))
		return
	}
	b := c.binding(session)
	if b == nil {
		c.rejectUnbound(p.out, h.Kind, h.ID, session)
		return
	}
	if bad := c.allowed(right, b.node); bad != nil {
		p.reject(c, h, bad)
		return
	}
	if !c.chargeQuota(p, h, b.node) {
		return
	}
	d := c.shardFor(p, h, protocol.SessionTier(session))
	if d == nil {
		return
	}
	if h.Kind == protocol.KindDelete && p.requests.delete.Force {
		c.auditRequest("ask_force_delete", "the end of a semaphore and of its leases is asked for", b.node, audit.Field{Key: "semaphore", Value: string(p.requests.delete.Name)},
			audit.Field{Key: "session", Value: session})
	}
	cmd := shard.Command{Node: b.node, Epoch: b.epoch}
	if h.Kind == protocol.KindAcquire {
		cmd.Client = b.descriptionFor(d, p.now)
	}
	if c.submitToShard(d, p, h, cmd) && cmd.Client != "" {
		b.markDescribed(d, p.now)
	}
}
