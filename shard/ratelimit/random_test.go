package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// randomRun is a tree with clients whose messages are late, lost and out of order, and with leaders
// that change. Clients are models: they believe a lease for its length from when they sent the
// refresh, in the leader's time. That is longer than a client may, so a lease that ends too early
// at the leader is found.
type randomRun struct {
	t       testing.TB
	seed    uint64
	r       *rand.Rand
	now     uint64
	tree    *Tree
	version uint64
	leases  *Leases
	at      Leadership
	clients []*randomClient
	flying  []flight
	paths   []string
	lowered map[string]uint64 // until when a resource may be counted above its limit
	asked   int
	granted int
}

type randomClient struct {
	session, epoch uint64
	again          bool   // it took part under an earlier epoch
	seq, sent      uint64 // the last refresh
	leadership     Leadership
	held           map[string]belief
	demand         map[string]uint64
	predecessor    map[string]belief // of the process that was attached before
}

type belief struct {
	Lease
	until uint64
}

// flight is a refresh or its answer on the way.
type flight struct {
	client *randomClient
	epoch  uint64
	at     uint64 // when it arrives
	sent   uint64
	ask    *Refresh
	answer *Reply
}

func newRandomRun(t testing.TB, seed uint64) *randomRun {
	x := &randomRun{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 2)), now: 1000, at: Leadership{1, 1 << 16}, lowered: map[string]uint64{}}
	tree, err := New(x.now, 0, "api", x.config("api"))
	if err != nil {
		t.Fatal(err)
	}
	x.tree, x.paths = tree, []string{"api"}
	x.leases = NewLeases(x.at, x.now)
	for range 1 + x.r.IntN(6) {
		x.clients = append(x.clients, &randomClient{session: uint64(len(x.clients) + 1), epoch: 1})
	}
	for _, c := range x.clients {
		x.restart(c)
	}
	for range x.r.IntN(6) {
		x.create()
	}
	return x
}

func (x *randomRun) config(path string) protocol.LimitConfig {
	c := protocol.LimitConfig{Weight: x.r.Uint32N(5), Burst: []uint64{0, 50, 1000, 5000}[x.r.IntN(4)]}
	switch {
	case path == "api":
		c.Rate, c.Lease = 1+x.r.Uint64N(1<<(10+x.r.IntN(24))), []uint64{0, 500, 5000}[x.r.IntN(3)]
	case x.r.IntN(2) > 0:
		c.Unlimited = true
	default:
		c.Rate = 1 + x.r.Uint64N(1<<(10+x.r.IntN(24)))
	}
	if path != "api" && x.r.IntN(3) == 0 {
		if c.Min = x.r.Uint64N(1 << 12); !c.Unlimited {
			c.Min = min(c.Min, c.Rate)
		}
	}
	return c
}

func (x *randomRun) create() {
	path := x.paths[x.r.IntN(len(x.paths))] + fmt.Sprintf("/%c", 'a'+x.r.IntN(4))
	if _, err := x.tree.Create(x.now, 0, path, x.config(path)); err == nil {
		x.paths = append(x.paths, path)
		x.version++
	}
}

// restart is another process of the session: it knows no leases.
func (x *randomRun) restart(c *randomClient) {
	c.predecessor = c.held
	c.held, c.demand, c.seq, c.sent, c.leadership = map[string]belief{}, map[string]uint64{}, 0, 0, Leadership{}
	c.epoch++
	c.again = false
	x.join(c)
}

// attach is the same process under another attach epoch.
func (x *randomRun) attach(c *randomClient) {
	_, c.again = x.tree.Joined(c.session)
	c.epoch++
	x.join(c)
}

func (x *randomRun) join(c *randomClient) {
	if x.tree.Join(x.now, c.session, c.epoch, c.again) == nil {
		x.version++
	}
}

// lower notes that leases of now may be used for a while, although limits are lower.
func (x *randomRun) lower() {
	for _, p := range x.paths {
		x.lowered[p] = x.now + max(x.tree.Lease(), x.tree.formerLease) + 2*computeEvery
	}
}

func (x *randomRun) step() {
	x.now += x.r.Uint64N(1 << x.r.IntN(8))
	c := x.clients[x.r.IntN(len(x.clients))]
	switch n := x.r.IntN(100); {
	case n < 40:
		x.send(c)
	case n < 85 && len(x.flying) > 0:
		x.arrive()
	case n < 90:
		x.leases.Tick(x.now, x.tree, x.version, func(s uint64) { x.send(x.clients[s-1]) })
	case n < 92:
		c.demand[x.paths[x.r.IntN(len(x.paths))]] = x.r.Uint64N(1 << (10 + x.r.IntN(24)))
	case n == 92:
		switch x.r.IntN(4) { // what the next leader must know of
		case 0:
			x.restart(c)
		case 1:
			x.tree.Leave(x.now, c.session)
			x.version++
		}
		if x.at.Epoch++; x.r.IntN(3) == 0 {
			x.at = Leadership{x.at.Bucket + 1, 1 << 16}
		}
		x.leases = NewLeases(x.at, x.now)
	case n == 93 && x.r.IntN(4) == 0:
		x.restart(c)
	case n == 94 && x.r.IntN(4) == 0:
		x.tree.Leave(x.now, c.session)
		x.version++
	case n == 95:
		x.join(c)
		if x.r.IntN(3) == 0 {
			x.attach(c)
		}
	case n == 96:
		x.create()
	case n == 97 && x.r.IntN(4) == 0:
		path := x.paths[x.r.IntN(len(x.paths))]
		x.lower()
		if _, err := x.tree.Alter(x.now, path, 0, x.config(path)); err == nil {
			x.version++
		}
	case n == 98 && x.r.IntN(4) == 0:
		i := x.r.IntN(len(x.paths))
		x.lower()
		if x.paths[i] != "api" && x.tree.Delete(x.now, x.paths[i], 0) == nil {
			x.paths = slices.Delete(x.paths, i, i+1)
			x.version++
		}
	case n == 99:
		tree, err := Decode(x.tree.Append(nil))
		if err != nil {
			x.t.Fatal(err)
		}
		x.tree = tree
	}
}

func (x *randomRun) send(c *randomClient) {
	c.seq++
	c.sent = c.seq
	q := &Refresh{Session: c.session, Epoch: c.epoch, Seq: c.seq, Leadership: c.leadership}
	for _, path := range x.paths {
		if len(q.Leaves) > 0 && x.r.IntN(3) == 0 {
			continue
		}
		f := LeafRefresh{Leaf: path, Demand: c.demand[path]}
		if x.r.IntN(3) == 0 {
			f.Waiting = 1
		}
		if x.r.IntN(20) == 0 {
			f.Need = x.r.Uint64N(1 << 14)
		}
		switch b, ok := c.held[path]; {
		case ok && b.until <= x.now:
			delete(c.held, path)
		case ok:
			f.Held, f.Presented = b.Lease, true
		}
		q.Leaves = append(q.Leaves, f)
	}
	x.flying = append(x.flying, flight{client: c, epoch: c.epoch, at: x.now + x.delay(), sent: x.now, ask: q})
}

func (x *randomRun) delay() uint64 {
	if x.r.IntN(10) == 0 {
		return x.r.Uint64N(6000)
	}
	return x.r.Uint64N(20)
}

func (x *randomRun) arrive() {
	i := 0
	for k := range x.flying {
		if x.flying[k].at < x.flying[i].at {
			i = k
		}
	}
	f := x.flying[i]
	x.flying = slices.Delete(x.flying, i, i+1)
	x.now = max(x.now, f.at)
	if x.r.IntN(20) == 0 {
		return // lost
	}
	if f.answer != nil {
		x.take(f)
		return
	}
	x.asked++
	f.answer = new(Reply)
	if x.leases.Refresh(x.now, x.tree, x.version, f.ask, f.answer) == nil {
		x.granted++
		f.at = x.now + x.delay()
		x.flying = append(x.flying, f)
	}
}

func (x *randomRun) take(f flight) {
	c := f.client
	if c.epoch != f.epoch || f.ask.Seq != c.sent {
		return
	}
	c.leadership = f.answer.Leadership
	for i, a := range f.answer.Leaves {
		path := f.ask.Leaves[i].Leaf
		if delete(c.held, path); a.Lease.Number.Count > 0 {
			c.held[path] = belief{a.Lease, f.sent + a.Length}
		}
	}
}

// check compares what clients believe with what the leader counts, and both with the limits.
func (x *randomRun) check() {
	if err := x.leases.Check(); err != nil {
		x.t.Fatal(err)
	}
	x.leases.Observe(x.now, x.tree, x.version)
	x.leases.expire(x.tree)
	for _, path := range aboveLimit(x.leases) {
		if x.lowered[path] < x.now && !x.leases.learning {
			x.t.Fatalf("seed %d at %d: %s is counted above its limit", x.seed, x.now, path)
		}
	}
	for i := range x.leases.nodes {
		n := &x.leases.nodes[i]
		rate, burst := uint64(0), uint64(0)
		for _, c := range x.clients {
			for _, held := range []map[string]belief{c.held, c.predecessor} {
				for path, b := range held { // a sum
					if b.until > x.now && (path == n.path || len(path) > len(n.path) && path[:len(n.path)+1] == n.path+"/") {
						rate += b.Rate
						burst += b.Burst
					}
				}
			}
		}
		if !x.leases.learning { // its bucket rests until then
			rate += n.ownRate()
		}
		burst += n.bucket.level / 1000
		if (rate > n.rate || burst > n.burst) && x.lowered[n.path] < x.now {
			x.t.Fatalf("seed %d at %d: clients believe in rate %d and burst %d at %s, which has %d and %d", x.seed, x.now, rate, burst, n.path, n.rate, n.burst)
		}
	}
}

// TestInvariant: whatever is lost, late or restarted, clients never believe together in more than
// the limit of any resource.
func TestInvariant(t *testing.T) {
	granted := 0
	for seed := range uint64(300) {
		x := newRandomRun(t, seed)
		for range 600 {
			x.step()
			x.check()
		}
		granted += x.granted
	}
	if granted < 10_000 {
		t.Fatalf("only %d refreshes were answered", granted)
	}
}

// TestConvergence: once demands stay, everybody has what the oracle says, up to what is not worth a
// message.
func TestConvergence(t *testing.T) {
	leased := 0
	for seed := range uint64(200) {
		x := newRandomRun(t, seed+1000)
		leaves := []string{}
		for i := range x.tree.resources {
			if p := x.tree.resources[i].path; !x.tree.hasChildren(p) {
				leaves = append(leaves, p)
			}
		}
		for range 60 {
			x.now += 60
			for _, c := range x.clients {
				c.seq++
				q := Refresh{Session: c.session, Epoch: c.epoch, Seq: c.seq, Leadership: c.leadership}
				for _, leaf := range leaves {
					b, ok := c.held[leaf]
					q.Leaves = append(q.Leaves, LeafRefresh{Leaf: leaf, Demand: maxRate, Held: b.Lease, Presented: ok})
				}
				var r Reply
				if err := x.leases.Refresh(x.now, x.tree, x.version, &q, &r); err != nil {
					t.Fatal(err)
				}
				c.leadership = r.Leadership
				for i, leaf := range leaves {
					c.held[leaf] = belief{r.Leaves[i].Lease, x.now + r.Leaves[i].Length}
				}
			}
		}
		want := oracleShares(x.leases)
		for _, leaf := range leaves {
			for _, c := range x.clients {
				if h := x.leases.bySession[c.session].holding(leaf); h.remote {
					continue
				}
				leased++
				each := want[leaf] / float64(len(x.clients))
				if got := float64(c.held[leaf].Rate); got < each*0.94-10 || got > each*1.06+10 {
					t.Fatalf("seed %d: session %d has rate %.0f at %s; the oracle says %.0f", seed, c.session, got, leaf, each)
				}
			}
		}
	}
	if leased < 200 {
		t.Fatalf("only %d leases were compared", leased)
	}
}

// oracleShares are the rates of all resources when every leaf is wanted without bound.
func oracleShares(l *Leases) map[string]float64 {
	shares := map[string]float64{l.nodes[0].path: float64(l.nodes[0].rate)}
	demand := make([]uint64, len(l.nodes))
	for i := len(l.nodes) - 1; i >= 0; i-- {
		n := &l.nodes[i]
		if len(n.children) == 0 {
			demand[i] = n.rate
		}
		for _, c := range n.children {
			demand[i] = min(demand[i]+demand[c], n.rate)
		}
	}
	for i := range l.nodes {
		n := &l.nodes[i]
		var parts []part
		for _, c := range n.children {
			child := &l.nodes[c]
			parts = append(parts, part{demand: demand[c], guarantee: child.guarantee, weight: child.weight})
		}
		for k, v := range fillSlowly(min(shares[n.path], float64(demand[i])), parts) {
			shares[l.nodes[n.children[k]].path] = v
		}
	}
	return shares
}

// aboveLimit returns the resources whose leases are counted with more than the limit. There are none
// unless a limit was lowered.
func aboveLimit(l *Leases) (paths []string) {
	for i := range l.nodes {
		if n := &l.nodes[i]; n.countedRate > n.rate || n.countedBurst > n.burst {
			paths = append(paths, n.path)
		}
	}
	return paths
}
