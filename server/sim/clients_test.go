package sim

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// clientConn is a connection of a client to a replica.
type clientConn struct {
	id           uint64
	r            *replica
	c            *client
	open         bool   // as the replica sees it
	lastReceived uint64 // by the replica's clock
	pings        map[uint64]time.Duration
	session      uint64
}

// client is one process with one session. The SDK's machine decides what it may rely on. The driver
// around it is as plain as can be.
type client struct {
	w            *simulation
	n            uint32
	validity     *sessionstate.Machine
	session      uint64
	epoch        uint64
	key, create  [16]byte
	nonce        uint64
	generation   uint64      // how often the session was restored
	restores     uint64      // the session that it restores; 0: it starts one
	extra        bool        // the second process with one saved state: it is not replaced
	repeated     bool        // the restore was sent more than once: the next attach epoch is left out
	conn         *clientConn // to the home shard, as the client sees it
	rate, offset uint64

	starting, attaching           bool
	attachTry                     uint64 // the attach whose reply is awaited
	attachAt                      uint64 // when the next may be sent
	nextPing                      time.Duration
	stopping                      bool
	dead                          bool // the process has ended
	pausedUntil, unreachableUntil uint64
	seq                           uint64
	slots                         [5]slot
	lastAsked                     [shards]*replica // the replica of each shard that it asked last
}

func (w *simulation) newClient() *client {
	w.clientsN++
	c := &client{w: w, n: 1_000 + w.clientsN}
	c.nonce = uint64(c.n)
	c.rate, c.offset = 1_000_000-5_000+w.pick(ClientPause, c.n, 10_001), w.pick(ClientPause, c.n, 1<<20)
	for i := range 16 {
		c.key[i], c.create[i] = byte(w.pick(ClientPause, c.n, 256)), byte(w.pick(ClientPause, c.n, 256))
	}
	return c
}

// newRestoringClient is a process that uses what another one saved. As in the SDK, its epochs and
// numbers are above all that its predecessor can have used.
func (w *simulation) newRestoringClient(of *client, generation uint64) *client {
	h := w.newClient()
	h.key, h.create, h.restores, h.generation = of.key, of.create, of.session, generation
	h.epoch, h.seq = generation<<32+1, generation<<40
	h.attachAt = w.now + w.pick(Restore, h.n, 2_000)
	return h
}

// startRestoringClients starts the processes that restore the session of a client that died: mostly
// one, which takes its place.
func (w *simulation) startRestoringClients(i int) {
	c := w.clients[i]
	if !w.fault(Restore, c.n, 0.7) {
		return
	}
	saved := c.generation
	if w.fault(RestoreTwice, c.n, 0.5) {
		older := saved - min(saved, w.pick(RestoreTwice, c.n, 2))
		second := w.newRestoringClient(c, older+1)
		second.extra = true
		w.clients = append(w.clients, second)
	}
	w.clients[i] = w.newRestoringClient(c, saved+1)
}

func (c *client) home() uint32 { return protocol.HomeBucket(c.create, buckets) }

// clock is the client's own.
func (w *simulation) clock(c *client) time.Duration {
	return time.Duration(c.offset+w.now*c.rate/1_000_000) * time.Millisecond
}

// believes says whether the client relies on what it holds, by its own clock.
func (w *simulation) believes(c *client) bool {
	return !c.dead && c.validity != nil && !c.stopping && c.validity.Held(w.clock(c))
}

func (w *simulation) reachable(c *client) bool { return w.now >= c.unreachableUntil }

func (w *simulation) dial(c *client, r *replica) *clientConn {
	w.connsN++
	k := &clientConn{id: w.connsN, r: r, c: c, open: true, lastReceived: r.clock(), pings: map[uint64]time.Duration{}}
	w.conns[k.id] = k
	return k
}

// breakConn ends a connection on both sides; the client learns it later.
func (w *simulation) breakConn(k *clientConn) {
	if k == nil || !k.open {
		return
	}
	k.open = false
	delete(w.conns, k.id)
	w.after(w.delay(k.c.n), func() { w.connLost(k) })
}

func (w *simulation) connLost(k *clientConn) {
	c := k.c
	if c.conn != k || c.dead {
		return
	}
	if w.now < c.pausedUntil {
		w.after(c.pausedUntil-w.now, func() { w.connLost(k) })
		return
	}
	c.conn = nil
	if c.validity != nil {
		c.validity.ConnLost(w.clock(c))
	}
}

// closeConn closes a connection for a leader.
func (w *simulation) closeConn(id uint64) {
	k := w.conns[id]
	if k == nil {
		return
	}
	life := k.r.life
	w.breakConn(k)
	w.after(0, func() {
		if k.r.life == life {
			k.r.call(func() { k.r.leader.ConnClosed(k.r.clock(), id, k.lastReceived) })
		}
	})
}

// sendToClient runs f at the client, once its process runs, unless the message is lost.
func (w *simulation) sendToClient(c *client, f func()) {
	if !w.reachable(c) || w.fault(LoseMessage, c.n, 0.02) {
		return
	}
	var do func()
	do = func() {
		switch {
		case c.dead:
		case w.now < c.pausedUntil:
			w.after(c.pausedUntil-w.now, do)
		default:
			f()
		}
	}
	w.after(w.delay(c.n), do)
}

func (w *simulation) clientStep(i int) {
	c := w.clients[i]
	now := w.clock(c)
	switch {
	case c.dead:
		if !w.faultsOver && !c.extra {
			w.clients[i] = w.newClient()
		}
		return
	case w.now < c.pausedUntil:
		return
	case c.session == 0 && c.restores != 0:
		w.restore(c)
		return
	case c.session == 0:
		w.start(c)
		return
	case w.fault(ClientDies, c.n, 0.0006):
		c.dead = true // its connection stays half open
		w.startRestoringClients(i)
		return
	case w.fault(ClientPause, c.n, 0.001):
		c.pausedUntil = w.now + 300 + w.pick(ClientPause, c.n, 6_000)
		return
	case w.fault(Unreachable, c.n, 0.001):
		c.unreachableUntil = w.now + 300 + w.pick(Unreachable, c.n, 6_000)
	case c.conn != nil && w.fault(ConnLost, c.n, 0.003):
		k := c.conn
		w.connLost(k)
		w.after(w.pick(ConnLost, c.n, 1_500), func() { w.closeConn(k.id) })
	case w.fault(ClientStops, c.n, 0.0006):
		c.validity.Ended(sessionstate.Closed)
	}
	c.validity.Tick(now)
	r := c.validity.Take()
	if r.Stop && !c.stopping {
		c.stopping = true
		body := (&protocol.SessionStop{Session: c.session, Epoch: c.epoch}).AppendBody(nil)
		w.ownerOf(c.home()).leader.request(c, 0,
			shard.Command{Kind: shard.CmdSessionStop, Node: node, Epoch: c.epoch, Body: body}, func(shard.Event) {})
		w.counts["stop sent"]++
	}
	if r.State == sessionstate.Expired {
		if r.Cause != sessionstate.EndedByServer && r.Cause != sessionstate.Closed {
			w.counts["expired at the client"]++
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
		c.stepSlot(i)
	}
}

func (w *simulation) start(c *client) {
	if w.faultsOver || c.starting {
		return
	}
	c.starting = true
	k, sent := w.dialHome(c)
	body := (&protocol.SessionStart{Node: node, CreateID: c.create[:], Key: c.key[:], Timeout: w.timeout,
		Description: fmt.Sprint("client ", c.n), Nonce: c.nonce}).AppendBody(nil)
	// An unanswered start is left to expire, and another client takes its place.
	w.after(3_000, func() { c.dead = c.dead || c.session == 0 })
	k.r.request(c, k.id, shard.Command{Kind: shard.CmdSessionStart, Node: node, Body: body}, func(x shard.Event) {
		if x.Status != protocol.StatusOK || !k.open {
			c.dead = true
			return
		}
		c.epoch = x.Epoch
		w.begin(c, k, sent, &x)
	})
}

// dialHome connects to a replica of the home shard: to its leader once faults are over.
func (w *simulation) dialHome(c *client) (k *clientConn, now time.Duration) {
	home := w.ownerOf(c.home())
	r := home.replicas[w.pick(Acquire, c.n, replicas)]
	if w.faultsOver {
		r = home.leader
	}
	return w.dial(c, r), w.clock(c)
}

// begin begins a client's session, which was asked for at the time sent.
func (w *simulation) begin(c *client, k *clientConn, sent time.Duration, x *shard.Event) {
	w.operations++
	c.session, c.conn, k.session = x.Session, k, x.Session
	c.validity = sessionstate.Start(sent, time.Duration(x.Timeout)*time.Millisecond, time.Duration(x.Grace)*time.Millisecond)
	w.sessions[c.session] = c
}

// requestAttach asks the home shard to attach a session under the client's epoch.
func (w *simulation) requestAttach(c *client, k *clientConn, session uint64, done func(shard.Event)) {
	body := (&protocol.SessionAttach{Session: session, Node: node, Epoch: c.epoch, Key: c.key[:],
		Timeout: w.timeout, Description: fmt.Sprint("client ", c.n), Nonce: c.nonce}).AppendBody(nil)
	k.r.request(c, k.id, shard.Command{Kind: shard.CmdSessionAttach, Node: node, Body: body}, done)
}

// restore takes a session over: one epoch and one nonce, sent until it is answered.
func (w *simulation) restore(c *client) {
	switch {
	case w.faultsOver:
		c.dead = true // what it may have attached expires
		return
	case w.now < c.attachAt:
		return
	}
	c.repeated = c.starting
	c.starting = true
	c.attachAt = w.now + 400 + w.pick(Restore, c.n, 400)
	k, sent := w.dialHome(c)
	w.requestAttach(c, k, c.restores, func(x shard.Event) {
		switch {
		case c.session != 0:
			w.closeConn(k.id)
		case x.Status == protocol.StatusBadSession:
			w.counts["restore refused"]++
			c.dead = true
		case x.Status == protocol.StatusSessionExpired:
			c.dead = true
		case x.Status != protocol.StatusOK || !k.open:
			w.closeConn(k.id)
		default:
			w.counts["restored"]++
			w.begin(c, k, sent, &x)
		}
	})
}

func (w *simulation) attach(c *client) {
	k, sent := w.dialHome(c)
	if w.relaxed || !w.fault(SameEpoch, c.n, 0.3) { // the SDK never repeats an epoch, and relaxed attaches rely on that
		c.epoch++
	}
	if c.repeated {
		c.epoch++
		c.repeated = false
	}
	c.attachTry++
	try := c.attachTry
	c.attachAt = w.now + 400 + w.pick(Acquire, c.n, 400)
	w.requestAttach(c, k, c.session, func(x shard.Event) {
		switch {
		case x.Status == protocol.StatusSessionExpired:
			c.validity.Ended(sessionstate.EndedByServer)
		case x.Status != protocol.StatusOK || !k.open || try != c.attachTry:
			w.closeConn(k.id)
		default:
			w.operations++
			w.counts["attached again"]++
			if c.conn != nil {
				w.closeConn(c.conn.id)
			}
			c.conn, c.attaching, k.session = k, false, c.session
			c.validity.Attached(w.clock(c), sent, time.Duration(x.Timeout)*time.Millisecond, time.Duration(x.Grace)*time.Millisecond)
		}
	})
}

func (w *simulation) ping(c *client, now time.Duration) {
	k, life := c.conn, c.conn.r.life
	c.nextPing = now + sessionstate.KeepAlive(c.validity.Timeout())
	n := uint64(len(k.pings)) + 1
	k.pings[n] = now
	if !w.reachable(c) || w.fault(LoseMessage, c.n, 0.02) {
		return
	}
	w.after(w.delay(c.n), func() {
		k.r.call(func() {
			if k.open && k.r.life == life {
				k.lastReceived = k.r.clock()
				k.r.leader.Ping(k.r.clock(), k.id, n)
			}
		})
	})
}
