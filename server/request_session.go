package server

import (
	"crypto/subtle"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// answeredNote marks, in an Origin's note, a command whose reply went out before it was logged: a RELAXED attach. The rest of a note is the time the
// request came in, by the server's clock.
const answeredNote = 1 << 63

// submit hands a command to the shard that owns the bucket. Its reply comes from the log.
func (c *conn) submit(p *pass, h protocol.Header, tier uint8, cmd shard.Command) {
	if d := c.deskFor(p, h, tier); d != nil {
		c.submitTo(d, p, h, cmd)
	}
}

// deskFor is the shard that owns the bucket of a request; nil: the request was answered.
func (c *conn) deskFor(p *pass, h protocol.Header, tier uint8) *desk {
	d := c.srv.mapNow().desk(tier, h.Arg)
	if d == nil {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusWrongShard, "this instance does not serve the bucket; fetch the map")
	}
	return d
}

// submitTo is submit for a shard that is known. False: the shard did not take the command, and the request was answered.
func (c *conn) submitTo(d *desk, p *pass, h protocol.Header, cmd shard.Command) bool {
	cmd.Kind = shard.CommandKind(h.Kind)
	cmd.Body = h.Body
	st, due := d.rep.SubmitMore(cmd, replica.Origin{Conn: c.id, Request: h.ID, Kind: h.Kind, Tag: uint64(p.now)})
	if due {
		p.due = append(p.due, d)
	}
	if st != protocol.StatusOK {
		c.turnedAway(p.out, d, h.Kind, h.ID, st)
	}
	return st == protocol.StatusOK
}

// turnedAway answers a request that a shard did not take.
func (c *conn) turnedAway(o *outbox, d *desk, kind protocol.Kind, id uint64, st protocol.Status) {
	if st == protocol.StatusUnavailable && d.ledElsewhere() {
		o.refuse(c, d, kind, id, protocol.StatusWrongShard, submitFailed(d, protocol.StatusWrongShard))
		return
	}
	o.fail(c, kind, id, st, submitFailed(d, st))
}

func (c *conn) sessionStart(p *pass, h protocol.Header) {
	m := &p.msg.start
	if !p.decode(c, h, m) {
		return
	}
	bad := c.allowed(RightRead, m.Node)
	if bad == nil {
		bad = c.full(0)
	}
	if bad != nil {
		p.refuse(c, h, bad)
		return
	}
	if !c.admit(p, h, m.Node) {
		return
	}
	c.bindKey(m.Key)
	c.submit(p, h, c.srv.mapNow().tierOf(m.Node), shard.Command{Node: m.Node, Client: c.remote})
}

func (c *conn) sessionAttach(p *pass, h protocol.Header) {
	m := &p.msg.attach
	if !p.decode(c, h, m) {
		return
	}
	bad := c.allowed(RightRead, m.Node)
	if bad == nil {
		bad = c.full(m.Session)
	}
	if bad != nil {
		p.refuse(c, h, bad)
		return
	}
	c.admit(p, h, m.Node) // never refused
	c.bindKey(m.Key)
	if c.attachRelaxed(p, h, m) {
		return
	}
	c.submit(p, h, protocol.SessionTier(m.Session), shard.Command{Node: m.Node, Client: c.remote})
}

// attachRelaxed answers an attach from the leader's memory and logs it behind the answer, where the node's configuration allows that and nothing can go
// wrong with it. False: the attach takes the way through the log first.
//
// A barrier of this leader must have begun less than the node's grace period ago, and what
// leader.MayAttachUnlogged asks for must hold.
func (c *conn) attachRelaxed(p *pass, h protocol.Header, m *protocol.SessionAttach) bool {
	d := c.srv.mapNow().desk(protocol.SessionTier(m.Session), h.Arg)
	if d == nil || !d.rep.Leading() {
		return false
	}
	var (
		node protocol.NodeConfig
		ok   bool
	)
	age, proved := d.rep.ProofAge(p.now)
	d.rep.View(func(machine *shard.Machine) {
		node, ok = machine.Node(m.Node)
		if !ok || node.AttachConsistency != protocol.Relaxed {
			ok = false
			return
		}
		v, found := machine.Session(m.Session)
		ok = found && subtle.ConstantTimeCompare(v.Key[:], m.Key) == 1 &&
			leader.MayAttachUnlogged(&v, m, d.furthestLogTime(machine, p.now), uint64(age/time.Millisecond))
	})
	if !ok || !proved || age >= time.Duration(node.GracePeriod)*time.Millisecond {
		return false
	}
	cmd := shard.Command{Kind: shard.CmdSessionAttach, Node: m.Node, Client: c.remote, Body: h.Body}
	if d.rep.Submit(cmd, replica.Origin{Conn: c.id, Request: m.Session, Kind: h.Kind, Tag: uint64(p.now) | answeredNote}) != protocol.StatusOK {
		return false
	}
	c.srv.metrics.relaxedAttaches.Inc()
	// Requests may come before the log has the attach: they wait behind it in the same log, or at a guest that learns the epoch from them.
	b := c.bind(m.Session, m.Epoch, m.Node, d, m.Description)
	b.pledged = true
	if c.put(b, m.Timeout) {
		c.srv.takenOver(p.out, c.srv.bindings.insert(b), m.Epoch)
		c.srv.recheck(b)
	}
	// The log may have been faster: the binding that its event made was then replaced by this one, and no other event follows to keep the pledge.
	d.rep.View(func(machine *shard.Machine) {
		if v, found := machine.Session(m.Session); found && v.Attached && v.Epoch == m.Epoch && v.Nonce == m.Nonce {
			c.keepPledge(b)
		}
	})
	current, _ := c.srv.mapNow().keys()
	p.out.reply(c, h.Kind, h.ID, &protocol.SessionReply{
		Session: m.Session, Epoch: m.Epoch, Shard: d.id, Timeout: m.Timeout, Grace: node.GracePeriod,
		Ticket: p.ticket.appendTicket(nil, current, m.Session, m.Node, m.Epoch, c.identity),
	})
	return true
}

// sessionStop needs the session on this connection: whoever could name an id could stop any session otherwise.
func (c *conn) sessionStop(p *pass, h protocol.Header) {
	m := &p.msg.stop
	if !p.decode(c, h, m) {
		return
	}
	b := c.bound(m.Session)
	if b == nil {
		c.refuseUnbound(p.out, h.Kind, h.ID, m.Session)
		return
	}
	c.admit(p, h, b.node) // never refused
	c.submit(p, h, protocol.SessionTier(m.Session), shard.Command{Node: b.node, Epoch: b.epoch})
}
