package server

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// watch opens a stream. Its snapshot's pages follow the reply, from the shard's pager.
func (c *conn) watch(p *pass, h protocol.Header) {
	m := &p.msg.watch
	if !p.decode(c, h, m) {
		return
	}
	if bad := c.allowed(RightRead, m.Node); bad != nil {
		p.refuse(c, h, bad)
		return
	}
	if !c.admit(p, h, m.Node) {
		return
	}
	d := c.srv.desks.get(m.Shard) // not by the bucket: what the client takes for the shard's may have moved
	if d == nil {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusWrongShard, "this instance does not serve the bucket; fetch the map")
		return
	}
	known, most := false, uint64(0)
	d.rep.View(func(machine *shard.Machine) {
		_, known = machine.Node(m.Node)
		most = machine.MaxWatchers(m.Node)
	})
	if !known {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusNotFound, "there is no such coordination node; describe its path for its id")
		return
	}
	c.watches(d)
	c.pageGate.Lock()
	defer c.pageGate.Unlock()
	if err := d.hub.Open(c.id, h.ID, m, most); err != nil {
		p.out.failErr(c, h.Kind, h.ID, err)
		return
	}
	p.out.reply(c, h.Kind, h.ID, nil)
}

// unwatch closes a stream; one that is closed already is closed.
func (c *conn) unwatch(p *pass, h protocol.Header) {
	m := &p.msg.unwatch
	if !p.decode(c, h, m) {
		return
	}
	for _, d := range c.srv.desks.all() {
		d.hub.Close(c.id, m.WatchID)
		d.streams.close(c.id, m.WatchID)
		d.rollouts.close(c.id, m.WatchID)
	}
	p.out.reply(c, h.Kind, h.ID, nil)
}

// watches notes that a shard's hub knows the connection, so that it is told when the connection closes. False: it is closed already.
func (c *conn) watches(d *desk) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	if !slices.Contains(c.watching, d) {
		c.watching = append(c.watching, d)
	}
	return true
}
