package ratelimit

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	core "github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// The simulation has the server's core and the client's machine in one world of true time. Clocks
// run at rates of their own, messages are lost and late, leaders change, and those that were deposed
// go on without knowing it, buckets move, resources are deleted and made again, clients are stopped,
// killed and replaced by other processes. What clients ask waits for a read barrier, which all requests of the moment share. A
// meter with one clock checks the promise at every resource and for every window: it is a bucket
// with the rate and burst of the resource from which all that clients admit is taken. An oracle
// checks that those who call get what they are to have, once nothing has changed for a second.

// drift is how far each clock is off at most; the meter grants both ends of it.
const drift = 0.02

type simulation struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	still   bool    // nothing happens by itself
	quiet   bool    // nothing is lost or late by more than a few ms, and nobody is stopped
	now     float64 // true time, in ms
	tree    *core.Tree
	version uint64
	leader  *simLeader
	deposed []*simLeader // they do not know
	log     float64      // log time of the latest leader
	clients []*simClient
	flying  []simMessage
	meters  map[string]*meter
	leaves  []string
	deleted []simResource // to be made again, parents first

	session uint64
	origins uint64

	admitted, remote, changes int
	deletions                 int
	unproved, late            int // barriers that failed; those that ended after their leader was deposed
}

// simLeader is a leader with its own clock: log time as of the time that it took over.
type simLeader struct {
	at     core.Leadership
	leases *core.Leases
	rate   float64
	began  float64
	log    float64

	tree    *core.Tree // what it has applied: of one that was deposed, what it had then
	version uint64
	ends    float64 // when it learns that it was deposed
	waiting []simMessage
	held    map[uint64]simMessage // acquires, by origin
	barrier *simBarrier
	again   float64 // a barrier that failed is tried again then, unless it is asked for
}

// simResource is a resource that is made again at a time.
type simResource struct {
	path   string
	config protocol.LimitConfig
	at     float64
}

// barrierTime is how long a read barrier takes at most, in ms.
const barrierTime = 4

// simBarrier is a read barrier of a leader. It proves that there was no other leader when it began,
// because there was none at a moment after that.
type simBarrier struct {
	messages   []simMessage
	log        uint64  // when it began
	proof      float64 // the moment
	asked, led bool
	ends       float64
}

func (l *simLeader) logTime(now float64) uint64 { return uint64(l.log + (now-l.began)*l.rate) }

// simClient is a process with its own clock.
type simClient struct {
	session, epoch uint64
	revision       uint64  // of the tree, as it was told
	rate, offset   float64 // of its clock
	stopped        float64 // until then
	dead           bool
	m              *machine
	p              *part
	callers        []*simCaller
	leader         *simLeader // whom it asks
	hears          float64    // when it hears of the latest leader
	got            float64    // amount that it was admitted since it began
}

// simCaller is what a process calls for at a leaf, or at several together.
type simCaller struct {
	leaves  []*leaf
	amount  uint64
	demand  float64 // thousandths of a unit per second; 0: without bound
	waits   bool    // its calls wait; others are refused
	waiting []simCall
	next    float64

	patience float64 // ms after which its calls give up; 0: never
	most     int     // of its calls wait at a time; 0: three
}

// simCall is a call that waits.
type simCall struct {
	*call
	since float64
}

func (c *simClient) clock(now float64) int64 { return int64((c.offset + now*c.rate) * 1e6) }

type simMessage struct {
	at    float64
	c     *simClient
	to    *simLeader
	epoch uint64
	do    *action
	reply protocol.Message
	err   error
	back  bool
}

// meter is a bucket that starts full. What is admitted is taken at the true time at which a client
// uses it. Invariant: its level is never below zero, but for what comes in in a millisecond: the
// server's times are whole ones. A client's bucket rounds to thousandths.
type meter struct{ rate, burst, level, at float64 }

func (m *meter) take(now, amount float64) bool {
	m.level = min(m.burst, m.level+(now-m.at)*m.rate)
	m.at = now
	m.level -= amount
	return m.level >= -10-m.rate
}

// newSimulation is a world with a random tree, and with programs.
func newSimulation(t *testing.T, seed uint64) *simulation {
	r := rand.New(rand.NewPCG(seed, 3))
	rate := uint64(2000 + r.IntN(1<<(12+r.IntN(10))))
	root := protocol.LimitConfig{Rate: rate, Lease: 500 + r.Uint64N(2500), Burst: 200 + r.Uint64N(2000)}
	var children []protocol.LimitConfig
	for range r.IntN(4) {
		own := rate / (1 + r.Uint64N(4))
		children = append(children, protocol.LimitConfig{Rate: own, Weight: 1 + r.Uint32N(4), Min: min(rate/10, own)})
	}
	x := newWorld(t, seed, root, children...)
	x.quiet, x.r = false, r
	for range 1 + r.IntN(6) {
		x.start()
	}
	return x
}

// newWorld is one with a tree, and nobody who takes part.
func newWorld(t *testing.T, seed uint64, root protocol.LimitConfig, children ...protocol.LimitConfig) *simulation {
	x := &simulation{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 4)), quiet: true, now: 1000, log: 1000,
		meters: map[string]*meter{}}
	tree, err := core.New(1000, 0, "api", root)
	if err != nil {
		t.Fatal(err)
	}
	x.tree = tree
	for i := range children {
		if _, err := tree.Create(1000, 0, childPath(i), children[i]); err != nil {
			t.Fatal(err)
		}
	}
	x.observe()
	return x
}

// observe has a meter for each resource of the tree, and a leader.
func (x *simulation) observe() {
	inner := map[string]bool{}
	x.tree.Resources("", func(path string, _ uint64, _ *protocol.LimitConfig) bool {
		inner[parent(path)] = true
		return true
	})
	rates := map[string]uint64{"": protocol.MaxLimitRate}
	x.tree.Resources("", func(path string, _ uint64, c *protocol.LimitConfig) bool {
		r := rates[parent(path)]
		if !c.Unlimited {
			r = min(c.Rate, r)
		}
		rates[path] = r
		burst := max(float64(r)*float64(c.BurstOrDefault())/1000, 1000)
		x.meters[path] = &meter{rate: float64(r) / 1000 * (1 + 2*drift), burst: burst, level: burst, at: x.now}
		if !inner[path] {
			x.leaves = append(x.leaves, path)
		}
		return true
	})
	x.elect(false)
}

func childPath(i int) string { return fmt.Sprintf("api/%04d", i) }

func (x *simulation) skew() float64 { return 1 - drift/2 + drift*x.r.Float64() }

// start starts a process with a session of its own.
func (x *simulation) start() { x.restart(x.add()) }

func (x *simulation) add() *simClient {
	x.session++
	c := &simClient{session: x.session}
	x.clients = append(x.clients, c)
	return c
}

// restart has another process take over the session. It opens all leaves, and calls some.
func (x *simulation) restart(c *simClient) {
	leaves := x.begin(c, x.leaves...)
	if n := len(x.leaves); n > 1 && x.r.IntN(3) == 0 { // it needs two together for each call
		k := x.r.IntN(n)
		c.callers = append(c.callers, x.caller(leaves[k], leaves[(k+1)%n]))
	}
	for _, l := range leaves {
		if x.r.IntN(3) > 0 {
			c.callers = append(c.callers, x.caller(l))
		}
	}
}

// begin begins a process of a session, which opens leaves.
func (x *simulation) begin(c *simClient, paths ...string) (leaves []*leaf) {
	c.epoch++
	c.revision = 0
	c.rate, c.offset, c.stopped = x.skew(), x.r.Float64()*1e6, 0
	c.m, c.p, c.callers = &machine{}, newPart("api"), nil
	c.m.parts = append(c.m.parts, c.p)
	at := c.clock(x.now)
	for _, path := range paths {
		leaves = append(leaves, c.m.open(at, c.p, path))
	}
	c.m.attached(at, c.p, c.session, 1)
	return leaves
}

func (x *simulation) caller(leaves ...*leaf) *simCaller {
	q := &simCaller{leaves: leaves, amount: 1000 * (1 + x.r.Uint64N(3)), waits: x.r.IntN(3) > 0}
	for _, l := range leaves {
		q.amount = min(q.amount, uint64(x.meters[l.path].burst)/1000*1000)
	}
	if x.r.IntN(2) == 0 {
		q.demand = float64(x.tree.NumResources()) * x.r.Float64() * x.meters["api"].rate * 1000
		if x.r.IntN(3) == 0 {
			q.demand = float64(q.amount) * (0.3 + x.r.Float64()*5)
		}
	}
	q.waits = q.waits || len(leaves) > 1
	return q
}

// elect begins another leadership. It knows nothing of leases.
func (x *simulation) elect(move bool) {
	at := core.Leadership{Bucket: 1}
	if l := x.leader; l != nil {
		at = l.at
		l.tree, l.ends = x.clone(), x.now+x.r.Float64()*6000
		x.deposed = append(x.deposed, l)
		x.log = max(x.log, x.leader.log+(x.now-x.leader.began)*x.leader.rate)
	}
	if at.Epoch++; move {
		at = core.Leadership{Bucket: at.Bucket + 1, Epoch: 1}
	}
	x.leader = &simLeader{at: at, rate: x.skew(), began: x.now, log: x.log, tree: x.tree, version: x.version, held: map[uint64]simMessage{}}
	x.leader.leases = core.NewLeases(at, uint64(x.log)+1)
	x.changes++
	for _, c := range x.clients {
		if c.hears = x.now + x.r.Float64()*50; x.r.IntN(3) == 0 && !x.quiet {
			c.hears += x.r.Float64() * 6000
		}
	}
}

// clone is the tree as it is, for a leader that will apply no more.
func (x *simulation) clone() *core.Tree {
	tree, err := core.Decode(x.tree.Append(nil))
	if err != nil {
		x.t.Fatal(err)
	}
	return tree
}

func (x *simulation) admit(c *simClient, path string, amount uint64) {
	x.admitted++
	c.got += float64(amount)
	for p := path; p != ""; p = parent(p) {
		if !x.meters[p].take(x.now, float64(amount)) {
			x.t.Fatalf("seed %d at %.0f: more is admitted at %s than its rate and burst: %.0f thousandths", x.seed, x.now, p, x.meters[p].level)
		}
	}
}

func parent(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return ""
}

func (x *simulation) delay() float64 {
	if x.quiet {
		return 0.2 + x.r.Float64()*2
	}
	if x.r.IntN(12) == 0 {
		return x.r.Float64() * 4000
	}
	return x.r.Float64() * 8
}

// happen has something happen now and then.
func (x *simulation) happen() {
	if x.still {
		return
	}
	n := x.r.IntN(4000)
	switch {
	case n >= 8 && n < 40:
		x.callOtherwise(x.clients[x.r.IntN(len(x.clients))])
	case n >= 40 && n < 43 && len(x.deleted) == 0:
		x.delete()
	case n < 4:
		x.elect(x.r.IntN(3) == 0)
	case n < 6:
		c := x.clients[x.r.IntN(len(x.clients))]
		c.stopped = x.now + x.r.Float64()*5000
	case n < 8:
		c := x.clients[x.r.IntN(len(x.clients))]
		old := *c // the former process goes on with what it has
		x.restart(c)
		old.dead = true
		if len(x.clients) < 10 {
			x.clients = append(x.clients, &old)
		}
	}
}

// delete deletes a leaf, or all resources. They are made again after a while.
func (x *simulation) delete() {
	paths := []string{x.leaves[x.r.IntN(len(x.leaves))]}
	if x.r.IntN(2) == 0 {
		paths = nil
		x.tree.Resources("", func(path string, _ uint64, _ *protocol.LimitConfig) bool {
			paths = append(paths, path)
			return true
		})
	}
	at := x.now + x.r.Float64()*float64(int(1)<<x.r.IntN(13))
	for _, path := range slices.Backward(paths) {
		c, _, _ := x.tree.Resource(path)
		x.deleted = slices.Insert(x.deleted, 0, simResource{path, c, at})
		if err := x.tree.Delete(x.leader.logTime(x.now), path, 0); err != nil {
			x.t.Fatal(err)
		}
	}
	x.version++
	x.deletions++
}

// create makes again what was deleted. A forgotten tree becomes another one, whose leader may
// have forgotten its leases.
func (x *simulation) create() {
	if len(x.deleted) == 0 || x.now < x.deleted[0].at {
		return
	}
	l := x.leader
	at, former := l.logTime(x.now), x.tree.Revision()
	list := x.deleted
	x.deleted = nil
	if x.tree.Forget(at) {
		tree, err := core.New(at, former, list[0].path, list[0].config)
		if err != nil {
			x.t.Fatal(err)
		}
		x.tree, l.tree, list = tree, tree, list[1:]
		if x.r.IntN(2) == 0 {
			l.leases = core.NewLeases(l.at, l.logTime(l.began)+1)
			x.unhold(l)
		}
	}
	for _, r := range list {
		if _, err := x.tree.Create(at, former, r.path, r.config); err != nil {
			x.t.Fatal(err)
		}
	}
	x.version++
}

// callOtherwise has one of a process's callers want something else.
func (x *simulation) callOtherwise(c *simClient) {
	if len(c.callers) == 0 {
		return
	}
	q := c.callers[x.r.IntN(len(c.callers))]
	former := *q
	*q = *x.caller(q.leaves...)
	q.waiting = former.waiting
}

// kill ends a process; the server does not know for a while.
func (x *simulation) kill(c *simClient) {
	c.dead = true
	c.callers = nil
}

func (x *simulation) step() {
	x.now += x.r.Float64() * 4
	x.happen()
	x.create()
	for i := 0; i < len(x.flying); i++ {
		if f := x.flying[i]; f.at <= x.now {
			x.flying[i] = x.flying[len(x.flying)-1]
			x.flying = x.flying[:len(x.flying)-1]
			i--
			x.arrive(f)
		}
	}
	x.deposed = slices.DeleteFunc(x.deposed, func(l *simLeader) bool {
		x.serve(l)
		if x.now < l.ends {
			return false
		}
		x.unhold(l)
		return true
	})
	x.leader.version = x.version
	x.serve(x.leader)
	x.leader.leases.Tick(x.leader.logTime(x.now), x.tree, x.version, func(s uint64) {
		for _, c := range x.clients {
			if c.session == s && !c.dead && x.now >= c.stopped {
				changed := c.revision > 0 && x.tree.Revision() > c.revision
				c.revision = x.tree.Revision()
				c.m.notice(c.clock(x.now), c.p, changed)
			}
		}
	})
	for _, c := range x.clients {
		if x.now >= c.stopped && (c.leader == nil || x.now >= c.hears && c.leader != x.leader) {
			c.leader = x.leader
			c.m.notice(c.clock(x.now), c.p, true) // its stream begins again
		}
		if x.now >= c.stopped {
			x.use(c)
		}
	}
}

// use has a client's callers take what they can, and sends what its machine wants sent.
func (x *simulation) use(c *simClient) {
	at := c.clock(x.now)
	if !c.dead {
		c.m.tick(at)
	}
	for _, q := range c.callers {
		x.call(c, q, at)
	}
	out, ended := c.m.take()
	for _, ended := range ended {
		if ended.err == nil {
			for _, l := range ended.leaves {
				x.admit(c, l.path, ended.amount)
			}
		}
	}
	if c.dead {
		return
	}
	for i := range out {
		x.flying = append(x.flying, simMessage{at: x.now + x.delay(), c: c, to: c.leader, epoch: c.epoch, do: &out[i]})
	}
}

// call has a caller call.
func (x *simulation) call(c *simClient, q *simCaller, at int64) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w simCall) bool {
		if !w.finished && q.patience > 0 && x.now >= w.since+q.patience {
			c.m.cancel(at, w.call, context.DeadlineExceeded)
		}
		return w.finished
	})
	for range 200 {
		switch {
		case q.waits && len(q.waiting) >= cmp.Or(q.most, 3), q.demand > 0 && x.now < q.next:
			return
		case q.demand > 0:
			q.next = max(q.next, x.now-1000) + float64(q.amount)/q.demand*1000
		}
		if !q.waits {
			l := q.leaves[0]
			l.attempt(q.amount)
			if len(q.leaves) == 1 && l.queued.Load() == 0 && l.decide(at, q.amount) {
				l.allowed.Add(q.amount)
				x.admit(c, l.path, q.amount)
				if l.bucket.Load().rate == 0 && !l.poked.Swap(true) {
					c.m.poke(at, l)
				}
				continue
			}
			l.refuse(q.amount)
			if !l.poked.Swap(true) {
				c.m.poke(at, l)
			}
			if q.demand == 0 {
				return
			}
			continue
		}
		w := &call{leaves: q.leaves, amount: q.amount}
		for _, l := range q.leaves {
			l.attempt(q.amount)
		}
		if l := q.leaves[0]; len(q.leaves) == 1 && l.queued.Load() == 0 && l.decide(at, q.amount) {
			l.allowed.Add(q.amount)
			x.admit(c, l.path, q.amount)
			continue
		}
		c.m.enqueue(at, w)
		q.waiting = append(q.waiting, simCall{w, x.now})
	}
}

// arrive is a message at its end.
func (x *simulation) arrive(m simMessage) {
	switch {
	case x.r.IntN(25) == 0 && !x.quiet: // lost, which the sender finds out
		if !m.back {
			m.back, m.err, m.at = true, protocol.Errorf(protocol.StatusUnavailable, "lost"), x.now+250
			x.flying = append(x.flying, m)
		} else if m.epoch == m.c.epoch && !m.c.dead {
			m.c.m.answered(m.c.clock(x.now), m.do, nil, protocol.Errorf(protocol.StatusUnavailable, "lost"))
		}
	case m.back && x.now < m.c.stopped:
		m.at = m.c.stopped
		x.flying = append(x.flying, m)
	case m.back:
		if m.epoch == m.c.epoch && !m.c.dead {
			m.c.m.answered(m.c.clock(x.now), m.do, m.reply, m.err)
		}
	case m.to == x.leader || x.now < m.to.ends:
		m.to.waiting = append(m.to.waiting, m)
	default: // it leads no more, and says so
		m.back, m.err, m.at = true, protocol.Errorf(protocol.StatusUnavailable, "led elsewhere"), x.now+x.delay()
		m.c.hears = min(m.c.hears, x.now)
		x.flying = append(x.flying, m)
	}
}

// serve ends a leader's barrier, and begins one for what has come meanwhile.
func (x *simulation) serve(l *simLeader) {
	if b := l.barrier; b != nil {
		if !b.asked && x.now >= b.proof {
			b.asked, b.led = true, l == x.leader
			if b.led && x.r.IntN(400) == 0 && !x.quiet { // the answers will be of a leader that was deposed
				x.elect(false)
			}
		}
		if x.now < b.ends {
			return
		}
		if l.barrier = nil; !b.led {
			x.unproved++
		} else if l != x.leader {
			x.late++
		}
		for _, m := range b.messages {
			if m.back = true; !b.led {
				m.c.hears = min(m.c.hears, x.now)
				m.err = protocol.Errorf(protocol.StatusUnavailable, "not confirmed")
			} else {
				m.reply, m.err = x.answer(l, b.log, m)
				if m.reply == nil && m.err == nil {
					continue // it is held
				}
			}
			m.at = x.now + x.delay()
			x.flying = append(x.flying, m)
		}
		if b.led {
			x.admitHeld(l, b.log)
		} else {
			l.again = x.now + 10
		}
	}
	if at, ok := l.leases.AdmitAt(); len(l.waiting) > 0 || ok && at <= l.logTime(x.now) && x.now >= l.again {
		took := x.r.Float64() * barrierTime
		l.barrier = &simBarrier{messages: l.waiting, log: l.logTime(x.now), proof: x.now + took*x.r.Float64(), ends: x.now + took}
		l.waiting = nil
	}
}

// admitHeld answers the calls that a leader admits behind a barrier.
func (x *simulation) admitHeld(l *simLeader, log uint64) {
	l.leases.Admit(log, l.tree, l.version, func(a *core.Answer) bool {
		m := l.held[a.To.Request]
		delete(l.held, a.To.Request)
		if m.back, m.at = true, x.now+x.delay(); a.Err != nil {
			m.err = a.Err
		} else {
			r := &protocol.LimitAcquireReply{Retry: a.Retry, BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch, Until: a.Until}
			if m.reply = r; a.Granted {
				r.Granted = true
				x.remote++
			}
		}
		x.flying = append(x.flying, m)
		return !m.c.dead // its connection was closed with it
	})
	if err := l.leases.Check(); err != nil {
		x.t.Fatal(err)
	}
}

// unhold answers what a leader holds: it leads no more.
func (x *simulation) unhold(l *simLeader) {
	for _, k := range slices.Sorted(maps.Keys(l.held)) {
		m := l.held[k]
		m.back, m.err, m.at = true, protocol.Errorf(protocol.StatusUnavailable, "led elsewhere"), x.now+x.delay()
		x.flying = append(x.flying, m)
	}
	clear(l.held)
}

// statementOf writes a lease as a statement, and leaseOf reads it. In here nobody forges any.
func statementOf(g *core.Lease) (b []byte) {
	if g.Number.Count == 0 {
		return nil
	}
	for _, v := range [...]uint64{g.Number.Bucket, g.Number.Epoch, g.Number.Count, g.Rate, g.Burst, g.End} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func leaseOf(b []byte) (g core.Lease) {
	if len(b) == 0 {
		return g
	}
	for i, v := range [...]*uint64{&g.Number.Bucket, &g.Number.Epoch, &g.Number.Count, &g.Rate, &g.Burst, &g.End} {
		*v = binary.BigEndian.Uint64(b[8*i:])
	}
	return g
}

// answer is a leader's after a barrier, as the server makes it.
func (x *simulation) answer(l *simLeader, log uint64, m simMessage) (reply protocol.Message, err error) {
	switch q := m.do.msg.(type) {
	case *protocol.LimitJoin:
		if l != x.leader {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "led elsewhere")
		}
		x.version++
		return &protocol.Empty{}, x.tree.Join(log, m.c.session, m.epoch, q.Again)
	case *protocol.LimitAcquire:
		ask := core.Acquire{Session: m.c.session, Epoch: m.epoch, Seq: q.Seq, Used: q.Used, Amount: q.Amount, Wait: q.Hold, Back: q.Back}
		for i := range q.Leaves {
			ask.Leaves, ask.Demands = append(ask.Leaves, string(q.Leaves[i].Path)), append(ask.Demands, q.Leaves[i].Demand)
		}
		x.origins++
		ask.From.Request = x.origins
		if err := l.leases.Acquire(log, l.tree, l.version, &ask); err != nil {
			return nil, err
		}
		l.held[x.origins] = m
		return nil, nil
	case *protocol.LimitRefresh:
		ask := core.Refresh{Session: m.c.session, Epoch: m.epoch, Seq: q.Seq, Leadership: core.Leadership{Bucket: q.BucketEpoch, Epoch: q.LeaderEpoch}, Open: q.Open}
		for i := range q.Leaves {
			f := &q.Leaves[i]
			ask.Leaves = append(ask.Leaves, core.LeafRefresh{Leaf: string(f.Path), Demand: f.Demand, Waiting: f.Waiting, Need: f.Need, Elsewhere: f.Elsewhere, Denied: f.Denied, Held: leaseOf(f.Statement), Presented: len(f.Statement) > 0, Closed: f.Closed})
		}
		var a core.Reply
		if err := l.leases.Refresh(log, l.tree, l.version, &ask, &a); err != nil {
			return nil, err
		}
		if err := l.leases.Check(); err != nil {
			x.t.Fatal(err)
		}
		r := &protocol.LimitRefreshReply{BucketEpoch: a.Leadership.Bucket, LeaderEpoch: a.Leadership.Epoch,
			Length: a.Length, Again: a.Again, Clock: a.Clock}
		for i := range a.Leaves {
			f := &a.Leaves[i]
			r.Leaves = append(r.Leaves, protocol.LimitLease{State: protocol.LimitState(f.State), Rate: f.Lease.Rate, Burst: f.Lease.Burst,
				Length: f.Length, Level: f.Level, Statement: statementOf(&f.Lease), Most: f.Most, Limit: f.Limit})
		}
		return r, nil
	}
	return &protocol.Empty{}, nil
}

// TestSimulation: the promise holds on true time, at every resource, whatever happens.
func TestSimulation(t *testing.T) {
	seeds, admitted, remote, changes, deletions, unproved, late := form.Of[uint64](60, 1_000), 0, 0, 0, 0, 0, 0
	for seed := range seeds {
		x := newSimulation(t, seed)
		for range 8000 {
			x.step()
		}
		admitted, remote, changes = admitted+x.admitted, remote+x.remote, changes+x.changes
		deletions, unproved, late = deletions+x.deletions, unproved+x.unproved, late+x.late
	}
	t.Logf("%d calls admitted, %d of them by the server, in %d leaderships, with %d deletions; %d barriers of leaders that were deposed failed, %d were in time",
		admitted, remote, changes, deletions, unproved, late)
	if admitted < 200*int(seeds) || remote == 0 || changes < 2*int(seeds) || deletions < 2*int(seeds) || unproved == 0 || late == 0 {
		t.Error("too little happened")
	}
}
