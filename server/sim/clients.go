package sim

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/belief"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// names are the semaphores: persistent ones with a limit, and ephemeral ones without.
var names = []struct {
	name  string
	limit uint64
}{{"one", 1}, {"two", 2}, {"three", 3}, {"ephemeral-a", protocol.Forever}, {"ephemeral-b", protocol.Forever}}

// conn is a connection of a client to a replica.
type conn struct {
	id      uint64
	r       *replica
	c       *client
	open    bool   // as the replica sees it
	heard   uint64 // by the replica's clock
	pings   map[uint64]time.Duration
	session uint64
}

// client is one process with one session. What it may rely on is decided by the SDK's machine; around it is a driver as plain as can be.
type client struct {
	n            uint32
	m            *belief.Machine
	session      uint64
	epoch        uint64
	key, create  [16]byte
	nonce        uint64
	generation   uint64 // how often the session was restored
	heirOf       uint64 // the session that it is to restore; 0: it starts one of its own
	second       bool   // the second heir of one saved state: nobody takes its place
	repeated     bool   // the restore was sent more than once: an attach epoch is left out behind it
	conn         *conn  // to the home, as the client sees it
	rate, offset uint64

	starting, attaching bool
	attachTry           uint64 // the attach that is waited for
	attachAt            uint64 // when the next may be sent
	nextPing            time.Duration
	stopping            bool
	dead                bool // does nothing any more
	paused, unreachable uint64
	seq                 uint64
	slots               [5]slot
	contact             [shards]*replica // whom it asked last
}

// slot is what a client has to do with one name.
type slot struct {
	op    *op
	held  uint64 // token; 0 is none
	count uint64
	wait  bool   // an acquire was accepted
	seq   uint64 // of the acquire
	want  uint64 // its count
}

// op is a request until it is answered; it is sent again under its number.
type op struct {
	kind  shard.CommandKind
	seq   uint64
	name  int
	count uint64
	body  []byte
	next  uint64
}

func (w *world) newClient() *client {
	w.clientsN++
	c := &client{n: 1_000 + w.clientsN}
	c.nonce = uint64(c.n)
	c.rate, c.offset = 1_000_000-5_000+w.pick(ClientPause, c.n, 10_001), w.pick(ClientPause, c.n, 1<<20)
	for i := range 16 {
		c.key[i], c.create[i] = byte(w.pick(ClientPause, c.n, 256)), byte(w.pick(ClientPause, c.n, 256))
	}
	return c
}

// newHeir is a process that goes by what another one saved. As in the SDK, its epochs and numbers are above all that the holder before can have used.
func (w *world) newHeir(of *client, generation uint64) *client {
	h := w.newClient()
	h.key, h.create, h.heirOf, h.generation = of.key, of.create, of.session, generation
	h.epoch, h.seq = generation<<32+1, generation<<40
	h.attachAt = w.now + w.pick(Restore, h.n, 2_000)
	return h
}

// bequeath makes the heirs of a client that died without a word: mostly one, which takes its place.
func (w *world) bequeath(i int) {
	c := w.clients[i]
	if !w.fault(Restore, c.n, 0.7) {
		return
	}
	saved := c.generation
	if w.fault(RestoreTwice, c.n, 0.5) {
		older := saved - min(saved, w.pick(RestoreTwice, c.n, 2))
		second := w.newHeir(c, older+1)
		second.second = true
		w.clients = append(w.clients, second)
	}
	w.clients[i] = w.newHeir(c, saved+1)
}

func (c *client) home() uint32 { return protocol.HomeBucket(c.create, buckets) }

// clock is the client's own.
func (w *world) clock(c *client) time.Duration {
	return time.Duration(c.offset+w.now*c.rate/1_000_000) * time.Millisecond
}

// believes says whether the client relies on what it holds, on the clock that it has.
func (w *world) believes(c *client) bool {
	return !c.dead && c.m != nil && !c.stopping && c.m.Held(w.clock(c))
}

func (w *world) reaches(c *client) bool { return w.now >= c.unreachable }

func (w *world) dial(c *client, r *replica) *conn {
	w.connsN++
	k := &conn{id: w.connsN, r: r, c: c, open: true, heard: r.clock(), pings: map[uint64]time.Duration{}}
	w.conns[k.id] = k
	return k
}

// dropConn ends a connection on both sides; the client learns it later.
func (w *world) dropConn(k *conn) {
	if k == nil || !k.open {
		return
	}
	k.open = false
	delete(w.conns, k.id)
	w.after(w.delay(k.c.n), func() { w.lostLink(k) })
}

func (w *world) lostLink(k *conn) {
	c := k.c
	if c.conn != k || c.dead {
		return
	}
	if w.now < c.paused {
		w.after(c.paused-w.now, func() { w.lostLink(k) })
		return
	}
	c.conn = nil
	if c.m != nil {
		c.m.ConnLost(w.clock(c))
	}
}

// cut is what a leader asks for.
func (w *world) cut(id uint64) {
	k := w.conns[id]
	if k == nil {
		return
	}
	life := k.r.life
	w.dropConn(k)
	w.after(0, func() {
		if k.r.life == life {
			k.r.act(func() { k.r.l.ConnClosed(k.r.clock(), id, k.heard) })
		}
	})
}

// arrives runs f at the client, once its process runs, unless the message is lost.
func (w *world) arrives(c *client, f func()) {
	if !w.reaches(c) || w.fault(Lose, c.n, 0.02) {
		return
	}
	var do func()
	do = func() {
		switch {
		case c.dead:
		case w.now < c.paused:
			w.after(c.paused-w.now, do)
		default:
			f()
		}
	}
	w.after(w.delay(c.n), do)
}

func (w *world) pong(r *replica, p pongOf) {
	k := w.conns[p.Conn]
	if k == nil || !k.open {
		return
	}
	sent, ok := k.pings[p.Ping]
	if !ok {
		w.fail("a pong to a ping that was not sent")
	}
	w.seen["pong"]++
	c := k.c
	w.arrives(c, func() {
		if c.conn == k && c.m != nil && k.session == c.session {
			if w.o.Late {
				sent = w.clock(c)
			}
			c.m.Renewed(sent)
		}
	})
}

// request carries a command to a replica. The reply comes when it has applied it, if ever.
func (w *world) request(c *client, r *replica, k uint64, cmd shard.Command, done func(shard.Event)) {
	copies := 1
	if k == 0 && w.fault(Duplicate, c.n, 0.05) {
		copies = 2
	}
	answer := func(x shard.Event) { w.arrives(c, func() { done(x) }) }
	for range copies {
		if !w.reaches(c) || w.fault(Lose, c.n, 0.02) {
			continue
		}
		w.after(w.delay(c.n), func() {
			r.act(func() {
				if !r.ruling {
					answer(shard.Event{Status: protocol.StatusUnavailable})
					return
				}
				if w.attachRelaxed(c, r, k, cmd, answer) {
					answer = func(shard.Event) {}
				}
				e := entry{bytes: r.batch(r.led, cmd), from: r, life: r.life, conn: k, reply: answer}
				switch {
				case w.now < r.apart || w.fault(Lost, r.n, 0.03):
				case w.fault(Late, r.n, 0.1):
					w.after(w.pick(Late, r.n, 8_000), func() { r.s.enter(e) })
				default:
					r.s.enter(e)
				}
			})
		})
	}
}

// attachRelaxed answers an attach ahead of the log under the conditions of the server's door (server/request_session.go).
func (w *world) attachRelaxed(c *client, r *replica, k uint64, cmd shard.Command, answer func(shard.Event)) bool {
	if cmd.Kind != shard.CmdSessionAttach || w.conns[k] == nil {
		return false
	}
	config, ok := r.m.Node(node)
	began, fresh := r.l.Fresh()
	var x protocol.SessionAttach
	bad := x.DecodeBody(cmd.Body) != nil
	v, found := r.m.Session(x.Session)
	switch {
	case !ok || config.AttachConsistency != protocol.Relaxed || !found || bad:
		return false
	case !fresh || r.clock()-began >= config.GracePeriod:
		return false
	case !leader.MayAttachUnlogged(&v, &x, max(r.m.LogTime(), r.l.LogTime(r.clock())), r.clock()-began):
		return false
	}
	w.seen["relaxed attach"]++
	answer(shard.Event{Status: protocol.StatusOK, Session: x.Session, Epoch: x.Epoch, Timeout: v.Timeout, Grace: config.GracePeriod})
	return true
}

// deliver brings a result to the client, if this is the replica it talks to.
func (w *world) deliver(r *replica, x shard.Event) {
	c := w.owners[x.Session]
	if c == nil || c.contact[r.s.id-1] != r {
		return
	}
	w.arrives(c, func() {
		for i := range c.slots {
			t := &c.slots[i]
			switch {
			case names[i].name != string(x.Name):
			case x.Kind == shard.EventLeaseLost:
				if t.held == x.OrderID {
					t.held = 0
				}
			case t.wait && t.seq == x.Seq:
				t.wait = false
				if x.Status == protocol.StatusOK && x.State == protocol.Acquired {
					t.held, t.count = x.OrderID, t.want
					w.seen["granted later"]++
				}
			}
		}
	})
}

// tellEnded tells a client that its session has ended, and tellMoved that its home moves, on the connections this replica has.
func (w *world) tellEnded(r *replica, x shard.Event) {
	c := w.owners[x.Session]
	if c != nil && c.conn != nil && c.conn.r == r {
		w.arrives(c, func() { c.m.Ended(belief.ServerSaid) })
	}
}

func (w *world) tellMoved(r *replica, first, count uint32) {
	for _, id := range sorted(w.conns) {
		k := w.conns[id]
		if b := protocol.SessionBucket(k.session); k.r != r || !k.open || k.session == 0 || b < first || b-first >= count {
			continue
		}
		w.seen["told of a move"]++
		w.after(w.delay(k.c.n), func() { w.lostLink(k) })
	}
}

// clientStep does what one of the clients does in a step.
func (w *world) clientStep(i int) {
	c := w.clients[i]
	now := w.clock(c)
	switch {
	case c.dead:
		if !w.calm && !c.second {
			w.clients[i] = w.newClient()
		}
		return
	case w.now < c.paused:
		return
	case c.session == 0 && c.heirOf != 0:
		w.restore(c)
		return
	case c.session == 0:
		w.start(c)
		return
	case w.fault(ClientDies, c.n, 0.0006):
		c.dead = true // without a word; its connection stays half open
		w.bequeath(i)
		return
	case w.fault(ClientPause, c.n, 0.001):
		c.paused = w.now + 300 + w.pick(ClientPause, c.n, 6_000)
		return
	case w.fault(Unreachable, c.n, 0.001):
		c.unreachable = w.now + 300 + w.pick(Unreachable, c.n, 6_000)
	case c.conn != nil && w.fault(LinkLost, c.n, 0.003):
		k := c.conn
		w.lostLink(k)
		w.after(w.pick(LinkLost, c.n, 1_500), func() { w.cut(k.id) })
	case w.fault(ClientStops, c.n, 0.0006):
		c.m.Ended(belief.Closed)
	}
	c.m.Tick(now)
	r := c.m.Take()
	if r.Stop && !c.stopping {
		c.stopping = true
		body := (&protocol.SessionStop{Session: c.session, Epoch: c.epoch}).AppendBody(nil)
		w.request(c, w.ownerOf(c.home()).master, 0, shard.Command{Kind: shard.CmdSessionStop, Node: node, Epoch: c.epoch, Body: body}, func(shard.Event) {})
		w.seen["stop sent"]++
	}
	if r.State == belief.Expired {
		if r.Cause != belief.ServerSaid && r.Cause != belief.Closed {
			w.seen["expired at the client"]++
		}
		c.dead = true
		return
	}
	c.attaching = c.attaching || r.Attach
	if c.attaching && w.now >= c.attachAt {
		w.attach(c)
	}
	if c.conn != nil && now >= c.nextPing {
		w.ping(c, now)
	}
	for i := range c.slots {
		w.use(c, i)
	}
}

func (w *world) start(c *client) {
	if w.calm || c.starting {
		return
	}
	c.starting = true
	home := w.ownerOf(c.home())
	k, sent := w.dial(c, home.replicas[w.pick(Acquire, c.n, replicas)]), w.clock(c)
	body := (&protocol.SessionStart{Node: node, CreateID: c.create[:], Key: c.key[:], Timeout: w.timeout, Description: fmt.Sprint("client ", c.n), Nonce: c.nonce}).AppendBody(nil)
	// One that is not answered is left to expire, and another client takes its place.
	w.after(3_000, func() { c.dead = c.dead || c.session == 0 })
	w.request(c, k.r, k.id, shard.Command{Kind: shard.CmdSessionStart, Node: node, Body: body}, func(x shard.Event) {
		if x.Status != protocol.StatusOK || !k.open {
			c.dead = true
			return
		}
		w.operations++
		c.session, c.epoch, c.conn, k.session = x.Session, x.Epoch, k, x.Session
		c.m = belief.Start(sent, time.Duration(x.Timeout)*time.Millisecond, time.Duration(x.Grace)*time.Millisecond)
		w.owners[c.session] = c
	})
}

// restore takes a session over: one epoch and one nonce, sent until it is answered.
func (w *world) restore(c *client) {
	switch {
	case w.calm:
		c.dead = true // what it may have attached is left to expire
		return
	case w.now < c.attachAt:
		return
	}
	c.repeated = c.starting
	c.starting = true
	c.attachAt = w.now + 400 + w.pick(Restore, c.n, 400)
	home := w.ownerOf(c.home())
	k, sent := w.dial(c, home.replicas[w.pick(Acquire, c.n, replicas)]), w.clock(c)
	body := (&protocol.SessionAttach{Session: c.heirOf, Node: node, Epoch: c.epoch, Key: c.key[:], Timeout: w.timeout, Description: fmt.Sprint("client ", c.n), Nonce: c.nonce}).AppendBody(nil)
	w.request(c, k.r, k.id, shard.Command{Kind: shard.CmdSessionAttach, Node: node, Body: body}, func(x shard.Event) {
		switch {
		case c.session != 0:
			w.cut(k.id)
		case x.Status == protocol.StatusBadSession:
			w.seen["restore refused"]++
			c.dead = true
		case x.Status == protocol.StatusSessionExpired:
			c.dead = true
		case x.Status != protocol.StatusOK || !k.open:
			w.cut(k.id)
		default:
			w.operations++
			w.seen["restored"]++
			c.session, c.conn, k.session = x.Session, k, x.Session
			c.m = belief.Start(sent, time.Duration(x.Timeout)*time.Millisecond, time.Duration(x.Grace)*time.Millisecond)
			w.owners[c.session] = c
		}
	})
}

func (w *world) attach(c *client) {
	home := w.ownerOf(c.home())
	k, sent := w.dial(c, home.replicas[w.pick(Acquire, c.n, replicas)]), w.clock(c)
	if w.relaxed || !w.fault(SameEpoch, c.n, 0.3) { // the SDK never does, and relaxed attaches rely on that
		c.epoch++
	}
	if c.repeated {
		c.epoch++
		c.repeated = false
	}
	c.attachTry++
	try, epoch := c.attachTry, c.epoch
	c.attachAt = w.now + 400 + w.pick(Acquire, c.n, 400)
	body := (&protocol.SessionAttach{Session: c.session, Node: node, Epoch: epoch, Key: c.key[:], Timeout: w.timeout, Description: fmt.Sprint("client ", c.n), Nonce: c.nonce}).AppendBody(nil)
	w.request(c, k.r, k.id, shard.Command{Kind: shard.CmdSessionAttach, Node: node, Body: body}, func(x shard.Event) {
		switch {
		case x.Status == protocol.StatusSessionExpired:
			c.m.Ended(belief.ServerSaid)
		case x.Status != protocol.StatusOK || !k.open || try != c.attachTry:
			w.cut(k.id)
		default:
			w.operations++
			w.seen["attached again"]++
			if c.conn != nil {
				w.cut(c.conn.id)
			}
			c.conn, c.attaching, k.session = k, false, c.session
			c.m.Attached(w.clock(c), sent, time.Duration(x.Timeout)*time.Millisecond, time.Duration(x.Grace)*time.Millisecond)
		}
	})
}

func (w *world) ping(c *client, now time.Duration) {
	k, life := c.conn, c.conn.r.life
	c.nextPing = now + belief.KeepAlive(c.m.Timeout())
	n := uint64(len(k.pings)) + 1
	k.pings[n] = now
	if !w.reaches(c) || w.fault(Lose, c.n, 0.02) {
		return
	}
	w.after(w.delay(c.n), func() {
		k.r.act(func() {
			if k.open && k.r.life == life {
				k.heard = k.r.clock()
				k.r.l.Ping(k.r.clock(), k.id, n)
			}
		})
	})
}

// use is what a client does with one name.
func (w *world) use(c *client, i int) {
	t := &c.slots[i]
	actor := c.n*8 + uint32(i)
	switch {
	case t.op != nil:
		if w.now >= t.op.next {
			w.send(c, t.op)
		}
	case w.calm:
	case t.held != 0:
		if w.fault(Release, actor, 0.05) {
			w.release(c, i)
		}
	case t.wait:
		// A result may be lost with its connection: the request is sent again now and then, and answered by what became of it.
		switch {
		case w.fault(Withdraw, actor, 0.01):
			w.release(c, i)
		case w.chance(Wait, actor, 0.02):
			t.op = c.acquire(w, i, t.seq, t.want, 5_000)
			w.send(c, t.op)
		}
	case w.fault(Acquire, actor, 0.03):
		count, timeout := uint64(1), uint64(0)
		if w.fault(Exclusive, actor, 0.4) {
			count = names[i].limit
		}
		if w.fault(Wait, actor, 0.6) {
			timeout = 5_000
		}
		c.seq++
		t.seq, t.want = c.seq, count
		t.op = c.acquire(w, i, c.seq, count, timeout)
		w.send(c, t.op)
	}
}

// low is the lowest number that is not answered.
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

func (c *client) acquire(_ *world, i int, seq, count, timeout uint64) *op {
	x := protocol.Acquire{
		Head: protocol.Head{Session: c.session, Seq: seq, Low: min(seq, c.low())}, Name: []byte(names[i].name), Count: count, Timeout: timeout,
		Ephemeral: names[i].limit == protocol.Forever,
	}
	return &op{kind: shard.CmdAcquire, seq: seq, name: i, count: count, body: x.AppendBody(nil)}
}

// release gives back what is held, or leaves the queue. From the moment it asks the client relies on nothing.
func (w *world) release(c *client, i int) {
	t := &c.slots[i]
	t.held, t.wait = 0, false
	c.seq++
	x := protocol.Release{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: min(c.seq, c.low())}, Name: []byte(names[i].name)}
	t.op = &op{kind: shard.CmdRelease, seq: c.seq, name: i, body: x.AppendBody(nil)}
	w.send(c, t.op)
}

// create makes a persistent semaphore that is not there yet. Its number is a new one, and the acquire is begun anew.
func (w *world) create(c *client, i int) {
	c.seq++
	x := protocol.Create{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: min(c.seq, c.low())}, Name: []byte(names[i].name), Limit: names[i].limit}
	c.slots[i].op = &op{kind: shard.CmdCreate, seq: c.seq, name: i, body: x.AppendBody(nil)}
	w.send(c, c.slots[i].op)
}

func (w *world) send(c *client, o *op) {
	s := w.ownerOf(protocol.Bucket(node, []byte(names[o.name].name), buckets))
	if w.fault(OldMap, c.n, 0.03) {
		s = w.shards[w.pick(OldMap, c.n, shards)]
	}
	r := s.master
	c.contact[s.id-1] = r
	o.next = w.now + 700
	w.request(c, r, 0, shard.Command{Kind: o.kind, Node: node, Epoch: c.epoch, Body: o.body}, func(x shard.Event) { w.answered(c, o, x) })
}

func (w *world) answered(c *client, o *op, x shard.Event) {
	t := &c.slots[o.name]
	if t.op != o {
		return
	}
	switch x.Status {
	case protocol.StatusUnavailable, protocol.StatusWrongShard, protocol.StatusOverloaded, protocol.StatusBadSession:
		o.next = w.now + 100 // nothing was applied
		return
	case protocol.StatusSessionExpired:
		c.m.Ended(belief.ServerSaid)
		return
	}
	w.operations++
	t.op, t.wait = nil, false
	switch {
	case x.Status == protocol.StatusNotFound && o.kind == shard.CmdAcquire:
		w.create(c, o.name)
	case x.Status != protocol.StatusOK || o.kind != shard.CmdAcquire:
	case x.State == protocol.Acquired:
		t.held, t.count = x.OrderID, o.count
		w.seen["granted"]++
	case x.State == protocol.Accepted:
		t.wait = true
	}
}
