package sim

import (
	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// semaphores are persistent ones with a limit, and ephemeral ones without.
var semaphores = []struct {
	name  string
	limit uint64
}{{"one", 1}, {"two", 2}, {"three", 3}, {"ephemeral-a", protocol.Forever}, {"ephemeral-b", protocol.Forever}}

// slot is a client's use of one name.
type slot struct {
	op     *op
	held   uint64 // token; 0 is none
	count  uint64
	wait   bool   // an acquire was accepted
	seq    uint64 // of the acquire
	wanted uint64 // its count
}

// op is a request until it is answered; it is repeated under its number.
type op struct {
	kind  shard.CommandKind
	seq   uint64
	name  int
	count uint64
	body  []byte
	next  uint64
}

func (c *client) stepSlot(i int) {
	w := c.w
	t := &c.slots[i]
	actor := c.n*8 + uint32(i)
	switch {
	case t.op != nil:
		if w.now >= t.op.next {
			c.send(t.op)
		}
	case w.faultsOver:
	case t.held != 0:
		if w.fault(Release, actor, 0.05) {
			c.release(i)
		}
	case t.wait:
		// A result may be lost with its connection. So the request is repeated now and then, and
		// answered by its outcome.
		switch {
		case w.fault(CancelWait, actor, 0.01):
			c.release(i)
		case w.chance(Wait, actor, 0.02):
			c.acquire(i, t.seq, t.wanted, 5_000)
		}
	case w.fault(Acquire, actor, 0.03):
		count, timeout := uint64(1), uint64(0)
		if w.fault(Exclusive, actor, 0.4) {
			count = semaphores[i].limit
		}
		if w.fault(Wait, actor, 0.6) {
			timeout = 5_000
		}
		c.seq++
		t.seq, t.wanted = c.seq, count
		c.acquire(i, c.seq, count, timeout)
	}
}

// low is the lowest unanswered number.
func (c *client) low() uint64 {
	low := c.seq
	for i := range c.slots {
		if t := &c.slots[i]; t.op != nil {
			low = min(low, t.op.seq)
		} else if t.wait {
			low = min(low, t.seq)
		}
	}
	return low
}

func (c *client) head(seq uint64) protocol.Head {
	return protocol.Head{Session: c.session, Seq: seq, Low: min(seq, c.low())}
}

// ask sends a request for a name, and repeats it until it is answered.
func (c *client) ask(i int, o op) {
	o.name = i
	c.slots[i].op = &o
	c.send(&o)
}

func (c *client) acquire(i int, seq, count, timeout uint64) {
	x := protocol.Acquire{
		Head: c.head(seq), Name: []byte(semaphores[i].name), Count: count, Timeout: timeout,
		Ephemeral: semaphores[i].limit == protocol.Forever,
	}
	c.ask(i, op{kind: shard.CmdAcquire, seq: seq, count: count, body: x.AppendBody(nil)})
}

// release releases what is held, or leaves the queue. From the moment it asks the client relies on
// nothing.
func (c *client) release(i int) {
	c.slots[i].held, c.slots[i].wait = 0, false
	c.seq++
	x := protocol.Release{Head: c.head(c.seq), Name: []byte(semaphores[i].name)}
	c.ask(i, op{kind: shard.CmdRelease, seq: c.seq, body: x.AppendBody(nil)})
}

// createSemaphore creates a persistent semaphore that is not there yet. Its number is new, and the
// acquire starts again.
func (c *client) createSemaphore(i int) {
	c.seq++
	x := protocol.Create{Head: c.head(c.seq), Name: []byte(semaphores[i].name), Limit: semaphores[i].limit}
	c.ask(i, op{kind: shard.CmdCreate, seq: c.seq, body: x.AppendBody(nil)})
}

func (c *client) send(o *op) {
	w := c.w
	s := w.ownerOf(protocol.Bucket(node, []byte(semaphores[o.name].name), buckets))
	if w.fault(StaleMap, c.n, 0.03) {
		s = w.shards[w.pick(StaleMap, c.n, shards)]
	}
	r := s.leader
	c.lastAsked[placeOf(s.id)] = r
	o.next = w.now + 700
	r.request(c, 0, shard.Command{Kind: o.kind, Node: node, Epoch: c.epoch, Body: o.body}, func(x shard.Event) { c.answered(o, x) })
}

func (c *client) answered(o *op, x shard.Event) {
	w := c.w
	t := &c.slots[o.name]
	if t.op != o {
		return
	}
	switch x.Status {
	case protocol.StatusUnavailable, protocol.StatusWrongShard, protocol.StatusOverloaded, protocol.StatusBadSession:
		o.next = w.now + 100 // nothing was applied
		return
	case protocol.StatusSessionExpired:
		c.validity.Ended(sessionstate.EndedByServer)
		return
	}
	w.operations++
	t.op, t.wait = nil, false
	switch {
	case x.Status == protocol.StatusNotFound && o.kind == shard.CmdAcquire:
		c.createSemaphore(o.name)
	case x.Status != protocol.StatusOK || o.kind != shard.CmdAcquire:
	case x.State == protocol.Acquired:
		t.held, t.count = x.OrderID, o.count
		w.counts["granted"]++
	case x.State == protocol.Accepted:
		t.wait = true
	}
}
