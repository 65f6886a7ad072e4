package request

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// watchRequests are the requests that open and close streams over semaphores.
func watchRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindWatch: onNode(func(m *protocol.Watch) *uint64 { return &m.Node },
			requestKind{right: auth.RightRead, charge: chargeAsk, grows: true, handle: watch}),
		protocol.KindUnwatch: {handle: unwatch},
	}
}

// watch opens a stream. Its snapshot's pages follow the reply, from the shard's pager. A stream
// over one name is refused where its bucket is not served, as requests are: the client would learn
// of the owner from its next map only. One over a prefix is about the shard, whatever buckets it
// has.
func watch(c *Client, p *cycle, h protocol.Header, t target) {
	m := t.message.(*protocol.Watch)
	tier := c.server.Routes().tierOf(m.Node)
	d := c.server.cfg.Shards.Shard(m.Shard) // not by the bucket: it may have moved from the client's shard
	if d == nil {
		p.out.rejectElsewhere(c, h, tier)
		return
	}
	var cfg protocol.NodeConfig
	known, served, most := false, m.Prefix, uint64(0)
	d.Replica().View(func(machine *shard.Machine) {
		cfg, known = machine.Nodes().Config(m.Node)
		most = machine.Nodes().MaxWatchers(m.Node)
		if _, total := machine.Tier(); !served && total > 0 {
			_, served = machine.Bucket(protocol.Bucket(m.Node, m.Name, total))
		}
	})
	switch {
	case !known || isStale(d, p.now, &cfg):
		p.rejectWatch(c, d, h, m.Node, known)
		return
	case served:
	case c.server.Routes().owner(tier, h.Arg) != d.ID():
		p.out.rejectElsewhere(c, h, tier)
		return
	default:
		p.out.RejectByShard(c, d, h.Kind, h.ID, protocol.StatusWrongShard, 0,
			"the bucket moves between shards, or has not arrived here yet; watch again when this instance says that it is served")
		return
	}
	c.Watch(d.Hubs())
	c.pageMu.Lock()
	defer c.pageMu.Unlock()
	if err := d.Hubs().Semaphores.Open(c.ID(), h.ID, m, most); err != nil {
		p.out.FailError(c, h.Kind, h.ID, err)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
}

// openStream opens a stream over an object of a shard, unless err is set, which it answers. The
// object's state follows the reply, from the shard's pager.
func (p *cycle) openStream(c *Client, d Shard, h protocol.Header, err error, open func() error) {
	if err == nil && c.Watch(d.Hubs()) {
		c.pageMu.Lock()
		defer c.pageMu.Unlock()
		err = open()
	}
	if err != nil {
		e := asError(err)
		p.out.RejectByShard(c, d, h.Kind, h.ID, e.Status, e.Refusal, e.Message)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
	d.Requests().SendPages(c)
}

// rejectWatch refuses a stream at a replica that does not know the node, or that may be too old.
// Whether there is a node is for the map to say: a replica, even one that takes itself for the
// leader, may not have heard yet that it was made or dropped.
func (p *cycle) rejectWatch(c *Client, d Shard, h protocol.Header, node uint64, known bool) {
	state := c.server.Routes().State
	n, ok := state.Node(node)
	switch {
	case state.NodeDropped(node), n.Phase == meta.Dropping:
		p.out.FailError(c, h.Kind, h.ID, errNoNode)
	case known:
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable, delivery.TextStale)
	case !ok && d.Leading(): // no other replica needs to be asked
		p.reject(c, h, c.mapBehind(unconfirmed{right: auth.RightRead, node: node}))
	default:
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable,
			"this replica has not heard of the coordination node yet; watch at the shard's leader")
	}
}

// isStale reports whether a machine may be older than RELAXED reads of a node may be. A leader that
// cannot prove it steps down.
func isStale(d Shard, now time.Duration, node *protocol.NodeConfig) bool {
	return !d.Leading() && d.Replica().Age(now) >= time.Duration(node.GracePeriod)*time.Millisecond
}

// unwatch closes a stream; one that is closed already is closed.
func unwatch(c *Client, p *cycle, h protocol.Header, _ target) {
	m := buffer[protocol.Unwatch](&p.requests, h.Kind)
	if !p.decode(c, h, m) {
		return
	}
	c.server.cfg.Shards.CloseStream(c.ID(), m.WatchID)
	p.out.Reply(c, h.Kind, h.ID, nil)
}
