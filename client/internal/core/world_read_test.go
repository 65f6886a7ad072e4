package core

import "github.com/signalbox-dev/signalbox/protocol"

// worldRead is a RELAXED read.
type worldRead struct {
	call  Call
	msg   protocol.Describe
	reply protocol.DescribeReply
	least uint64 // the index that it may not miss
	done  bool
	times int // that it was handed back
}

// Done implements Waiter.
func (x *worldRead) Done() { x.done, x.times = true, x.times+1 }

// read begins a read of a name. It may not miss what this client has changed or read before.
func (c *worldClient) read(name string) {
	x := &worldRead{msg: protocol.Describe{Node: 7, Name: []byte(name)}, least: c.known[shardOfName(name)]}
	x.call = Call{
		Kind: protocol.KindDescribe, Msg: &x.msg, Reply: &x.reply, To: Target{Of: AtName, Node: 7, Name: name},
		Read: &Read{
			Asked: protocol.Relaxed, Grace: worldGrace, Want: &x.msg.Consistency, MinIndex: &x.msg.MinIndex,
			Index: &x.reply.Index,
		},
	}
	x.call.Waiter = x
	c.reads = append(c.reads, x)
	c.e.Call(c.now(), &x.call)
}

// checkReads: a client reads what it wrote, and never goes back.
func (c *worldClient) checkReads() {
	w := c.w
	for _, x := range c.calls {
		if x.done && x.r.Err == nil && !x.seen {
			x.seen = true
			shard := shardOfName(x.name)
			c.known[shard] = max(c.known[shard], w.effects[effect{c.s.ID, x.r.seq}])
		}
	}
	open := c.reads[:0]
	for _, x := range c.reads {
		switch name := string(x.msg.Name); {
		case !x.done:
			open = append(open, x)
		case x.call.Err != nil:
			w.t.Fatalf("a read has failed: %v", x.call.Err)
		case x.reply.Index < x.least:
			w.t.Fatalf("a read of %s is as of %d; the client knows of %d", name, x.reply.Index, x.least)
		default:
			w.counts["read"]++
			shard := shardOfName(name)
			c.known[shard] = max(c.known[shard], x.reply.Index)
		}
	}
	c.reads = open
}

// effect is a numbered request of a session.
type effect struct{ session, seq uint64 }

// describe serves a read: a STRICT one where the shard is led, a RELAXED one by any replica that is
// not too old.
func (k *worldConn) describe(h protocol.Header, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message)) {
	w := k.c.w
	var m protocol.Describe
	_ = protocol.DecodeBody(&m, h.Body)
	shard := shardOfBucket(h.Arg)
	l := w.log(shard)
	index := l.applied[k.instance]
	if m.Consistency == protocol.Strict {
		if w.leaders[shard] != k.instance {
			refuse(protocol.StatusWrongShard, protocol.Failure{
				Shard: shard, Master: w.leaders[shard], Term: w.terms[shard], MapVersion: w.version,
			})
			return
		}
		w.counts["strict read"]++
		l.applied[k.instance] = l.last() // behind a read barrier
		index = l.last()
	}
	stale := index < l.last() && w.now-l.entries[index].at > worldGrace
	if index < m.MinIndex || stale || w.chance(30) {
		refuse(protocol.StatusUnavailable, protocol.Failure{})
		return
	}
	if w.leaders[shard] != k.instance {
		w.counts["read of a replica"]++
	}
	answer(&protocol.DescribeReply{Name: m.Name, Index: index, Revision: 1, Version: 1})
}
