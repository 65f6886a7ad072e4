package server

import (
	"bytes"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/shard"
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

// member serves the requests of members: decoded and checked here, those that change the process handed on to the log, the others to the shard's goroutine for messages.
func (c *conn) member(p *readCycle, h protocol.Header) {
	var (
		session uint64
		ok      bool
		x       = &p.requests.process
	)
	switch h.Kind {
	case protocol.KindProcessJoin:
		ok, session = p.decode(c, h, &x.join), x.join.Session
	case protocol.KindProcessLeave:
		ok, session = p.decode(c, h, &x.leave), x.leave.Session
	case protocol.KindProcessConfirm:
		ok, session = p.decode(c, h, &x.confirm), x.confirm.Session
	case protocol.KindProcessFail:
		ok, session = p.decode(c, h, &x.fail), x.fail.Session
	case protocol.KindProcessComplete:
		ok, session = p.decode(c, h, &x.complete), x.complete.Session
	case protocol.KindProcessSync:
		ok, session = p.decode(c, h, &x.sync), x.sync.Session
	case protocol.KindProcessRequest:
		ok, session = p.decode(c, h, &x.request), x.request.Session
	case protocol.KindProcessReply:
		ok, session = p.decode(c, h, &x.reply), x.reply.Session
	}
	if !ok {
		return
	}
	b := c.binding(session)
	if b == nil {
		c.rejectUnbound(p.out, h.Kind, h.ID, session)
		return
	}
	if bad := c.allowed(RightUse, b.node); bad != nil {
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
	switch h.Kind {
	case protocol.KindProcessSync, protocol.KindProcessRequest, protocol.KindProcessReply:
		m := memberMessage{conn: c, id: h.ID, kind: h.Kind, node: b.node, epoch: b.epoch, body: bytes.Clone(h.Body)}
		switch st := d.processes.add(m); st {
		case protocol.StatusOK:
		case protocol.StatusOverloaded:
			p.out.fail(c, h.Kind, h.ID, st, fmt.Sprintf("the messages between members that wait in shard %d are at the limit of %d, or of %d bytes; send it again later",
				d.id, maxMemberMessages, maxMemberBytes))
		default:
			c.rejectSubmit(p.out, d, h.Kind, h.ID, st)
		}
		return
	}
	cmd := shard.Command{Node: b.node, Epoch: b.epoch}
	if h.Kind == protocol.KindProcessJoin {
		cmd.Client = c.identity // what the other members see
	}
	c.submitToShard(d, p, h, cmd)
}

// operateProcess serves what operators change: a forced round, an evicted member, other options.
func (c *conn) operateProcess(p *readCycle, h protocol.Header) {
	var (
		node   uint64
		name   []byte
		ok     bool
		e      audit.Event
		fields []audit.Field
		x      = &p.requests.process
	)
	switch h.Kind {
	case protocol.KindProcessForceRound:
		ok, node, name = p.decode(c, h, &x.force), x.force.Node, x.force.Name
		e.Title, e.Message, e.Severity = "ask_force_round", "a new round is asked for", audit.Low
		fields = []audit.Field{{Key: "reason", Value: x.force.Text}}
	case protocol.KindProcessEvict:
		ok, node, name = p.decode(c, h, &x.evict), x.evict.Node, x.evict.Name
		e.Title, e.Message, e.Severity = "ask_evict_member", "the end of a membership is asked for", audit.Medium
		fields = []audit.Field{{Key: "session", Value: x.evict.Session}, {Key: "reason", Value: x.evict.Text}}
	case protocol.KindProcessAlter:
		ok, node, name = p.decode(c, h, &x.alter), x.alter.Node, x.alter.Name
		e.Title, e.Message, e.Severity = "ask_alter_process", "other options of a process are asked for", audit.Low
	}
	if !ok {
		return
	}
	if bad := c.allowed(RightAdmin, node); bad != nil {
		p.reject(c, h, bad)
		return
	}
	path, _ := c.server.nodePath(node)
	c.server.log.Info(e.Message, "kind", h.Kind.String(), "node", path, "process", string(name), "identity", c.identity, "remote", c.remote)
	e.Initiator = c.identity
	e.Fields = append([]audit.Field{{Key: "node", Value: path}, {Key: "process", Value: string(name)}}, fields...)
	c.server.audit.write(e)
	c.submit(p, h, c.server.routing().tierOf(node), shard.Command{Node: node})
}

// watchProcess opens a stream. Its state follows the reply, from the shard's pager.
func (c *conn) watchProcess(p *readCycle, h protocol.Header) {
	m := &p.requests.process.watch
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
	var err error
	most := uint64(0)
	d.raft.View(func(machine *shard.Machine) {
		most = machine.MaxWatchers(m.Node)
		if _, err = machine.Process(m.Node, m.Name); protocol.StatusOf(err) == protocol.StatusNotFound {
			if _, known := machine.Node(m.Node); known {
				err = nil // the process may come
			}
		}
	})
	if err == nil && c.registerWatcher(d) {
		c.pageMu.Lock()
		defer c.pageMu.Unlock()
		err = d.streams.open(c.id, h.ID, m.Node, m.Name, struct{}{}, most)
	}
	if err != nil {
		p.out.failError(c, h.Kind, h.ID, err)
		return
	}
	p.out.reply(c, h.Kind, h.ID, nil)
	d.pager.add(c)
}
