package busiest

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/container"
)

const (
	// tracked is how many semaphores a Grants counts. One that gets more than 1 of 256 grants is
	// always among them.
	tracked = 256
	// halfLife is how long a grant takes to count half: a burst is seen within a second, and gone
	// within a minute.
	halfLife = 10 * time.Second
	// lowest is the rate a second below which a semaphore is not among the first: one that was granted
	// once is gone after half a minute.
	lowest = 0.01
	// maxCounted bounds the grants of one log entry that are counted, so that a large entry costs
	// no more than a small one. They stand for the others.
	maxCounted = 32
	// maxScale is how much a new grant may weigh beside one at the origin, before the origin is
	// moved.
	maxScale = 1 << 40
)

// Grants estimates how often the semaphores of a shard are granted, for those that are granted most
// often. It keeps 256 counters, whatever the number of semaphores (the Space-Saving algorithm of
// Metwally, Agrawal and El Abbadi), and weighs grants by their age. Counting allocates nothing once
// the counters are in use. Any goroutine may use it.
type Grants struct {
	mu      sync.Mutex
	entries uint64        // log entries that were counted
	granted uint64        // grants in them, as far as they were counted or stood for
	since   time.Duration // of the first
	origin  time.Duration // when a grant weighed 1
	scale   float64       // the weight of a grant at scaled
	scaled  time.Duration
	n       int // counters in use
	counter [tracked]counter
	heap    container.Heap[*counter] // by weight
	chains  [2 * tracked]uint16      // places in counter, plus 1
}

// counter counts one semaphore.
type counter struct {
	hash      uint64
	node      uint64
	name      []byte
	weight    float64
	inherited float64 // part of weight, inherited from the semaphore that had the counter before
	at, next  uint16  // its place in counter; the next in its chain, plus 1
	place     int32   // in heap
}

func (c *counter) Position() *int32     { return &c.place }
func (c *counter) Before(*counter) bool { return false }

// weigh gives a counter a weight. Bits of positive numbers are in their order.
func (g *Grants) weigh(c *counter, weight float64) {
	c.weight = weight
	g.heap.Set(c, math.Float64bits(weight))
}

// Grant is how often a semaphore is granted.
type Grant struct {
	Node      uint64
	Name      []byte
	PerSecond float64 // over about the last 15 s; at least: grants from before it was counted are left out
}

// Count counts the grants among the changes of one log entry. now is monotonic.
func (g *Grants) Count(now time.Duration, changes []shard.SemaphoreChange) {
	if len(changes) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	step := (len(changes) + maxCounted - 1) / maxCounted
	g.entries++
	first := true
	for i := int(g.entries % uint64(step)); i < len(changes); i += step {
		if c := &changes[i]; c.Kind == protocol.ChangeOwnerAdded {
			if first {
				g.advance(now)
				first = false
			}
			g.granted += uint64(step)
			g.add(c.Node, c.Name, float64(step)*g.scale)
		}
	}
}

// Granted returns about how many grants were counted since the process began, whatever was reset.
func (g *Grants) Granted() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.granted
}

// Reset forgets everything: the shard is led elsewhere.
func (g *Grants) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.heap.Len() > 0 {
		g.heap.Pop()
	}
	g.n = 0
	g.since = 0
	clear(g.chains[:])
}

// advance sets the weight of a grant now. A later grant weighs more, so that the weights of the
// others need not change.
func (g *Grants) advance(now time.Duration) {
	if g.n == 0 {
		g.since, g.origin, g.scaled, g.scale = now, now, now, 1
		return
	}
	if now-g.scaled < halfLife/100 {
		return
	}
	g.scaled, g.scale = now, weightAt(now-g.origin)
	if g.scale > maxScale {
		for i := range g.n {
			c := &g.counter[i]
			c.inherited /= g.scale
			g.weigh(c, c.weight/g.scale)
		}
		g.origin, g.scale = now, 1
	}
}

func weightAt(age time.Duration) float64 { return math.Exp2(float64(age) / float64(halfLife)) }

func (g *Grants) add(node uint64, name []byte, weight float64) {
	hash := xxhash.Sum64(name) ^ bits.RotateLeft64(node*0x9e3779b97f4a7c15, 32)
	chain := &g.chains[hash%uint64(len(g.chains))]
	for at := *chain; at != 0; at = g.counter[at-1].next {
		if c := &g.counter[at-1]; c.hash == hash && c.node == node && string(c.name) == string(name) {
			g.weigh(c, c.weight+weight)
			return
		}
	}
	at, least := uint16(g.n), 0.0
	if g.n < tracked {
		g.n++
	} else {
		c := g.heap.First().Item
		at, least = c.at, c.weight
		g.unchain(at)
	}
	c := &g.counter[at]
	*c = counter{hash: hash, node: node, name: append(c.name[:0], name...), inherited: least, at: at, next: *chain,
		place: c.place}
	*chain = at + 1
	g.weigh(c, least+weight)
}

// unchain takes a counter out of its chain.
func (g *Grants) unchain(at uint16) {
	link := &g.chains[g.counter[at].hash%uint64(len(g.chains))]
	for *link != at+1 {
		link = &g.counter[*link-1].next
	}
	*link = g.counter[at].next
}

// Top returns at most most of the semaphores granted most often, of the nodes for which in returns
// true. Semaphores that were granted only long ago are left out. The names are copies.
func (g *Grants) Top(now time.Duration, most int, in func(node uint64) bool) (list []Grant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n == 0 {
		return nil
	}
	// A steady rate r adds up to r * halfLife / ln 2, once it has lasted long enough.
	// Soon after the first grant, the time since then counts.
	age := max(now-g.since, time.Second)
	perWeight := math.Ln2 / halfLife.Seconds() / (1 - 1/weightAt(age)) / weightAt(now-g.origin)
	for i := range g.n {
		c := &g.counter[i]
		if rate := (c.weight - c.inherited) * perWeight; rate >= lowest && in(c.node) {
			list = append(list, Grant{Node: c.node, Name: c.name, PerSecond: rate})
		}
	}
	slices.SortFunc(list, func(a, b Grant) int {
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), slices.Compare(a.Name, b.Name))
	})
	list = list[:min(most, len(list))]
	for i := range list {
		list[i].Name = slices.Clone(list[i].Name)
	}
	return list
}
