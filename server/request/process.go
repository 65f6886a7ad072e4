package request

import (
	"bytes"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
)

// processRequestKinds are the requests of members and operators. Those that change a process go to
// the log, messages between members to the shard's goroutine for them.
func processRequestKinds() map[protocol.Kind]requestKind {
	var (
		reports  = requestKind{right: auth.RightUse, charge: chargeAlways, handle: submitTarget}
		answers  = requestKind{right: auth.RightUse, charge: chargeAlways, handle: memberMessages}
		operates = requestKind{right: auth.RightAdmin, handle: operateProcess}
	)
	return map[protocol.Kind]requestKind{
		protocol.KindProcessJoin: onSession(func(m *protocol.ProcessJoin) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: processJoin}),
		protocol.KindProcessLeave: onSession(func(m *protocol.ProcessLeave) *uint64 { return &m.Session },
			requestKind{right: auth.RightRead, charge: chargeAlways, handle: submitTarget}),
		protocol.KindProcessConfirm:  onSession(func(m *protocol.ProcessConfirm) *uint64 { return &m.Session }, reports),
		protocol.KindProcessFail:     onSession(func(m *protocol.ProcessFail) *uint64 { return &m.Session }, reports),
		protocol.KindProcessComplete: onSession(func(m *protocol.ProcessComplete) *uint64 { return &m.Session }, reports),
		protocol.KindProcessSync:     onSession(func(m *protocol.ProcessSync) *uint64 { return &m.Session }, answers),
		protocol.KindProcessRequest: onSession(func(m *protocol.ProcessRequest) *uint64 { return &m.Session },
			requestKind{right: auth.RightUse, charge: chargeAsk, grows: true, handle: memberMessages}),
		protocol.KindProcessReply:      onSession(func(m *protocol.ProcessReply) *uint64 { return &m.Session }, answers),
		protocol.KindProcessForceRound: onNode(func(m *protocol.ProcessForceRound) *uint64 { return &m.Node }, operates),
		protocol.KindProcessEvict:      onNode(func(m *protocol.ProcessEvict) *uint64 { return &m.Node }, operates),
		protocol.KindProcessAlter:      onNode(func(m *protocol.ProcessAlter) *uint64 { return &m.Node }, operates),
		protocol.KindProcessWatch: onNode(func(m *protocol.ProcessWatch) *uint64 { return &m.Node },
			requestKind{right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchProcess}),
	}
}

// processJoin adds the identity, which the other members see.
func processJoin(c *Client, p *cycle, h protocol.Header, t target) {
	cmd := t.command()
	cmd.Sender = c.identity
	c.submitToShard(t.shard, p, h, cmd)
}

// memberMessages hands a sync, message or reply to the shard's goroutine for messages.
func memberMessages(c *Client, p *cycle, h protocol.Header, t target) {
	m := replica.MemberMessage{Origin: replica.Origin{Conn: c.ID(), Request: h.ID, Kind: h.Kind}, Node: t.node,
		Epoch: t.binding.Epoch, Body: bytes.Clone(h.Body)}
	switch st := t.shard.Replica().SubmitMember(m); st {
	case protocol.StatusOK:
	case protocol.StatusOverloaded:
		p.out.Fail(c, h.Kind, h.ID, st,
			fmt.Sprintf("the messages between members that wait in shard %d are at the limit of %d, or of %d bytes; send it again later",
				t.shard.ID(), leaderdriver.MaxMemberMessages, leaderdriver.MaxMemberBytes))
	default:
		c.RejectSubmit(p.out, t.shard, h.Kind, h.ID, st)
	}
}

// operateProcess submits an operator's change, with a line of the log and one of the audit log.
func operateProcess(c *Client, p *cycle, h protocol.Header, t target) {
	var name []byte
	var e audit.Event
	var fields []any
	switch m := t.message.(type) {
	case *protocol.ProcessForceRound:
		name, fields = m.Name, []any{"reason", m.Text}
		e = audit.Event{Title: "ask_force_round", Message: "new round requested", Severity: audit.Low}
	case *protocol.ProcessEvict:
		name, fields = m.Name, []any{"session", m.Session, "reason", m.Text}
		e = audit.Event{Title: "ask_evict_member", Message: "member eviction requested", Severity: audit.Medium}
	case *protocol.ProcessAlter:
		name = m.Name
		e = audit.Event{Title: "ask_alter_process", Message: "process change requested",
			Severity: audit.Low}
	}
	path, _ := c.server.Routes().NodePath(t.node)
	c.server.cfg.Log.Info(e.Message, "kind", h.Kind.String(), "node", path, audit.Name("process", name), "identity",
		c.identity, "remote", c.Remote())
	writeAudit(c, e, append([]any{"node", path, "process", string(name)}, fields...)...)
	c.submit(p, h, c.server.Routes().tierOf(t.node), t.command())
}

// watchProcess opens a stream. Its state follows the reply, from the shard's pager.
func watchProcess(c *Client, p *cycle, h protocol.Header, t target) {
	m, d := t.message.(*protocol.ProcessWatch), t.shard
	var cfg protocol.NodeConfig
	var err error
	known, most := false, uint64(0)
	d.Replica().View(func(machine *shard.Machine) {
		cfg, known = machine.Nodes().Config(m.Node)
		most = machine.Nodes().MaxWatchers(m.Node)
		_, err = machine.Processes().Find(m.Node, m.Name)
	})
	if !known || isStale(d, p.now, &cfg) {
		p.rejectWatch(c, d, h, m.Node, known)
		return
	}
	if protocol.StatusOf(err) == protocol.StatusNotFound {
		err = nil // the process may come
	}
	p.openStream(c, d, h, err, func() error {
		return d.Hubs().Processes.Open(c.ID(), h.ID, m.Node, m.Name, struct{}{}, most)
	})
}
