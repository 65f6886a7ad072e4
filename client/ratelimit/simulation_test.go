package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	core "github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// The simulation has the server's core and the client's decisions in one world of true time. Clocks
// run at rates of their own, messages are lost and late, leaders change, and those that were deposed
// go on without knowing it, buckets move, clients are stopped and replaced by other processes. What
// clients ask waits for a read barrier, which all requests of the moment share. A meter with one
// clock checks the promise at every resource and for every window: it is a bucket with the rate and
// burst of the resource from which all that clients admit is taken.

// drift is how far each clock is off at most; the meter grants both ends of it.
const drift = 0.02

type simulation struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
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

	admitted, remote, changes int
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
	barrier *simBarrier
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
	rate, offset   float64 // of its clock
	stopped        float64 // until then
	seq            uint64
	leadership     core.Leadership
	leaves         map[string]*leaf
	leases         map[string]core.Lease
	next           float64
	acquire        float64
	mean           bool       // it takes all it can
	leader         *simLeader // whom it asks
	hears          float64    // when it hears of the latest leader
}

func (c *simClient) clock(now float64) int64 { return int64((c.offset + now*c.rate) * 1e6) }

type simMessage struct {
	at     float64
	c      *simClient
	to     *simLeader
	epoch  uint64
	ask    core.Refresh
	answer *core.Reply
	sent   int64
	leaf   string // of an acquire
	amount uint64
}

// meter is a bucket that starts full. Invariant: its level is never below zero, but for a unit and
// what comes in in a few milliseconds: the server's times are whole ones, and it acquires as of when a
// barrier began.
type meter struct{ rate, burst, level, at float64 }

func (m *meter) take(now, amount float64) bool {
	m.level = min(m.burst, m.level+(now-m.at)*m.rate)
	m.at = now
	m.level -= amount
	return m.level >= -1000-(2+barrierTime)*m.rate
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	x := &simulation{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 3)), now: 1000, log: 1000, meters: map[string]*meter{}}
	rate := uint64(2000 + x.r.IntN(1<<(12+x.r.IntN(10))))
	tree, err := core.New(1000, 0, "api", protocol.LimitConfig{Rate: rate, Lease: 500 + x.r.Uint64N(2500), Burst: 200 + x.r.Uint64N(2000)})
	if err != nil {
		t.Fatal(err)
	}
	x.tree = tree
	for i := range x.r.IntN(4) {
		_, err := tree.Create(1000, 0, fmt.Sprintf("api/%c", 'a'+i),
			protocol.LimitConfig{Rate: rate / (1 + x.r.Uint64N(4)), Weight: 1 + x.r.Uint32N(4), Min: rate / 10})
		if err != nil {
			t.Fatal(err)
		}
	}
	tree.Resources("", func(path string, _ uint64, c *protocol.LimitConfig) bool {
		r := min(c.Rate, rate)
		burst := max(float64(r)*float64(c.BurstOrDefault())/1000, 1000)
		x.meters[path] = &meter{rate: float64(r) / 1000 * (1 + 2*drift), burst: burst, level: burst, at: x.now}
		if path != "api" || tree.NumResources() == 1 {
			x.leaves = append(x.leaves, path)
		}
		return true
	})
	for i := range 1 + x.r.IntN(6) {
		c := &simClient{session: uint64(i + 1), mean: x.r.IntN(3) > 0}
		x.clients = append(x.clients, c)
		x.restart(c)
	}
	x.elect(false)
	return x
}

func (x *simulation) skew() float64 { return 1 - drift/2 + drift*x.r.Float64() }

// restart has another process take over the session.
func (x *simulation) restart(c *simClient) {
	c.epoch++
	c.rate, c.offset, c.seq, c.leadership = x.skew(), x.r.Float64()*1e6, 0, core.Leadership{}
	c.leaves, c.leases, c.next, c.stopped = map[string]*leaf{}, map[string]core.Lease{}, x.now, 0
	for _, path := range x.leaves {
		c.leaves[path] = newLeaf(path)
	}
	at := uint64(x.log)
	if x.leader != nil {
		at = x.leader.logTime(x.now)
	}
	if err := x.tree.Join(at, c.session, c.epoch, false); err != nil {
		x.t.Fatal(err)
	}
	x.version++
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
		at = core.Leadership{Bucket: at.Bucket + 1}
	}
	x.leader = &simLeader{at: at, rate: x.skew(), began: x.now, log: x.log, tree: x.tree, version: x.version}
	x.leader.leases = core.NewLeases(at, uint64(x.log)+1)
	x.changes++
	for _, c := range x.clients {
		if c.hears = x.now + x.r.Float64()*50; x.r.IntN(3) == 0 {
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

func (x *simulation) admit(path string, amount uint64, at float64) {
	x.admitted++
	for p := path; p != ""; p = parent(p) {
		if !x.meters[p].take(max(at, x.meters[p].at), float64(amount)) {
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
	if x.r.IntN(12) == 0 {
		return x.r.Float64() * 4000
	}
	return x.r.Float64() * 8
}

func (x *simulation) step() {
	x.now += x.r.Float64() * 4
	switch n := x.r.IntN(4000); {
	case n < 4:
		x.elect(x.r.IntN(3) == 0)
	case n < 6:
		c := x.clients[x.r.IntN(len(x.clients))]
		c.stopped = x.now + x.r.Float64()*5000
	case n < 8:
		old := *x.clients[x.r.IntN(len(x.clients))] // the former process goes on with what it has
		x.restart(x.clients[old.session-1])
		old.next = 1e18
		if len(x.clients) < 10 {
			x.clients = append(x.clients, &old)
		}
	}
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
		return x.now >= l.ends
	})
	x.leader.version = x.version
	x.serve(x.leader)
	x.leader.leases.Tick(x.leader.logTime(x.now), x.tree, x.version, func(s uint64) { x.clients[s-1].next = x.now })
	for _, c := range x.clients {
		if c.leader == nil || x.now >= c.hears {
			c.leader = x.leader
		}
		if x.now >= c.stopped {
			x.use(c)
			if x.now >= c.next {
				x.refresh(c)
			}
		}
	}
}

// use has a client's callers take what they can.
func (x *simulation) use(c *simClient) {
	at := c.clock(x.now)
	for _, path := range x.leaves {
		l := c.leaves[path]
		for range 3 {
			amount := 1000 * (1 + x.r.Uint64N(3))
			if !c.mean && x.r.IntN(20) > 0 {
				break
			}
			l.attempt(amount)
			if l.decide(at, amount) {
				x.admit(path, amount, x.now)
			} else if l.remote.Load() && x.now >= c.acquire && c.next < 1e18 {
				c.acquire = x.now + 50
				x.flying = append(x.flying, simMessage{at: x.now + x.delay(), c: c, to: c.leader, epoch: c.epoch, leaf: path, amount: 1000})
			}
		}
	}
}

func (x *simulation) refresh(c *simClient) {
	c.seq++
	c.next = x.now + 200
	m := simMessage{at: x.now + x.delay(), c: c, to: c.leader, epoch: c.epoch, sent: c.clock(x.now)}
	m.ask = core.Refresh{Session: c.session, Epoch: c.epoch, Seq: c.seq, Leadership: c.leadership}
	for _, path := range x.leaves {
		l := c.leaves[path]
		f := core.LeafRefresh{Leaf: path, Demand: 1000, Need: l.need.Swap(0)}
		if c.mean {
			f.Waiting = 1000
		}
		if g, ok := c.leases[path]; ok && c.clock(x.now) < l.bucket.Load().until.Load() {
			f.Held, f.Presented = g, true
		}
		m.ask.Leaves = append(m.ask.Leaves, f)
	}
	x.flying = append(x.flying, m)
}

// arrive is a message at its end.
func (x *simulation) arrive(m simMessage) {
	switch {
	case x.r.IntN(25) == 0: // lost
	case m.answer != nil:
		x.take(m)
	case m.to == x.leader || x.now < m.to.ends:
		m.to.waiting = append(m.to.waiting, m)
	}
}

// serve ends a leader's barrier, and begins one for what has come meanwhile.
func (x *simulation) serve(l *simLeader) {
	if b := l.barrier; b != nil {
		if !b.asked && x.now >= b.proof {
			b.asked, b.led = true, l == x.leader
			if b.led && x.r.IntN(200) == 0 { // the answers will be of a leader that was deposed
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
			if !b.led {
				m.c.leader, m.c.next = x.leader, min(m.c.next, x.now+20)
				continue
			}
			x.answer(l, b.log, m)
		}
	}
	if len(l.waiting) > 0 {
		took := x.r.Float64() * barrierTime
		l.barrier = &simBarrier{messages: l.waiting, log: l.logTime(x.now), proof: x.now + took*x.r.Float64(), ends: x.now + took}
		l.waiting = nil
	}
}

// answer is a leader's after a barrier. It may leave much later.
func (x *simulation) answer(l *simLeader, log uint64, m simMessage) {
	if m.leaf != "" {
		retry, err := l.leases.Acquire(log, l.tree, l.version, m.c.session, m.epoch, m.leaf, m.amount, x.r.IntN(2) == 0)
		if err == nil && retry == 0 {
			x.remote++
			x.admit(m.leaf, m.amount, x.now)
		}
		return
	}
	m.answer = new(core.Reply)
	if l.leases.Refresh(log, l.tree, l.version, &m.ask, m.answer) == nil {
		m.at = x.now + x.delay()
		x.flying = append(x.flying, m)
	}
	if err := l.leases.Check(); err != nil {
		x.t.Fatal(err)
	}
}

func (x *simulation) take(m simMessage) {
	c, r := m.c, m.answer
	if m.epoch != c.epoch || m.ask.Seq != c.seq || x.now < c.stopped {
		return // not the answer to its last refresh
	}
	c.leadership = r.Leadership
	at, less := c.clock(x.now), r.Learning
	for i, a := range r.Leaves {
		l := c.leaves[m.ask.Leaves[i].Leaf]
		w := protocol.LimitLease{State: protocol.LimitState(a.State), Rate: a.Lease.Rate, Burst: a.Lease.Burst, Most: a.Most}
		less = less || w.Rate < l.rate || w.Burst < l.burst
		l.install(at, &w, m.sent+int64(r.Length)*1e6/beliefDen*beliefNum)
		c.leases[l.path] = a.Lease
	}
	if c.next = min(c.next, x.now+200); less {
		c.next = x.now
	}
}

// TestSimulation: the promise holds on true time, at every resource, whatever happens.
func TestSimulation(t *testing.T) {
	seeds, admitted, remote, changes, unproved, late := uint64(60), 0, 0, 0, 0, 0
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		x := newSimulation(t, seed)
		for range 6000 {
			x.step()
		}
		admitted, remote, changes = admitted+x.admitted, remote+x.remote, changes+x.changes
		unproved, late = unproved+x.unproved, late+x.late
	}
	t.Logf("%d calls admitted by leases and %d remotely, in %d leaderships; %d barriers of leaders that were deposed failed, %d were in time",
		admitted-remote, remote, changes, unproved, late)
	if admitted < 500*int(seeds) || remote == 0 || changes < 2*int(seeds) || unproved == 0 || late == 0 {
		t.Error("too little happened")
	}
}
