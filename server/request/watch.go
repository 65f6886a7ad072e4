package request

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/shard"
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
	d := c.server.cfg.Shards.Shard(m.Shard) // not by the bucket: what the client takes for the shard's may have moved
	if d == nil {
		p.out.rejectElsewhere(c, h, tier)
		return
	}
	var cfg protocol.NodeConfig
	known, served, most := false, m.Prefix, uint64(0)
	d.Raft().View(func(machine *shard.Machine) {
		cfg, known = machine.Nodes().Config(m.Node)
		most = machine.Nodes().MaxWatchers(m.Node)
		if _, total := machine.Tier(); !served && total > 0 {
			_, served = machine.Bucket(protocol.Bucket(m.Node, m.Name, total))
		}
	})
	switch {
	case !known && d.Leading():
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusNotFound, "there is no such coordination node; describe its path for its id")
		return
	case !known:
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable,
			"this replica has no such coordination node, but may not have heard of it yet; watch at the shard's leader")
		return
	case isStale(d, p.now, &cfg):
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable, delivery.TextStale)
		return
	case served:
	case c.server.Routes().owner(tier, h.Arg) != d.ID():
		p.out.rejectElsewhere(c, h, tier)
		return
	default:
		p.out.RejectByShard(c, d, h.Kind, h.ID, protocol.StatusWrongShard,
			"the bucket moves between shards, or has not arrived here yet; watch again when this instance says that it is served")
		return
	}
	c.Watch(d.Delivery())
	c.pageMu.Lock()
	defer c.pageMu.Unlock()
	if err := d.Delivery().Semaphores.Open(c.ID(), h.ID, m, most); err != nil {
		p.out.FailError(c, h.Kind, h.ID, err)
		return
	}
	p.out.Reply(c, h.Kind, h.ID, nil)
}

// isStale says that a machine may be older than RELAXED reads of a node may be. A leader that
// cannot prove it steps down.
func isStale(d Shard, now time.Duration, node *protocol.NodeConfig) bool {
	return !d.Leading() && d.Raft().Age(now) >= time.Duration(node.GracePeriod)*time.Millisecond
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
