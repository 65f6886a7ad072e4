package core

import (
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// worldConn is a connection, with what is on its way. Each way keeps its order.
type worldConn struct {
	c           *worldClient
	conn        *Conn
	instance    uint64
	bound       map[uint64]uint64 // session -> attach epoch
	up, broken  bool
	refuses     bool          // it was made while attaches are refused
	hungUntil   time.Duration // nothing arrives before
	toServer    []delayed
	toClient    []delayed
	lastArrival [2]time.Duration
	streams     []*modelStream // that the instance serves here
}

type delayed struct {
	at time.Duration
	h  protocol.Header
}

type worldClient struct {
	w       *world
	e       *Engine
	s       *Session
	was     []*Session // that were started before, and of whose end the server does not know
	start   *worldCall
	restore bool // start is that of a session that another object had: nobody knows what it holds
	conns   []*worldConn
	calls   []*worldCall
	leases  map[*Lease]string
	ready   Ready
	watches []*worldWatch
	way     *Way // to the name a
	reads   []*worldRead
	known   map[uint64]uint64 // by shard: the index that no read may miss
	skew    time.Duration     // of its clock: one part in so many
	holds   bool              // it gives nothing back

	othersHeard time.Duration // when an instance that does not lead the home shard was heard last
	dials       []delayedDial

	asleepAt, asleep   time.Duration
	stopped, wasAsleep bool
}

// now is the client's clock, which is not as fast as others.
func (c *worldClient) now() time.Duration { return c.w.now + c.w.now/c.skew }

// worldCall is a call that was made.
type worldCall struct {
	r       *Request
	name    string
	done    bool
	times   int // that it was handed back
	acquire *Acquire
	lease   *Lease
	seen    bool // by checkReads
}

func (c *worldCall) Done() { c.done, c.times = true, c.times+1 }

// begin starts another session.
func (c *worldClient) begin() {
	c.s = &Session{Path: "/n", Timeout: worldTimeout, Nonce: 1}
	c.start, c.restore = &worldCall{}, false
	x := &Start{Request: Request{Waiter: c.start}}
	for i := range x.Create {
		x.Create[i], x.Again[i] = byte(c.w.rng.Uint32()), byte(c.w.rng.Uint32())
	}
	c.start.r = &x.Request
	c.e.Open(c.now())
	c.e.StartSession(c.now(), c.s, x)
}

// restoreHere takes the session over from its own object, as a program does that restores twice what
// it has saved.
func (c *worldClient) restoreHere() {
	was := c.s
	c.was = append(c.was, was)
	c.s = &Session{
		ID: was.ID, Node: was.Node, Tier: was.Tier, Key: was.Key, Path: was.Path, Timeout: worldTimeout, Nonce: was.Nonce + 1,
	}
	x := &Restore{Epoch: was.epoch + 1<<20, First: was.numbers.next + 1<<20}
	c.start, c.restore = &worldCall{r: &x.Request}, true
	x.Waiter = c.start
	c.e.RestoreSession(c.now(), c.s, x)
}

// carry brings what is due over the connections.
func (c *worldClient) carry() {
	w := c.w
	for _, k := range slices.Clone(c.conns) {
		if w.chance(400) {
			k.broken = true
			w.counts["connection lost"]++
		}
		if w.chance(600) {
			k.hungUntil = w.now + time.Duration(w.rng.IntN(4000))*time.Millisecond
			w.counts["hung"]++
		}
		if w.quiet {
			k.hungUntil = min(k.hungUntil, w.now)
		}
		dead := k.breaks()
		if k.broken {
			c.conns = slices.DeleteFunc(c.conns, func(x *worldConn) bool { return x == k })
			c.e.Lost(c.now(), k.conn, errors.New("reset"))
			c.check()
			continue
		}
		if dead || w.now < k.hungUntil {
			continue
		}
		k.serveStreams()
		for len(k.toServer) > 0 && k.toServer[0].at <= w.now {
			h := k.toServer[0].h
			k.toServer = k.toServer[1:]
			k.serve(h)
		}
		var frames []protocol.Header
		for len(k.toClient) > 0 && k.toClient[0].at <= w.now && w.rng.IntN(5) != 0 {
			frames = append(frames, k.toClient[0].h)
			k.toClient = k.toClient[1:]
		}
		if len(frames) > 0 {
			if k.instance != w.leaders[homeShard(c.s.ID)] {
				c.othersHeard = w.now
			}
			c.e.Received(c.now(), k.conn, frames)
			c.check()
		}
	}
}

// arrival is when what is sent now arrives.
func (k *worldConn) arrival(way int) time.Duration {
	d := time.Duration(k.c.w.rng.IntN(20)) * time.Millisecond
	k.lastArrival[way] = max(k.lastArrival[way], k.c.w.now+d)
	return k.lastArrival[way]
}

func (k *worldConn) send(kind protocol.Kind, id, arg uint64, m protocol.Message) {
	if k.c.w.is("packets from the instances dropped") {
		return
	}
	k.toClient = append(k.toClient, delayed{k.arrival(1), k.frame(kind, id, arg, m)})
}

func (k *worldConn) frame(kind protocol.Kind, id, arg uint64, m protocol.Message) protocol.Header {
	frame := protocol.AppendFrame(nil, kind, id, arg, m)
	h, err := protocol.ParseFrame(frame[4:])
	if err != nil {
		k.c.w.t.Fatal(err)
	}
	return h
}

func (k *worldConn) event(kind protocol.Kind, m protocol.Message) { k.send(kind, 0, 0, m) }

// check looks at the engine between two steps: its invariants, and that it has every call that it has
// not handed back, and has handed back none twice.
func (c *worldClient) check() {
	sessions, open := c.was, make([]*Request, 0, len(c.calls)+len(c.reads)+1)
	add := func(r *Request, times int) {
		switch {
		case times > 1:
			c.w.t.Fatalf("at %s a call of kind %d was handed back %d times", c.w.now-time.Hour, r.kind, times)
		case times == 0 && !slices.Contains(c.ready.Done, r) && !slices.Contains(c.e.ready.Done, r):
			open = append(open, r)
		}
	}
	add(c.start.r, c.start.times)
	for _, x := range c.calls {
		add(x.r, x.times)
	}
	for _, x := range c.reads {
		add(&x.call.Request, x.times)
	}
	if c.start.done && c.start.r.Err == nil {
		sessions = append(sessions, c.s)
	}
	if err := Check(c.e, sessions, open); err != nil {
		c.w.t.Fatalf("at %s: %v", c.w.now-time.Hour, err)
	}
	c.was = slices.DeleteFunc(c.was, (*Session).Stopped)
}

// take does what the engine asks for.
func (c *worldClient) take() {
	w := c.w
	c.check()
	c.e.Take(&c.ready)
	for _, x := range c.ready.Close {
		c.conns = slices.DeleteFunc(c.conns, func(k *worldConn) bool { return k.conn == x })
		for _, s := range w.started {
			if s.on != nil && s.on.conn == x {
				s.on = nil
			}
		}
	}
	for _, x := range c.ready.Dial {
		address := x.Addresses[w.rng.IntN(len(x.Addresses))]
		if w.chance(5) {
			c.e.Lost(c.now(), x, errors.New("no route to host"))
			continue
		}
		if c.dialFails(x, address) {
			continue
		}
		k := &worldConn{c: c, conn: x, refuses: w.is("right taken away", "limit reached", "node deleted in an outage"), instance: uint64(address[1] - '0'), bound: map[uint64]uint64{}, up: true}
		out := x.TakeOut(nil)
		c.conns = append(c.conns, k)
		c.e.Connected(c.now(), x, address, &protocol.HelloReply{
			Version: protocol.Version, Cluster: "c", Instance: k.instance, Window: 64, MapVersion: w.version,
		})
		k.receive(out)
	}
	for _, x := range c.ready.Flush {
		for _, k := range c.conns {
			if k.conn == x {
				k.receive(x.TakeOut(nil))
			}
		}
	}
	for _, r := range c.ready.Done {
		r.Waiter.Done()
	}
	for _, v := range c.ready.Event {
		if v.Kind == LeaseEnded && (errors.Is(v.Err, ErrMaxHold) || errors.Is(v.Err, ErrPreempted)) {
			w.counts["given back in time"]++
		}
	}
	for _, x := range c.ready.Wake {
		x.Done()
	}
	again := len(c.ready.Dial) > 0
	c.ready.Reset()
	if again {
		c.take()
	}
}

// receive puts the frames of a client on their way.
func (k *worldConn) receive(b []byte) {
	for len(b) > 0 {
		frame, n, _ := protocol.SplitFrame(b, protocol.MaxFrameLen)
		b = b[n:]
		h, err := protocol.ParseFrame(slices.Clone(frame))
		if err != nil {
			k.c.w.t.Fatal(err)
		}
		k.toServer = append(k.toServer, delayed{k.arrival(0), h})
	}
}

// act is what a program does.
func (c *worldClient) act() {
	w := c.w
	if c.start.done && (c.start.r.Err != nil || c.s.err != nil) {
		c.calls, c.leases = nil, map[*Lease]string{}
		if c.start.r.Err == nil {
			c.was = append(c.was, c.s)
		}
		if !w.quiet || len(c.e.sessions) == 0 {
			c.begin()
		}
		return
	}
	if !c.start.done {
		return
	}
	if c.restore {
		c.restore = false
		for _, name := range worldNames {
			r := &Release{}
			x := &worldCall{name: name, r: &r.Request}
			r.Waiter = x
			c.calls = append(c.calls, x)
			c.e.ReleaseName(c.now(), c.s, name, r)
		}
	}
	if c.way == nil || c.way.Session != c.s {
		c.way = &Way{Waiter: nobody{}, Session: c.s, To: Target{Of: AtName, Node: 7, Name: "a"}}
		c.e.Follow(c.now(), c.way)
	}
	if c.holds {
		return
	}
	if w.quiet { // all leases are given back, so that all waits end
		for _, x := range slices.Clone(c.calls) {
			if x.acquire != nil && x.done && x.lease.Token != 0 && x.lease.over == nil {
				r := &Release{}
				y := &worldCall{name: x.name, r: &r.Request}
				r.Waiter = y
				c.calls = append(c.calls, y)
				c.e.Release(c.now(), x.lease, r)
			}
		}
		return
	}
	switch {
	case w.rng.IntN(4) == 0 && len(c.calls) < 20:
		name := worldNames[w.rng.IntN(len(worldNames))]
		x := &worldCall{name: name, acquire: &Acquire{}, lease: &Lease{}}
		x.r = &x.acquire.Request
		x.acquire.Waiter, x.acquire.Lease, x.acquire.Turn = x, x.lease, []Turn{Next, Free}[w.rng.IntN(2)]
		x.acquire.Msg = protocol.Acquire{Name: []byte(name), Count: 1, Timeout: []uint64{0, protocol.Forever}[w.rng.IntN(2)]}
		if w.rng.IntN(6) == 0 {
			x.acquire.Msg.Options = &protocol.AcquireOptions{Hold: 800, Flags: protocol.KnowsBounds}
		}
		c.calls = append(c.calls, x)
		c.e.Acquire(c.now(), c.s, name, x.acquire)
	case w.rng.IntN(3) == 0 && len(c.calls) > 0:
		x := c.calls[w.rng.IntN(len(c.calls))]
		if x.acquire != nil && x.done && x.lease.Token != 0 && x.lease.over == nil {
			r := &Release{}
			y := &worldCall{name: x.name, r: &r.Request}
			r.Waiter = y
			c.calls = append(c.calls, y)
			c.e.Release(c.now(), x.lease, r)
		}
	case w.rng.IntN(8) == 0 && len(c.calls) > 0:
		x := c.calls[w.rng.IntN(len(c.calls))]
		if x.acquire != nil && x.done && x.lease.Token != 0 && x.lease.over == nil {
			r := &Change{Hold: 800}
			y := &worldCall{name: x.name, r: &r.Request}
			r.Waiter = y
			c.calls = append(c.calls, y)
			c.e.Change(c.now(), x.lease, r)
		}
	case w.rng.IntN(4) == 0 && len(c.reads) < 5:
		c.read(worldNames[w.rng.IntN(len(worldNames))])
	case w.chance(30) && len(c.calls) > 0:
		if x := c.calls[w.rng.IntN(len(c.calls))]; !x.done {
			w.counts["given up"]++
			c.e.GiveUp(c.now(), x.r, errors.New("context ended"))
		}
	case w.chance(500):
		w.counts["restored"]++
		c.restoreHere()
	case w.chance(700):
		w.counts["closed"]++
		x := &Close{}
		y := &worldCall{r: &x.Request}
		x.Waiter = y
		c.calls = append(c.calls, y)
		c.e.CloseSession(c.now(), c.s, ErrSessionClosed, x)
	}
	c.calls = slices.DeleteFunc(c.calls, func(x *worldCall) bool {
		return x.done && (x.acquire == nil || x.lease.Token == 0 || x.lease.over != nil)
	})
}
