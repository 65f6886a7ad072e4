package request

import (
	"crypto/subtle"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/session"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// UnloggedNote marks, in an Origin's note, a command whose reply went out before it was logged: a
// RELAXED attach. The rest of a note is the time the request came in, by the server's clock.
const UnloggedNote = 1 << 63

// sessionRequests are the requests about sessions. Starts and attaches check the connection's limit
// of sessions behind the right.
func sessionRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindSessionStart:  {charge: chargeAsk, grows: true, handle: sessionStart},
		protocol.KindSessionAttach: {charge: chargeAlways, handle: sessionAttach},
		// On a bound session: otherwise a client could stop any session whose id it guesses.
		protocol.KindSessionStop: onNode(func(m *protocol.SessionStop) *uint64 { return &m.Session },
			requestKind{ofSession: true, charge: chargeAlways, handle: sessionStop}),
		protocol.KindSessionKill: onNode(func(m *protocol.SessionKill) *uint64 { return &m.Node },
			requestKind{right: auth.RightAdmin, handle: sessionKill}),
	}
}

func sessionStart(c *Client, p *cycle, h protocol.Header, _ target) {
	m := buffer[protocol.SessionStart](&p.requests, h.Kind)
	if !p.decode(c, h, m) {
		return
	}
	byPath := m.Path != ""
	var bad *protocol.Error
	if byPath {
		bad = c.resolveStart(m)
	} else {
		bad = c.allowed(auth.RightRead, m.Node)
	}
	if bad == nil {
		bad = c.CheckLimit(0, c.server.cfg.Limits.MaxSessions)
	}
	if bad != nil {
		p.reject(c, h, bad)
		return
	}
	routes := c.server.Routes()
	tier := routes.tierOf(m.Node)
	withHello := h.Arg == protocol.HomeOfCreateID
	if withHello {
		h.Arg = routes.homeOf(tier, [protocol.KeyLen]byte(m.CreateID))
	}
	d := c.shardFor(p, h, tier)
	if d == nil {
		return
	}
	if withHello && d.LedElsewhere() { // the client could not know, and is not charged for it
		c.RejectSubmit(p.out, d, h.Kind, h.ID, protocol.StatusUnavailable)
		return
	}
	if !chargeQuota(c, p, h, m.Node) {
		return
	}
	auth.BindKey(m.Key, c.identity)
	if byPath { // the log knows nodes by their ids
		p.startBody = protocol.AppendBody(p.startBody[:0], m)
		h.Body = p.startBody
	}
	if c.submitToShard(d, p, h, shard.Command{Node: m.Node, Sender: c.Remote()}) && withHello {
		p.started = p.frames
	}
}

// resolveStart replaces the path of a start with the node's id, by the same right and the same map
// as nodeDescribe.
func (c *Client) resolveStart(m *protocol.SessionStart) *protocol.Error {
	if bad := c.allowedAt(auth.RightRead, m.Path); bad != nil {
		return bad
	}
	info, err := c.server.cfg.Cluster.Governor().DescribeNode(m.Path)
	if err != nil {
		return asError(err)
	}
	m.Node, m.Path = info.ID, ""
	return nil
}

func sessionAttach(c *Client, p *cycle, h protocol.Header, _ target) {
	m := buffer[protocol.SessionAttach](&p.requests, h.Kind)
	if !p.decode(c, h, m) {
		return
	}
	bad := c.allowed(auth.RightRead, m.Node)
	if bad == nil {
		bad = c.CheckLimit(m.Session, c.server.cfg.Limits.MaxSessions)
	}
	if bad != nil {
		p.reject(c, h, bad)
		return
	}
	if rejectWithoutHome(c, p.out, h.Kind, h.ID, m.Session) {
		return
	}
	chargeQuota(c, p, h, m.Node) // never refused
	auth.BindKey(m.Key, c.identity)
	if attachRelaxed(c, p, h, m) {
		return
	}
	c.submit(p, h, protocol.SessionTier(m.Session), shard.Command{Node: m.Node, Sender: c.Remote()})
}

// attachRelaxed answers an attach from the leader's memory and logs it behind the answer, where the
// node's configuration allows that and it is safe. If it returns false, the attach goes through the
// log first.
//
// A barrier of this leader must have begun less than the node's grace period ago, and the
// conditions of leader.MayAttachUnlogged must hold.
func attachRelaxed(c *Client, p *cycle, h protocol.Header, m *protocol.SessionAttach) bool {
	d := c.server.Routes().Shard(protocol.SessionTier(m.Session), h.Arg)
	if d == nil || !d.Replica().Leading() {
		return false
	}
	var (
		node protocol.NodeConfig
		ok   bool
	)
	age, proved := d.Replica().ProofAge(p.now)
	d.Replica().View(func(machine *shard.Machine) {
		node, ok = machine.Nodes().Config(m.Node)
		if !ok || node.AttachConsistency != protocol.Relaxed {
			ok = false
			return
		}
		v, found := machine.Sessions().Home(m.Session)
		ok = found && subtle.ConstantTimeCompare(v.Key[:], m.Key) == 1 &&
			leader.MayAttachUnlogged(&v, m, d.MaxLogTime(machine, p.now), uint64(age/time.Millisecond))
	})
	if !ok || !proved || age >= time.Duration(node.GracePeriod)*time.Millisecond {
		return false
	}
	cmd := shard.Command{Kind: shard.CmdSessionAttach, Node: m.Node, Sender: c.Remote(), Body: h.Body}
	if d.Replica().Submit(cmd, replica.Origin{Conn: c.ID(), Request: m.Session, Kind: h.Kind,
		Tag: uint64(p.now) | UnloggedNote}) != protocol.StatusOK {
		return false
	}
	c.server.cfg.Metrics.RelaxedAttaches.Inc()
	if bad := c.BindUnlogged(d, m); bad != nil {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return true
	}
	current, _ := c.server.Routes().Keys()
	p.out.Reply(c, h.Kind, h.ID, &protocol.SessionReply{
		Session: m.Session, Epoch: m.Epoch, Shard: d.ID(), Timeout: m.Timeout, Grace: node.GracePeriod,
		Ticket: p.tickets.Append(nil, current, m.Session, m.Node, m.Epoch, c.identity),
		Node:   m.Node, ReadConsistency: node.ReadConsistency,
	})
	return true
}

// BindUnlogged binds a session whose RELAXED attach was submitted just now. Requests may come
// before the log has the attach: they wait behind it in the same log, or at a remote shard, which
// learns the epoch from them.
//
// The log may have been faster, and the session's state in it may be over by then: no other event
// follows to mark the binding as logged, or to remove it. The error is for a session that has
// ended, or that another attach has. A session that was detached stays unbound: the event of the
// detach names the epoch, and voids the reply.
func (c *Client) BindUnlogged(d Shard, m *protocol.SessionAttach) (bad *protocol.Error) {
	b := c.NewBinding(m.Session, m.Epoch, m.Node, d, m.Description)
	b.Unlogged = true
	b.Bind(time.Duration(m.Timeout) * time.Millisecond)
	over := true
	d.Replica().View(func(machine *shard.Machine) {
		v, found := machine.Sessions().Home(m.Session)
		switch {
		case !found && machine.Sessions().Ended(m.Session):
			bad = session.ErrExpired()
		case !found:
		case v.Epoch < m.Epoch:
			over = false // the log does not have it yet
		case v.Epoch > m.Epoch || v.Nonce != m.Nonce:
			bad = protocol.Errorf(protocol.StatusBadSession,
				"session was attached elsewhere meanwhile; attach it again with a higher epoch")
		case v.Attached:
			over = false
			b.Logged()
		}
	})
	if over { // outside of the view: it locks the watches
		b.Unbind(bad != nil && bad.Status == protocol.StatusSessionExpired)
	}
	return bad
}

// sessionStop ends a session at its home. Where its home is not, it takes back a ticket that was
// presented: no log here says that the session has ended, and its watches would stay.
func sessionStop(c *Client, p *cycle, h protocol.Header, t target) {
	tier := protocol.SessionTier(t.binding.Session)
	if t.shard = c.server.Routes().Shard(tier, h.Arg); t.shard != nil {
		submitTarget(c, p, h, t)
		return
	}
	if t.binding.ByTicket() {
		c.Unbind(t.binding.Session, true)
	}
	p.out.rejectElsewhere(c, h, tier)
}

// presentTicket binds the session that a ticket proves.
func presentTicket(c *Client, p *cycle, h protocol.Header, _ target) {
	m := buffer[protocol.PresentTicket](&p.requests, h.Kind)
	if !p.decode(c, h, m) {
		return
	}
	current, previous := c.server.Routes().Keys()
	k, bad := p.tickets.Verify(m.Ticket, current, previous, c.identity)
	if bad == nil {
		bad = c.CheckLimit(k.Session, c.server.cfg.Limits.MaxSessions)
	}
	if bad == nil && c.server.cfg.Bindings.NewestEpoch(k.Session) > k.Epoch {
		bad = protocol.Errorf(protocol.StatusBadSession,
			"session was attached again since this ticket was made; use the newer ticket")
	}
	if bad == nil && sessionEnded(c.server, k.Session) {
		bad = protocol.Errorf(protocol.StatusSessionExpired, "session has ended; start a new one")
	}
	if bad != nil {
		p.out.FailError(c, h.Kind, h.ID, bad)
		return
	}
	if b := c.Binding(k.Session); b == nil || b.Epoch < k.Epoch {
		c.NewBinding(k.Session, k.Epoch, k.Node, nil, m.Description).Bind(0)
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
}
