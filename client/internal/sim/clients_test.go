package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/protocol"
)

// client is a process that uses the SDK. Its engine is the shipped one. What drives it here does
// what package driver does, and is hostile where that may be slow.
type client struct {
	w     *simulation
	n     uint32
	e     *core.Engine
	ready core.Ready
	conns []*conn // that the engine knows, in the order of the dials
	extra bool    // the second process with one saved state: it is not replaced

	holders                       []*holder
	watchers                      []*watcher
	acquires                      pool[core.Acquire]
	releases                      pool[core.Release]
	calls                         pool[core.Call]
	rate, offset, wallOffset      uint64
	dead                          bool            // the process has ended
	sessions                      []*core.Session // scratch of check
	open                          []*core.Request // the same
	plain                         bool            // it asks for nothing of queues, and reads nothing of them
	pausedUntil, unreachableUntil uint64
}

// newClient is a process with an engine and nothing else.
func (w *simulation) newClient() *client {
	w.holders++
	c := &client{w: w, n: 1_000 + w.holders, wallOffset: 1 << 40}
	c.rate, c.offset = 1_000_000-5_000+w.pick(ClientPause, c.n, 10_001), w.pick(ClientPause, c.n, 1<<20)
	endpoints := make([]string, 0, 3)
	for range 3 {
		s := w.shards[w.pick(ConnLost, c.n, shards)]
		endpoints = append(endpoints, addressOf(s.replicas[w.pick(ConnLost, c.n, replicas)].id))
	}
	c.e = core.New(endpoints, uint64(c.n))
	c.plain = w.fault(PlainClient, c.n, 0.2)
	if w.fault(Watch, c.n, 0.3) {
		for _, name := range []string{"", semaphores[0].name} {
			c.watchers = append(c.watchers, c.startWatch(name))
		}
	}
	return c
}

// newStartingClient is a process whose programs start sessions.
func (w *simulation) newStartingClient() *client {
	c := w.newClient()
	for range w.sessionsEach {
		c.newHolder()
	}
	return c
}

// clock is the client's own.
func (c *client) clock() time.Duration {
	return time.Duration(c.offset+c.w.now*c.rate/1_000_000) * time.Millisecond
}

// wall is its time of day.
func (c *client) wall() time.Duration {
	return time.Duration(c.wallOffset+c.w.now) * time.Millisecond
}

// stepClient runs a process for a moment: what has come to its machine, its timers in any order with
// that, and its programs.
func (w *simulation) stepClient(i int) {
	c := w.clients[i]
	switch {
	case c.dead:
		if !w.faultsOver && !c.extra {
			w.clients[i] = w.newStartingClient()
		}
		return
	case w.now < c.pausedUntil:
		return
	case w.fault(ClientDies, c.n, 0.0006):
		c.dead = true // its connections stay half open
		w.restoreSessions(i)
		return
	case w.fault(ClientPause, c.n, 0.001):
		c.pause()
		if w.fault(RestoreTwice, c.n, 0.3) {
			w.restoreBeside(c, 0)
		}
		return
	case w.fault(Unreachable, c.n, 0.001):
		c.unreachableUntil = w.now + 300 + w.pick(Unreachable, c.n, 6_000)
	case w.fault(ShortPause, c.n, 0.003): // about as long as a session lives
		c.pausedUntil = w.now + w.timeout*7/10 + w.pick(ShortPause, c.n, w.timeout*6/10)
		return
	case w.fault(ClockJumps, c.n, 0.001):
		c.offset += w.pick(ClockJumps, c.n, 5_000)
		c.wallOffset += w.pick(ClockJumps, c.n, 2) * 5_000 // with the time of day, or without
	case w.fault(WallJumps, c.n, 0.001):
		c.wallOffset += w.pick(WallJumps, c.n, 10_000)
	}
	for _, k := range c.conns {
		switch {
		case k.broken || k.lost:
		case w.fault(ConnLost, c.n, 0.002):
			w.breakDown(k)
		case w.fault(ConnHangs, c.n, 0.001):
			k.hungUntil = w.now + 300 + w.pick(ConnHangs, c.n, 6_000)
		case w.fault(LosePackets, c.n, 0.002):
			k.lossyUntil = w.now + 500 + w.pick(LosePackets, c.n, 6_000)
		}
	}
	timersFirst := w.chance(ConnLost, c.n, 0.5)
	if timersFirst {
		c.tick()
	}
	for _, k := range append([]*conn(nil), c.conns...) {
		c.read(k)
	}
	if !timersFirst {
		c.tick()
	}
	for _, h := range c.holders {
		h.step()
	}
	for i, x := range c.watchers {
		if x.step(); w.fault(Unwatch, c.n, 0.0005) {
			c.e.CloseWatch(c.clock(), x.watch)
			c.watchers[i] = c.startWatch(x.watch.Name)
		}
	}
	c.act()
}

func (c *client) pause() {
	c.pausedUntil = c.w.now + 300 + c.w.pick(ClientPause, c.n, 6_000)
}

func (c *client) tick() {
	now := c.clock()
	if at, due := c.e.Next(); due && at <= now {
		c.e.Clocks(now, c.wall(), 0)
		c.e.Tick(now)
		c.act()
	}
}

// read has the engine process what has come over a connection.
func (c *client) read(k *conn) {
	now := c.clock()
	if k.hello != nil {
		hello := k.hello
		k.hello = nil
		c.e.Connected(now, k.core, k.address, hello)
		c.act()
	}
	if frames := k.readable; len(frames) > 0 && c.has(k) {
		k.readable = nil
		c.e.Received(now, k.core, frames)
		c.act()
	}
	if k.lost && c.has(k) {
		c.remove(k)
		c.e.Lost(now, k.core, errReset)
		c.act()
	}
}

func (c *client) has(k *conn) bool {
	for _, x := range c.conns {
		if x == k {
			return true
		}
	}
	return false
}

// remove forgets a connection that the engine does not know any more.
func (c *client) remove(k *conn) {
	for i, x := range c.conns {
		if x == k {
			c.conns = append(c.conns[:i:i], c.conns[i+1:]...)
			k.hangUp()
			return
		}
	}
}

// act does what the engine asks for.
func (c *client) act() {
	w := c.w
	c.e.Take(&c.ready)
	c.check()
	for _, x := range c.ready.Dial {
		w.connsN++
		k := &conn{id: w.connsN, c: c, core: x, behindHello: split(x.TakeOut(nil))}
		x.Owner = k
		c.conns = append(c.conns, k)
		w.dial(k, 0)
	}
	for _, x := range c.ready.Flush {
		x.Owner.(*conn).write(x.TakeOut(nil))
	}
	for _, x := range c.ready.Close {
		c.remove(x.Owner.(*conn))
	}
	for _, x := range c.ready.Wake {
		x.Done()
	}
	for _, r := range c.ready.Done {
		r.Waiter.Done()
	}
	for _, v := range c.ready.Event {
		c.event(v)
	}
	c.ready.Reset()
}

// check compares the engine with what its programs know: the sessions that have started, and the
// calls that have not returned.
func (c *client) check() {
	c.sessions, c.open = c.sessions[:0], c.open[:0]
	add := func(x *call) {
		if x != nil && !x.done && x.waiter.woken == 0 && !slices.Contains(c.ready.Done, x.request) {
			c.open = append(c.open, x.request)
		}
	}
	for _, h := range c.holders {
		if add(h.start); h.start != nil && h.start.done && h.start.err() == nil {
			c.sessions = append(c.sessions, h.s)
		}
		add(h.close)
		for i := range h.slots {
			add(h.slots[i].acquire)
			add(h.slots[i].other)
		}
	}
	if err := core.Check(c.e, c.sessions, c.open); err != nil {
		c.w.fail("client %d: %v", c.n, err)
	}
}

func (c *client) event(v core.Event) {
	w := c.w
	switch {
	case v.Kind == core.LeaseEnded && (errors.Is(v.Err, core.ErrMaxHold) || errors.Is(v.Err, core.ErrPreempted)):
		w.counts["ended at the client's bound"]++
	case v.Kind == core.LeaseEnded:
		w.counts["lease lost"]++
	case v.Kind == core.LeasePreempted:
		w.counts["preempted"]++
		w.behindPreempted(c)
	case v.Kind == core.ReleaseRefused:
		w.counts["release refused"]++
	case errors.Is(v.Err, core.ErrNotRenewed):
		w.counts["expired at the client"]++
	case errors.Is(v.Err, core.ErrTakenOver):
		w.counts["taken over"]++
	}
}

// holder is a part of a program: it has a session, one after the other, and uses semaphores under
// it.
type holder struct {
	c     *client
	n     uint32
	s     *core.Session
	start *call // of the session; nil: none was started yet
	close *call // nil: it is not closed
	slots [len(semaphores) + 2]slot
	known bool // simulation.sessions has the session

	restores   *core.Session // that was saved, and is restored; nil: a session is started
	generation uint64        // how often the session was restored
	notBefore  uint64        // nothing is started before
}

func (c *client) newHolder() *holder {
	c.w.holders++
	h := &holder{c: c, n: 1_000 + c.w.holders}
	for i := range h.slots {
		h.slots[i].name = i % len(semaphores)
	}
	c.holders = append(c.holders, h)
	return h
}

// believes reports whether the program relies on what its session holds, by its own clock.
func (h *holder) believes() bool {
	return !h.c.dead && h.live() && h.close == nil && h.c.e.Held(h.c.clock(), h.s)
}

// live reports whether the session was started, and has not ended as far as the program knows.
func (h *holder) live() bool {
	return h.start != nil && h.start.done && h.start.err() == nil && h.s.Err() == nil
}

func (h *holder) step() {
	w, now := h.c.w, h.c.clock()
	h.start.poll(h)
	h.close.poll(h)
	switch {
	case h.start == nil:
		if !w.faultsOver && w.now >= h.notBefore {
			h.begin()
		}
		return
	case !h.start.done:
		if w.fault(CancelStart, h.n, 0.003) {
			h.c.e.GiveUp(now, h.start.request, errGivenUp)
		}
		return
	case h.start.err() == nil && !h.known:
		h.started()
	case h.restores != nil:
		if protocol.StatusOf(h.start.err()) == protocol.StatusBadSession {
			w.counts["restore refused"]++
		}
		h.restores = nil
	}
	if h.live() && h.close == nil && w.fault(ClientStops, h.n, 0.0006) {
		x := &core.Close{}
		h.close = h.newCall(&x.Request)
		h.c.e.CloseSession(now, h.s, core.ErrSessionClosed, x)
	}
	if h.live() && h.close == nil && !h.c.plain && w.fault(Alter, h.n, 0.002) {
		h.alter()
	}
	busy := false
	for i := range h.slots {
		h.stepSlot(i)
		t := &h.slots[i]
		busy = busy || t.acquire != nil || t.other != nil
	}
	if !busy && !h.live() && (h.close == nil || h.close.done) {
		h.s, h.start, h.close, h.known = nil, nil, nil, false
		h.notBefore = w.now + w.pick(ClientStops, h.n, 1_000)
		h.generation = 0
		busy := func(x *holder) bool { return x.s != nil || x.restores != nil }
		h.c.dead = h.c.extra && !slices.ContainsFunc(h.c.holders, busy)
	}
}

var errGivenUp = errors.New("the caller gave up")

// begin starts a session, or restores one. As in package client, a restored one has epochs and
// numbers above all that its former holder can have used.
func (h *holder) begin() {
	w, now := h.c.w, h.c.clock()
	if was := h.restores; was != nil {
		h.s = &core.Session{
			ID: was.ID, Node: was.Node, Tier: was.Tier, Key: was.Key, Timeout: was.Timeout, Description: was.Description,
			Nonce: uint64(h.n),
		}
		x := &core.Restore{Epoch: h.generation<<32 + 1, First: h.generation<<40 + 1}
		h.start = h.newCall(&x.Request)
		h.c.e.RestoreSession(now, h.s, x)
		return
	}
	h.s = &core.Session{
		Path: nodePath, Timeout: time.Duration(w.timeout) * time.Millisecond, Description: "simulated", Nonce: uint64(h.n),
	}
	x := &core.Start{}
	for i := range protocol.KeyLen {
		h.s.Key[i], x.Create[i] = byte(w.pick(ClientDies, h.n, 256)), byte(w.pick(ClientDies, h.n, 256))
		x.Again[i] = byte(w.pick(ClientDies, h.n, 256))
	}
	h.start = h.newCall(&x.Request)
	h.c.e.StartSession(now, h.s, x)
}

func (h *holder) started() {
	w := h.c.w
	h.known = true
	w.operations++
	w.sessions[h.s.ID] = h
	if h.restores == nil {
		return
	}
	h.restores = nil
	w.counts["restored"]++
	for i := range semaphores { // what the former holder had is taken over, or given back
		t := &h.slots[i]
		if t.inherited = w.chance(Restore, h.n, 0.5); t.inherited {
			h.acquire(t, 1, protocol.Forever, core.Next, nil)
		} else {
			h.releaseName(t)
		}
	}
}

// restoreSessions starts the processes that restore the sessions of one that died: mostly one, which
// takes its place.
func (w *simulation) restoreSessions(i int) {
	c := w.clients[i]
	if !w.fault(Restore, c.n, 0.7) {
		return
	}
	if w.fault(RestoreTwice, c.n, 0.5) {
		w.restoreBeside(c, w.pick(RestoreTwice, c.n, 2))
	}
	w.clients[i] = w.newRestoringClient(c, 0)
}

// restoreBeside starts a process that restores the sessions of one beside another.
func (w *simulation) restoreBeside(c *client, earlier uint64) {
	second := w.newRestoringClient(c, earlier)
	second.extra = true
	w.clients = append(w.clients, second)
	for _, h := range second.holders {
		w.contested[h.restores.ID] = true
	}
}

// newRestoringClient is a process that uses what another one saved, or that saved earlier.
func (w *simulation) newRestoringClient(of *client, earlier uint64) *client {
	c := w.newClient()
	c.plain = c.plain && of.plain // else it refuses what another one saved
	for _, was := range of.holders {
		if was.live() {
			h := c.newHolder()
			h.restores, h.generation = was.s, was.generation-min(was.generation, earlier)+1
			h.notBefore = w.now + w.pick(Restore, h.n, 2_000)
		}
	}
	c.dead = len(c.holders) == 0
	return c
}
