package request

import (
	"crypto/subtle"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// UnloggedNote marks, in an Origin's note, a command whose reply went out before it was logged: a
// RELAXED attach. The rest of a note is the time the request came in, by the server's clock.
const UnloggedNote = 1 << 63

// submit hands a command to the shard that owns the bucket. Its reply comes from the log.
func (c *Client) submit(p *cycle, h protocol.Header, tier uint8, cmd shard.Command) {
	if d := c.shardFor(p, h, tier); d != nil {
		c.submitToShard(d, p, h, cmd)
	}
}

// shardFor is the shard that owns the bucket of a request; nil: the request was answered.
func (c *Client) shardFor(p *cycle, h protocol.Header, tier uint8) Shard {
	d := c.server.Routes().Shard(tier, h.Arg)
	if d == nil {
		p.out.rejectElsewhere(c, h, tier)
	}
	return d
}

// submitToShard is submit for a shard that is known. False: the shard did not take the command, and
// the request was answered.
func (c *Client) submitToShard(d Shard, p *cycle, h protocol.Header, cmd shard.Command) bool {
	if c.rejectMoving(d, p, h) {
		return false
	}
	cmd.Kind = shard.CommandKind(h.Kind)
	cmd.Body = h.Body
	st := p.commands.Submit(d.Raft(), cmd, replica.Origin{Conn: c.ID(), Request: h.ID, Kind: h.Kind, Tag: uint64(p.now)})
	if st != protocol.StatusOK {
		c.RejectSubmit(p.out, d, h.Kind, h.ID, st)
	}
	return st == protocol.StatusOK
}

// rejectMoving rejects a request for a bucket that moves and that the shard does not serve now. The
// log would refuse it too, but only after a commit. When the bucket is served, clients that wait
// for that word go on at once, and those whose request is in the log lose the time of two commits.
func (c *Client) rejectMoving(d Shard, p *cycle, h protocol.Header) bool {
	if !c.server.Routes().inMove(d.ID(), h.Arg) || !d.Leading() {
		return false
	}
	active := false
	d.Raft().View(func(m *shard.Machine) { _, active = m.Bucket(uint32(h.Arg)) })
	if !active {
		p.out.RejectByShard(c, d, h.Kind, h.ID, protocol.StatusWrongShard,
			"the bucket moves between shards and is served in a moment; send the request again when this instance says so")
	}
	return !active
}

// RejectSubmit answers a request that a shard did not take.
func (c *Client) RejectSubmit(o *Outbox, d Shard, kind protocol.Kind, id uint64, st protocol.Status) {
	if st == protocol.StatusUnavailable && d.LedElsewhere() {
		o.RejectByShard(c, d, kind, id, protocol.StatusWrongShard, submitFailed(d, protocol.StatusWrongShard))
		return
	}
	o.Fail(c, kind, id, st, submitFailed(d, st))
}

// sessionRequests are the requests about sessions. Starts and attaches check the connection's limit
// of sessions behind the right.
func sessionRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindSessionStart:  {charge: chargeAsk, grows: true, handle: sessionStart},
		protocol.KindSessionAttach: {charge: chargeAlways, handle: sessionAttach},
		// On a bound session: otherwise a client could stop any session whose id it guesses.
		protocol.KindSessionStop: onSession(func(m *protocol.SessionStop) *uint64 { return &m.Session },
			requestKind{charge: chargeAlways, handle: submitTarget}),
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
	if !chargeQuota(c, p, h, m.Node) {
		return
	}
	auth.BindKey(m.Key, c.identity)
	if byPath { // the log knows nodes by their ids
		p.startBody = m.AppendBody(p.startBody[:0])
		h.Body = p.startBody
	}
	c.submit(p, h, c.server.Routes().tierOf(m.Node), shard.Command{Node: m.Node, Client: c.Remote()})
}

// resolveStart replaces the path of a start with the node's id, by the same right and the same map
// as nodeDescribe.
func (c *Client) resolveStart(m *protocol.SessionStart) *protocol.Error {
	if bad := c.allowedPath(auth.RightRead, m.Path); bad != nil {
		return bad
	}
	info, err := c.server.cfg.Cluster.Governor().DescribeNode(m.Path)
	if err != nil {
		status, text := statusText(err)
		return protocol.Errorf(status, "%s", text)
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
	c.submit(p, h, protocol.SessionTier(m.Session), shard.Command{Node: m.Node, Client: c.Remote()})
}

// attachRelaxed answers an attach from the leader's memory and logs it behind the answer, where the
// node's configuration allows that and nothing can go wrong with it. False: the attach takes the
// way through the log first.
//
// A barrier of this leader must have begun less than the node's grace period ago, and what
// leader.MayAttachUnlogged asks for must hold.
func attachRelaxed(c *Client, p *cycle, h protocol.Header, m *protocol.SessionAttach) bool {
	d := c.server.Routes().Shard(protocol.SessionTier(m.Session), h.Arg)
	if d == nil || !d.Raft().Leading() {
		return false
	}
	var (
		node protocol.NodeConfig
		ok   bool
	)
	age, proved := d.Raft().ProofAge(p.now)
	d.Raft().View(func(machine *shard.Machine) {
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
	cmd := shard.Command{Kind: shard.CmdSessionAttach, Node: m.Node, Client: c.Remote(), Body: h.Body}
	if d.Raft().Submit(cmd, replica.Origin{Conn: c.ID(), Request: m.Session, Kind: h.Kind,
		Tag: uint64(p.now) | UnloggedNote}) != protocol.StatusOK {
		return false
	}
	c.server.cfg.Metrics.RelaxedAttaches.Inc()
	// Requests may come before the log has the attach: they wait behind it in the same log, or at a
	// remote shard, which learns the epoch from them.
	b := c.NewBinding(m.Session, m.Epoch, m.Node, d, m.Description)
	b.Unlogged = true
	b.Bind(time.Duration(m.Timeout) * time.Millisecond)
	// The log may have been faster: the binding that its event made was then replaced by this one,
	// and no other event follows to mark it as logged.
	d.Raft().View(func(machine *shard.Machine) {
		if v, found := machine.Sessions().Home(m.Session); found && v.Attached && v.Epoch == m.Epoch && v.Nonce == m.Nonce {
			b.Logged()
		}
	})
	current, _ := c.server.Routes().Keys()
	p.out.Reply(c, h.Kind, h.ID, &protocol.SessionReply{
		Session: m.Session, Epoch: m.Epoch, Shard: d.ID(), Timeout: m.Timeout, Grace: node.GracePeriod,
		Ticket: p.tickets.Append(nil, current, m.Session, m.Node, m.Epoch, c.identity),
		Node:   m.Node, ReadConsistency: node.ReadConsistency,
	})
	return true
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
