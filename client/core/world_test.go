package core

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// world is a cluster that decides everything at once, and clients whose connections break, are slow
// and hang, while leaders change. It is a naive model of what servers promise.
type world struct {
	t   *testing.T
	rng *rand.Rand
	now time.Duration

	leaders  map[uint64]uint64 // by shard
	terms    map[uint64]uint64
	version  uint64 // of the map
	sessions map[uint64]*modelSession
	started  []*modelSession // in order
	names    map[string]*modelName
	logs     map[uint64]*modelLog // by shard
	effects  map[effect]uint64    // the index of the log behind which a request had its effect
	orders   uint64
	clients  []*worldClient
	quiet    bool // no faults any more
	counts   map[string]int
}

const (
	worldInstances = 3
	worldShards    = 2
	worldTimeout   = 2 * time.Second
	worldGrace     = time.Second
)

// modelSession is a session at its home.
type modelSession struct {
	id, epoch uint64
	create    [protocol.KeyLen]byte
	on        *worldConn // nil: detached
	deadline  time.Duration
	ended     bool
	low       uint64
	answers   map[uint64]protocol.Message // by number: those of releases and ended acquires
}

// modelName is a semaphore with one unit, and its queue; the first entry holds it.
type modelName struct{ queue []modelEntry }

type modelEntry struct {
	s          *modelSession
	seq, order uint64
}

// worldConn is a connection, with what is on its way. Each way keeps its order.
type worldConn struct {
	c           *worldClient
	conn        *Conn
	instance    uint64
	bound       map[uint64]uint64 // session -> attach epoch
	up, broken  bool
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
	start   *worldCall
	conns   []*worldConn
	calls   []*worldCall
	leases  map[*Lease]string
	ready   Ready
	watches []*worldWatch
	way     *Way // to the name a
	reads   []*worldRead
	known   map[uint64]uint64 // by shard: the index that no read may miss
}

// worldCall is a call that was made.
type worldCall struct {
	r       *Request
	name    string
	done    bool
	acquire *Acquire
	lease   *Lease
	seen    bool // by checkReads
}

func (c *worldCall) Done() { c.done = true }

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, version: 1, leaders: map[uint64]uint64{}, terms: map[uint64]uint64{},
		sessions: map[uint64]*modelSession{}, names: map[string]*modelName{}, logs: map[uint64]*modelLog{}, effects: map[effect]uint64{}, counts: map[string]int{},
	}
	for s := range uint64(worldShards) {
		w.leaders[s+1], w.terms[s+1] = s%worldInstances+1, 1
	}
	for i := range 2 {
		c := &worldClient{w: w, e: New([]string{"i1", "i2", "i3"}, seed*10+uint64(i)), leases: map[*Lease]string{}, known: map[uint64]uint64{}}
		w.clients = append(w.clients, c)
		c.begin()
		c.subscribe()
	}
	return w
}

// begin starts another session.
func (c *worldClient) begin() {
	c.s = &Session{Path: "/n", Timeout: worldTimeout, Nonce: 1}
	c.start = &worldCall{}
	x := &Start{Request: Request{Waiter: c.start}}
	for i := range x.Create {
		x.Create[i], x.Again[i] = byte(c.w.rng.Uint32()), byte(c.w.rng.Uint32())
	}
	c.start.r = &x.Request
	c.e.Open(c.w.now)
	c.e.StartSession(c.w.now, c.s, x)
}

func (w *world) chance(n int) bool { return !w.quiet && w.rng.IntN(n) == 0 }

func (w *world) step() {
	w.now += time.Duration(w.rng.IntN(30)) * time.Millisecond
	w.moveLeaders()
	w.apply()
	for _, c := range w.clients {
		c.carry()
		c.checkReads()
		c.act()
		for _, x := range c.watches {
			x.take()
		}
		c.e.Tick(w.now)
		c.take()
	}
	for _, s := range w.started {
		switch {
		case s.ended:
		case s.on != nil && s.on.broken:
			s.on = nil
		case w.now > s.deadline:
			w.end(s, protocol.EndExpired)
		}
	}
	w.check()
}

// moveLeaders gives a shard another leader. What is at home there is detached, with the timeout and
// the grace period.
func (w *world) moveLeaders() {
	if !w.chance(150) {
		return
	}
	w.counts["leader moved"]++
	shard := w.rng.Uint64N(worldShards) + 1
	w.leaders[shard] = w.rng.Uint64N(worldInstances) + 1
	w.terms[shard]++
	for _, s := range w.started {
		if homeShard(s.id) == shard && !s.ended {
			s.on, s.deadline = nil, w.now+worldTimeout+worldGrace
		}
	}
	for _, c := range w.clients {
		for _, k := range c.conns {
			k.event(protocol.KindMapChanged, &protocol.MapChanged{ // every instance learns it
				Version: w.version, Shard: shard, Master: w.leaders[shard], Term: w.terms[shard],
			})
		}
	}
}

const worldBuckets = 8

func homeShard(session uint64) uint64 { return shardOfBucket(uint64(protocol.SessionBucket(session))) }

func shardOfBucket(bucket uint64) uint64 { return bucket/(worldBuckets/worldShards) + 1 }

// end ends a session: what it holds is free.
func (w *world) end(s *modelSession, reason protocol.EndReason) {
	s.ended = true
	w.counts["ended"]++
	for _, name := range worldNames {
		w.remove(name, s, protocol.StatusSessionExpired)
	}
	if s.on != nil {
		s.on.event(protocol.KindSessionEnded, &protocol.SessionEnded{Session: s.id, Reason: reason})
	}
}

// remove takes a session's entry out of a queue; the first one left is granted.
func (w *world) remove(name string, s *modelSession, status protocol.Status) bool {
	n := w.names[name]
	if n == nil {
		return false
	}
	i := slices.IndexFunc(n.queue, func(x modelEntry) bool { return x.s == s })
	if i < 0 {
		return false
	}
	was := n.queue[i]
	n.queue = slices.Delete(n.queue, i, i+1)
	w.holderChanged(name)
	if i > 0 {
		w.result(name, was, &protocol.AcquireResult{Session: s.id, Seq: was.seq, Status: status})
	} else if len(n.queue) > 0 {
		next := n.queue[0]
		w.result(name, next, &protocol.AcquireResult{Session: next.s.id, Seq: next.seq, State: protocol.Acquired, OrderID: next.order})
	}
	return true
}

// result goes where the session is bound at the shard's leader, if anywhere.
func (w *world) result(name string, x modelEntry, m *protocol.AcquireResult) {
	leader := w.leaders[shardOfName(name)]
	w.effects[effect{x.s.id, x.seq}] = w.log(shardOfName(name)).last()
	for _, c := range w.clients {
		for _, k := range slices.Backward(c.conns) {
			if k.instance == leader && k.bound[x.s.id] == x.s.epoch {
				k.event(protocol.KindAcquireResult, m)
				return
			}
		}
	}
}

func shardOfName(name string) uint64 {
	return shardOfBucket(uint64(protocol.Bucket(7, []byte(name), worldBuckets)))
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
		if k.broken {
			c.conns = slices.DeleteFunc(c.conns, func(x *worldConn) bool { return x == k })
			c.e.Lost(w.now, k.conn, errors.New("reset"))
			continue
		}
		if w.now < k.hungUntil {
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
			c.e.Received(w.now, k.conn, frames)
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
	frame := protocol.AppendFrame(nil, kind, id, arg, m)
	h, err := protocol.ParseFrame(frame[4:])
	if err != nil {
		k.c.w.t.Fatal(err)
	}
	k.toClient = append(k.toClient, delayed{k.arrival(1), h})
}

func (k *worldConn) event(kind protocol.Kind, m protocol.Message) { k.send(kind, 0, 0, m) }

// take does what the engine asks for.
func (c *worldClient) take() {
	w := c.w
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
			c.e.Lost(w.now, x, errors.New("no route to host"))
			continue
		}
		k := &worldConn{c: c, conn: x, instance: uint64(address[1] - '0'), bound: map[uint64]uint64{}, up: true}
		out := x.TakeOut(nil)
		c.conns = append(c.conns, k)
		c.e.Connected(w.now, x, address, &protocol.HelloReply{
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

// serve is an instance: it processes one frame.
func (k *worldConn) serve(h protocol.Header) {
	w := k.c.w
	refuse := func(status protocol.Status, f protocol.Failure) {
		k.send(h.Kind|protocol.KindReply, h.ID, uint64(status), &f)
	}
	answer := func(m protocol.Message) { k.send(h.Kind|protocol.KindReply, h.ID, 0, m) }
	for _, s := range w.started { // whatever is heard on its connection keeps a session
		if s.on == k && !s.ended && w.leaders[homeShard(s.id)] == k.instance {
			s.deadline = w.now + worldTimeout
		}
	}
	shard := shardOfBucket(h.Arg)
	if h.Kind != protocol.KindMap && h.Kind != protocol.KindPing && h.Kind != protocol.KindPresentTicket &&
		h.Kind != protocol.KindNodeDescribe && h.Kind != protocol.KindWatch && h.Kind != protocol.KindUnwatch &&
		h.Kind != protocol.KindDescribe {
		if h.Arg == protocol.HomeOfCreateID {
			var m protocol.SessionStart
			_ = m.DecodeBody(h.Body)
			shard = shardOfBucket(uint64(protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), worldBuckets)))
		}
		if w.leaders[shard] != k.instance {
			refuse(protocol.StatusWrongShard, protocol.Failure{
				Shard: shard, Master: w.leaders[shard], Term: w.terms[shard], MapVersion: w.version,
			})
			return
		}
		if w.chance(60) {
			refuse(protocol.StatusUnavailable, protocol.Failure{})
			return
		}
	}
	switch h.Kind {
	case protocol.KindMap:
		answer(w.mapReply())
	case protocol.KindNodeDescribe:
		answer(&protocol.NodeInfo{ID: 7, Config: protocol.NodeConfig{GracePeriod: uint64(worldGrace.Milliseconds())}})
	case protocol.KindWatch, protocol.KindProcessWatch:
		k.openStream(h, refuse, answer)
	case protocol.KindUnwatch:
		var m protocol.Unwatch
		_ = m.DecodeBody(h.Body)
		k.streams = slices.DeleteFunc(k.streams, func(st *modelStream) bool { return st.id == m.WatchID })
		answer(&protocol.Empty{})
	case protocol.KindDescribe:
		k.describe(h, refuse, answer)
	case protocol.KindPing:
		k.send(protocol.KindPong, h.ID, 0, nil)
		homes := map[uint64]bool{}
		for _, s := range w.started {
			if home := homeShard(s.id); s.on == k && !s.ended && w.leaders[home] == k.instance && !homes[home] {
				homes[home] = true
				k.send(protocol.KindPong, h.ID, home, nil)
			}
		}
	case protocol.KindPresentTicket:
		var m protocol.PresentTicket
		_ = m.DecodeBody(h.Body)
		var id, epoch uint64
		_, _ = fmt.Sscanf(string(m.Ticket), "%d %d", &id, &epoch)
		if s := w.sessions[id]; s == nil || s.ended || s.epoch != epoch {
			refuse(protocol.StatusBadSession, protocol.Failure{})
			return
		}
		k.bound[id] = epoch
		answer(&protocol.Empty{})
	case protocol.KindSessionStart:
		var m protocol.SessionStart
		_ = m.DecodeBody(h.Body)
		k.startSession(&m, refuse, answer)
	case protocol.KindSessionAttach:
		var m protocol.SessionAttach
		_ = m.DecodeBody(h.Body)
		s := w.sessions[m.Session]
		switch {
		case s == nil || s.ended:
			refuse(protocol.StatusSessionExpired, protocol.Failure{})
		case m.Epoch < s.epoch: // the same is a repeat
			refuse(protocol.StatusBadSession, protocol.Failure{})
		default:
			w.counts["attached again"]++
			s.epoch = m.Epoch
			k.attach(s)
			answer(s.reply())
		}
	case protocol.KindSessionStop:
		var m protocol.SessionStop
		_ = m.DecodeBody(h.Body)
		s := w.sessions[m.Session]
		switch {
		case s == nil || s.ended:
			refuse(protocol.StatusSessionExpired, protocol.Failure{})
		case m.Epoch != s.epoch:
			refuse(protocol.StatusBadSession, protocol.Failure{})
		default:
			w.end(s, protocol.EndStopped)
			answer(&protocol.Empty{})
		}
	case protocol.KindAcquire:
		var m protocol.Acquire
		_ = m.DecodeBody(h.Body)
		k.request(shard, m.Head, refuse, answer, func(s *modelSession) protocol.Message { return w.acquire(s, &m) })
	case protocol.KindRelease:
		var m protocol.Release
		_ = m.DecodeBody(h.Body)
		k.request(shard, m.Head, refuse, answer, func(s *modelSession) protocol.Message { return w.release(s, &m) })
	}
}

func (w *world) mapReply() *protocol.MapReply {
	m := &protocol.MapReply{Version: w.version, Tiers: []protocol.MapTier{{Buckets: worldBuckets}}}
	for i := range uint64(worldInstances) {
		m.Instances = append(m.Instances, protocol.MapInstance{ID: i + 1, Address: fmt.Sprint("i", i+1)})
	}
	for s := range uint64(worldShards) {
		m.Shards = append(m.Shards, protocol.MapShard{
			ID: s + 1, Master: w.leaders[s+1], Term: w.terms[s+1], Replicas: []uint64{1, 2, 3},
		})
		m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: worldBuckets / worldShards, Shard: s + 1})
	}
	return m
}

func (s *modelSession) reply() *protocol.SessionReply {
	return &protocol.SessionReply{
		Session: s.id, Epoch: s.epoch, Shard: homeShard(s.id), Timeout: uint64(worldTimeout.Milliseconds()),
		Grace: uint64(worldGrace.Milliseconds()), Node: 7, Ticket: fmt.Appendf(nil, "%d %d", s.id, s.epoch),
	}
}

func (k *worldConn) startSession(
	m *protocol.SessionStart, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message),
) {
	w := k.c.w
	bucket := protocol.HomeBucket([protocol.KeyLen]byte(m.CreateID), worldBuckets)
	for _, s := range w.started {
		if s.create == [protocol.KeyLen]byte(m.CreateID) { // the same start
			if s.ended {
				refuse(protocol.StatusSessionExpired, protocol.Failure{})
				return
			}
			k.attach(s)
			answer(s.reply())
			return
		}
	}
	s := &modelSession{
		id: protocol.MakeSessionID(0, uint16(bucket), uint64(len(w.started))+1), epoch: 1, create: [protocol.KeyLen]byte(m.CreateID),
		answers: map[uint64]protocol.Message{},
	}
	w.sessions[s.id] = s
	w.started = append(w.started, s)
	w.counts["started"]++
	k.attach(s)
	answer(s.reply())
}

// attach binds a session to the connection, and no other one.
func (k *worldConn) attach(s *modelSession) {
	w := k.c.w
	if s.on != nil && s.on != k {
		s.on.event(protocol.KindTakenOver, &protocol.TakenOver{Session: s.id, Epoch: s.epoch})
	}
	for _, c := range w.clients {
		for _, other := range c.conns {
			delete(other.bound, s.id)
		}
	}
	k.bound[s.id] = s.epoch
	s.on, s.deadline = k, w.now+worldTimeout
}

// request is a numbered request: it takes effect once.
func (k *worldConn) request(
	shard uint64, head protocol.Head, refuse func(protocol.Status, protocol.Failure), answer func(protocol.Message),
	do func(*modelSession) protocol.Message,
) {
	s := k.c.w.sessions[head.Session]
	switch {
	case s == nil || s.ended:
		refuse(protocol.StatusSessionExpired, protocol.Failure{})
		return
	case k.bound[s.id] != s.epoch:
		refuse(protocol.StatusBadSession, protocol.Failure{})
		return
	}
	s.low = max(s.low, head.Low)
	m := do(s)
	l := k.c.w.log(shard)
	l.applied[k.instance] = l.last() // who answers has applied it
	k.c.w.effects[effect{s.id, head.Seq}] = l.last()
	answer(m)
}

func (w *world) acquire(s *modelSession, m *protocol.Acquire) protocol.Message {
	n := w.names[string(m.Name)]
	if n == nil {
		n = &modelName{}
		w.names[string(m.Name)] = n
	}
	state := func(i int) protocol.Message {
		if i == 0 {
			return &protocol.AcquireReply{State: protocol.Acquired, OrderID: n.queue[0].order}
		}
		return &protocol.AcquireReply{State: protocol.Accepted, OrderID: n.queue[i].order}
	}
	i := slices.IndexFunc(n.queue, func(x modelEntry) bool { return x.s == s })
	switch {
	case i >= 0 && n.queue[i].seq == m.Seq:
		return state(i) // a question
	case s.answers[m.Seq] != nil || m.Seq < s.low: // it was answered, and ended, or was given up
		return &protocol.AcquireReply{State: protocol.NotAcquired}
	case i >= 0: // set again
		n.queue[i].seq = m.Seq
		return state(i)
	}
	s.answers[m.Seq] = &protocol.AcquireReply{State: protocol.NotAcquired}
	if len(n.queue) > 0 && m.Timeout == 0 {
		return &protocol.AcquireReply{State: protocol.NotAcquired}
	}
	w.orders++
	n.queue = append(n.queue, modelEntry{s, m.Seq, w.orders})
	w.holderChanged(string(m.Name))
	return state(len(n.queue) - 1)
}

func (w *world) release(s *modelSession, m *protocol.Release) protocol.Message {
	if was := s.answers[m.Seq]; was != nil {
		return was
	}
	n := w.names[string(m.Name)]
	if m.OrderID != 0 && (n == nil || !slices.ContainsFunc(n.queue, func(x modelEntry) bool { return x.s == s && x.order == m.OrderID })) {
		return &protocol.ReleaseReply{}
	}
	reply := &protocol.ReleaseReply{Released: w.remove(string(m.Name), s, protocol.StatusAborted)}
	s.answers[m.Seq] = reply
	return reply
}

var worldNames = []string{"a", "b", "c", "d"}

// act is what a program does.
func (c *worldClient) act() {
	w := c.w
	if c.start.done && (c.start.r.Err != nil || c.s.err != nil) {
		c.calls, c.leases = nil, map[*Lease]string{}
		if !w.quiet || len(c.e.sessions) == 0 {
			c.begin()
		}
		return
	}
	if !c.start.done {
		return
	}
	if c.way == nil || c.way.Session != c.s {
		c.way = &Way{Waiter: nobody{}, Session: c.s, To: Target{Of: AtName, Node: 7, Name: "a"}}
		c.e.Follow(w.now, c.way)
	}
	if w.quiet { // all leases are given back, so that all waits end
		for _, x := range slices.Clone(c.calls) {
			if x.acquire != nil && x.done && x.lease.Token != 0 && x.lease.over == nil {
				r := &Release{}
				y := &worldCall{name: x.name, r: &r.Request}
				r.Waiter = y
				c.calls = append(c.calls, y)
				c.e.Release(w.now, x.lease, r)
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
		c.calls = append(c.calls, x)
		c.e.Acquire(w.now, c.s, name, x.acquire)
	case w.rng.IntN(3) == 0 && len(c.calls) > 0:
		x := c.calls[w.rng.IntN(len(c.calls))]
		if x.acquire != nil && x.done && x.lease.Token != 0 && x.lease.over == nil {
			r := &Release{}
			y := &worldCall{name: x.name, r: &r.Request}
			r.Waiter = y
			c.calls = append(c.calls, y)
			c.e.Release(w.now, x.lease, r)
		}
	case w.rng.IntN(4) == 0 && len(c.reads) < 5:
		c.read(worldNames[w.rng.IntN(len(worldNames))])
	case w.chance(30) && len(c.calls) > 0:
		if x := c.calls[w.rng.IntN(len(c.calls))]; !x.done {
			w.counts["given up"]++
			c.e.GiveUp(w.now, x.r, errors.New("context ended"))
		}
	case w.chance(1000):
		w.counts["closed"]++
		c.e.CloseSession(w.now, c.s, ErrSessionClosed, &Close{})
	}
	c.calls = slices.DeleteFunc(c.calls, func(x *worldCall) bool {
		return x.done && (x.acquire == nil || x.lease.Token == 0 || x.lease.over != nil)
	})
}

// check: whatever a client relies on, the cluster has for its session.
func (w *world) check() {
	for i, c := range w.clients {
		seen := map[*Request]bool{}
		for _, r := range c.s.openRequests() {
			if r.state == Over {
				w.t.Fatalf("client %d: a request that is over is in the list of its session", i)
			}
			if seen[r] {
				w.t.Fatalf("client %d: a request waits in two places: state %d", i, r.state)
			}
			seen[r] = true
		}
		for _, x := range c.calls {
			if x.acquire == nil || !x.done || x.lease.Token == 0 || x.lease.over != nil || !c.e.Held(w.now, x.lease.Session) {
				continue
			}
			w.counts["relied on"]++
			n := w.names[x.name]
			if n == nil || len(n.queue) == 0 || n.queue[0].order != x.lease.Token {
				w.t.Fatalf("at %s client %d relies on %s with token %d; the cluster has %v", w.now-time.Hour, i, x.name, x.lease.Token, n)
			}
		}
	}
}

// atRest: every call is answered, and nothing is left, here or there.
func (w *world) atRest() {
	for i, c := range w.clients {
		for _, x := range c.calls {
			if !x.done {
				w.t.Errorf("client %d: a call for %s is not answered: state %d", i, x.name, x.r.state)
			}
		}
		if x := c.way; x.ended == nil && (x.state != Accepted || x.att != c.s.attachment || x.on.over) {
			w.t.Errorf("client %d: a way is in state %d at rest", i, x.state)
		}
		c.e.Unfollow(w.now, c.way)
		if open := c.s.openRequests(); len(open) > 0 {
			w.t.Errorf("client %d has %d open requests at rest", i, len(open))
		}
		if len(c.reads) > 0 {
			w.t.Errorf("client %d: %d reads are not answered", i, len(c.reads))
		}
		for _, x := range c.watches {
			x.atRest()
		}
		c.s.names.each(func(n *name) { w.t.Errorf("client %d: the name %s is in use at rest: %+v", i, n.key, n) })
		if low := c.s.numbers; low.low != low.next {
			w.t.Errorf("client %d: the number %d is open at rest", i, low.low)
		}
	}
	for _, name := range worldNames {
		if n := w.names[name]; n != nil && len(n.queue) > 0 {
			w.t.Errorf("%s is in use at rest: %v", name, n.queue)
		}
	}
}

// TestWorld runs engines in worlds of faults. A seed is a run.
func TestWorld(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 1500 {
				w.step()
			}
			w.quiet = true
			for range 1000 {
				w.step()
			}
			w.atRest()
			for what, n := range w.counts {
				counts[what] += n
			}
		})
	}
	for _, what := range []string{
		"leader moved", "ended", "connection lost", "hung", "attached again", "started", "given up", "closed", "relied on",
		"stream opened", "stream cut", "stream event", "watch event", "watch interrupted", "snapshot of two pages",
		"read", "read of a replica", "strict read",
	} {
		if counts[what] < 100 {
			t.Errorf("%s happened %d times: the worlds do not try it", what, counts[what])
		}
	}
	t.Log(counts)
}
