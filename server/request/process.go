package request

import (
	"bytes"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// processRequests is memory for decoding requests about coordination processes.
type processRequests struct {
	join     protocol.ProcessJoin
	leave    protocol.ProcessLeave
	confirm  protocol.ProcessConfirm
	fail     protocol.ProcessFail
	complete protocol.ProcessComplete
	sync     protocol.ProcessSync
	request  protocol.ProcessRequest
	reply    protocol.ProcessReply
	force    protocol.ProcessForceRound
	evict    protocol.ProcessEvict
	alter    protocol.ProcessAlter
	watch    protocol.ProcessWatch
}

// processRequestKinds are the requests of members and operators. Those that change a process go to
// the log, messages between members to the shard's goroutine for them.
func processRequestKinds() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindProcessJoin: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.join, &b.process.join.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: processJoin,
		},
		protocol.KindProcessLeave: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.leave, &b.process.leave.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindProcessConfirm: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.confirm, &b.process.confirm.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindProcessFail: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.fail, &b.process.fail.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindProcessComplete: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.complete, &b.process.complete.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindProcessSync: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.sync, &b.process.sync.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: memberMessages,
		},
		protocol.KindProcessRequest: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.request, &b.process.request.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: memberMessages,
		},
		protocol.KindProcessReply: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.reply, &b.process.reply.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: memberMessages,
		},
		protocol.KindProcessForceRound: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.force, &b.process.force.Node },
			names: ofNode, right: auth.RightAdmin, handle: processForceRound,
		},
		protocol.KindProcessEvict: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.evict, &b.process.evict.Node },
			names: ofNode, right: auth.RightAdmin, handle: processEvict,
		},
		protocol.KindProcessAlter: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.alter, &b.process.alter.Node },
			names: ofNode, right: auth.RightAdmin, handle: processAlter,
		},
		protocol.KindProcessWatch: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.process.watch, &b.process.watch.Node },
			names: ofNode, right: auth.RightRead, charge: chargeAsk, grows: true, routed: true, handle: watchProcess,
		},
	}
}

// processJoin adds the identity, which the other members see.
func processJoin(c *Client, p *cycle, h protocol.Header, t target) {
	cmd := t.command()
	cmd.Client = c.identity
	c.submitToShard(t.shard, p, h, cmd)
}

// memberMessages hands a sync, message or reply to the shard's goroutine for messages.
func memberMessages(c *Client, p *cycle, h protocol.Header, t target) {
	m := replica.MemberMessage{Origin: replica.Origin{Conn: c.ID(), Request: h.ID, Kind: h.Kind}, Node: t.node,
		Epoch: t.binding.Epoch, Body: bytes.Clone(h.Body)}
	switch st := t.shard.Raft().SubmitMember(m); st {
	case protocol.StatusOK:
	case protocol.StatusOverloaded:
		p.out.Fail(c, h.Kind, h.ID, st,
			fmt.Sprintf("the messages between members that wait in shard %d are at the limit of %d, or of %d bytes; send it again later",
				t.shard.ID(), replica.MaxMemberMessages, replica.MaxMemberBytes))
	default:
		c.RejectSubmit(p.out, t.shard, h.Kind, h.ID, st)
	}
}

func processForceRound(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.process.force
	operateProcess(c, p, h, m.Name, t,
		audit.Event{Title: "ask_force_round", Message: "a new round is asked for", Severity: audit.Low},
		audit.Field{Key: "reason", Value: m.Text})
}

func processEvict(c *Client, p *cycle, h protocol.Header, t target) {
	m := &p.requests.process.evict
	operateProcess(c, p, h, m.Name, t, audit.Event{Title: "ask_evict_member",
		Message: "the end of a membership is asked for", Severity: audit.Medium},
		audit.Field{Key: "session", Value: m.Session}, audit.Field{Key: "reason", Value: m.Text})
}

func processAlter(c *Client, p *cycle, h protocol.Header, t target) {
	operateProcess(c, p, h, p.requests.process.alter.Name, t, audit.Event{Title: "ask_alter_process",
		Message: "other options of a process are asked for", Severity: audit.Low})
}

// operateProcess submits what an operator changes, with a line of the log and one of the audit log.
func operateProcess(c *Client, p *cycle, h protocol.Header, name []byte, t target, e audit.Event, fields ...audit.Field) {
	path, _ := c.server.Routes().NodePath(t.node)
	c.server.cfg.Log.Info(e.Message, "kind", h.Kind.String(), "node", path, "process", string(name), "identity",
		c.identity, "remote", c.Remote())
	e.Initiator = c.identity
	e.Fields = append([]audit.Field{{Key: "node", Value: path}, {Key: "process", Value: string(name)}}, append(fields, via(c)...)...)
	c.server.cfg.Audit(e)
	c.submit(p, h, c.server.Routes().tierOf(t.node), t.command())
}

// watchProcess opens a stream. Its state follows the reply, from the shard's pager.
func watchProcess(c *Client, p *cycle, h protocol.Header, t target) {
	m, d := &p.requests.process.watch, t.shard
	var err error
	most := uint64(0)
	d.Raft().View(func(machine *shard.Machine) {
		most = machine.Nodes().MaxWatchers(m.Node)
		if _, err = machine.Processes().Find(m.Node, m.Name); protocol.StatusOf(err) == protocol.StatusNotFound {
			if _, known := machine.Nodes().Config(m.Node); known {
				err = nil // the process may come
			}
		}
	})
	if err == nil && c.Watch(d.Delivery()) {
		c.pageMu.Lock()
		defer c.pageMu.Unlock()
		err = d.Delivery().Processes.Open(c.ID(), h.ID, m.Node, m.Name, struct{}{}, most)
	}
	if err != nil {
		status, text := statusText(err)
		p.out.RejectByShard(c, d, h.Kind, h.ID, status, text)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
	d.Requests().SendPages(c)
}
