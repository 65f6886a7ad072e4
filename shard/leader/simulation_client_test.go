package leader

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

type simConn struct {
	id      uint64
	r       *simReplica
	c       *simClient
	open    bool // as the replica sees it
	heard   uint64
	pings   map[uint64]uint64 // when each was sent
	session uint64
	epoch   uint64
}

type simClient struct {
	session, epoch uint64
	key, create    []byte
	conn           *simConn
	until          uint64 // it believes in its session until then
	busy, dead     bool
	nextPing       uint64
	seq            uint64
	holds          map[string]uint64 // name -> order id
	asking         map[string]bool   // names with a request under way
}

func (w *sim) closeConn(id uint64) {
	k := w.conns[id]
	if k == nil || !k.open {
		return
	}
	k.open = false
	w.after(0, func() { k.r.act(func() { k.r.l.ConnClosed(k.r.clock(), id, k.heard, protocol.LinkClosed) }) })
	w.after(w.delay(200), func() {
		if k.c.conn == k {
			k.c.conn = nil
		}
	})
}

func (w *sim) pong(r *simReplica, p Pong) {
	k := w.conns[p.Conn]
	if k == nil || !k.open {
		return
	}
	sent, ok := k.pings[p.Ping]
	if !ok {
		w.t.Fatalf("pong to a ping that was not sent")
	}
	w.counts["pong"]++
	w.after(w.delay(150), func() {
		if c := k.c; c.conn == k && c.session == k.session && c.epoch == k.epoch {
			c.until = max(c.until, sent+simTimeout*9/10)
		}
	})
}

// request brings a client's command to the shard's supposed leader and back.
func (w *sim) request(r *simReplica, conn uint64, c shard.Command, done func(shard.Event)) {
	fail := func() { done(shard.Event{Status: protocol.StatusUnavailable}) }
	if !r.leads || w.now < r.pausedUntil || w.now < r.isolatedUntil {
		w.after(100, fail)
		return
	}
	batch := w.batch(r, c)
	enter := func() {
		var out shard.Event
		w.enter(r, batch, func(x shard.Event) { out = x }, conn)
		w.after(w.delay(100), func() { done(out) })
	}
	if w.chance(0.1) {
		w.after(w.delay(2_000), enter)
		return
	}
	enter()
}

func (w *sim) newClient() *simClient {
	c := &simClient{key: make([]byte, 16), create: make([]byte, 16),
		holds: map[string]uint64{}, asking: map[string]bool{}}
	for i := range 16 {
		c.create[i] = byte(w.rand.IntN(256))
	}
	return c
}

func (c *simClient) home() uint32 { return protocol.HomeBucket([16]byte(c.create), simBuckets) }

func (w *sim) dial(r *simReplica, c *simClient) *simConn {
	w.nextConn++
	k := &simConn{id: w.nextConn, r: r, c: c, open: true, heard: r.clock(), pings: map[uint64]uint64{}}
	w.conns[k.id] = k
	return k
}

// client does what one of the clients does in a step.
func (w *sim) client(i int) {
	c := w.clients[i]
	home := w.ownerOf(c.home())
	switch {
	case c.dead || c.session != 0 && w.now >= c.until:
		// It believes no more. Another one takes its place; its session is for the servers to end.
		if !w.quiet {
			w.clients[i] = w.newClient()
		}
	case c.busy:
	case c.session == 0:
		if w.quiet {
			return
		}
		c.busy = true
		k, sent := w.dial(home.replicas[w.rand.IntN(2)], c), w.now
		body := protocol.AppendBody(nil, &protocol.SessionStart{Node: simNode, CreateID: c.create, Key: c.key, Timeout: simTimeout,
			Description: fmt.Sprint("client ", i), Nonce: 1})
		w.request(k.r, k.id, shard.Command{Kind: shard.CmdSessionStart, Node: simNode, Body: body}, func(x shard.Event) {
			c.busy = false
			if x.Status != protocol.StatusOK || !k.open {
				w.closeConn(k.id)
				if x.Status == protocol.StatusOK {
					c.dead = true // it learned of its session, but lost the connection: leave that one to expire
				}
				return
			}
			c.session, c.epoch, c.conn, c.until = x.Session, 1, k, sent+simTimeout*9/10
			k.session, k.epoch = c.session, 1
			w.owners[c.session] = c
		})
	case c.conn == nil:
		c.busy = true
		k, sent, epoch := w.dial(home.replicas[w.rand.IntN(2)], c), w.now, c.epoch
		if w.chance(0.7) || w.quiet {
			epoch++
		}
		body := protocol.AppendBody(nil, &protocol.SessionAttach{Session: c.session, Node: simNode, Epoch: epoch, Key: c.key,
			Timeout: simTimeout, Description: fmt.Sprint("epoch ", epoch), Nonce: 1})
		w.request(k.r, k.id, shard.Command{Kind: shard.CmdSessionAttach, Node: simNode, Body: body}, func(x shard.Event) {
			c.busy = false
			c.epoch = epoch
			if x.Status != protocol.StatusOK || !k.open {
				w.closeConn(k.id)
				return
			}
			w.counts["attached again"]++
			c.conn, k.session, k.epoch = k, c.session, epoch
			c.until = max(c.until, sent+simTimeout*9/10)
		})
	default:
		w.alive(c)
	}
}

func (w *sim) alive(c *simClient) {
	k := c.conn
	if w.now >= c.nextPing {
		c.nextPing = w.now + simTimeout/4
		n := uint64(len(k.pings)) + 1
		k.pings[n] = w.now
		w.after(w.delay(150), func() {
			k.r.act(func() {
				if k.open {
					k.heard = k.r.clock()
					k.r.l.Ping(k.r.clock(), k.id, n)
				}
			})
		})
	}
	if w.quiet {
		return
	}
	name := fmt.Sprintf("%x/%d", c.create[:4], w.rand.IntN(6))
	target := w.ownerOf(protocol.Bucket(simNode, []byte(name), simBuckets))
	switch x := w.rand.Float64(); {
	case x < 0.13 && c.asking[name]:
	case x < 0.10:
		c.seq++
		c.asking[name] = true
		body := (&protocol.Acquire{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.seq},
			Name: []byte(name), Count: 1, Ephemeral: true}).AppendBody(nil)
		w.request(target.master, 0, shard.Command{Kind: shard.CmdAcquire, Node: simNode, Epoch: c.epoch, Body: body}, func(x shard.Event) {
			c.asking[name] = false
			if x.Status == protocol.StatusOK && x.State == protocol.Acquired && w.ended[c.session] == 0 && !c.dead {
				c.holds[name] = x.OrderID
			}
		})
	case x < 0.13:
		// It does not believe in what it gives back from the moment it asks.
		delete(c.holds, name)
		c.asking[name] = true
		c.seq++
		body := (&protocol.Release{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.seq},
			Name: []byte(name)}).AppendBody(nil)
		w.request(target.master, 0, shard.Command{Kind: shard.CmdRelease, Node: simNode, Epoch: c.epoch, Body: body},
			func(shard.Event) { c.asking[name] = false })
	case x < 0.135:
		w.counts["stopped"]++
		body := protocol.AppendBody(nil, &protocol.SessionStop{Session: c.session, Epoch: c.epoch})
		w.request(w.ownerOf(c.home()).master, 0,
			shard.Command{Kind: shard.CmdSessionStop, Node: simNode, Epoch: c.epoch, Body: body},
			func(shard.Event) {})
		c.dead, c.holds = true, map[string]uint64{}
	case x < 0.14:
		w.counts["died"]++ // without a word; the connection stays half open
		c.dead = true
	case x < 0.15:
		w.counts["lost its connection"]++
		c.conn = nil
		w.after(w.delay(1_500), func() { w.closeConn(k.id) })
	}
}
