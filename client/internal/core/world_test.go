package core

import (
	"fmt"
	"math/rand/v2"
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

	bucket  time.Duration // time of all buckets
	stalled time.Duration // it stands still until then

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
	plants   []*plant
	wallSet  time.Duration // by how much the client's time of day was set
	counts   map[string]int
}

const (
	worldInstances = 3
	worldShards    = 2
	worldTimeout   = 2 * time.Second
	worldGrace     = time.Second
)

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Hour, version: 1, leaders: map[uint64]uint64{}, terms: map[uint64]uint64{},
		sessions: map[uint64]*modelSession{}, names: map[string]*modelName{}, logs: map[uint64]*modelLog{}, effects: map[effect]uint64{}, counts: map[string]int{},
	}
	for s := range uint64(worldShards) {
		w.leaders[s+1], w.terms[s+1] = s%worldInstances+1, 1
	}
	for i := range 2 {
		c := &worldClient{w: w, e: New([]string{"i1", "i2", "i3"}, seed*10+uint64(i)), leases: map[*Lease]string{}, known: map[uint64]uint64{},
			skew: []time.Duration{-250, 250}[i]}
		w.clients = append(w.clients, c)
		c.begin()
		c.subscribe()
	}
	return w
}

func (w *world) chance(n int) bool { return !w.quiet && w.rng.IntN(n) == 0 }

func (w *world) step() {
	past := time.Duration(w.rng.IntN(30)) * time.Millisecond
	w.now += past
	w.passBuckets(past)
	w.moveLeaders()
	w.apply()
	for _, c := range w.clients {
		if !c.stepped() {
			continue
		}
		c.endDials()
		c.carry()
		c.checkReads()
		c.act()
		for _, x := range c.watches {
			x.take()
		}
		c.e.Tick(c.now())
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
	w.kill()
	w.check()
}

// kill has an operator end sessions: now and then any, and mostly at a moment in which a release
// waits for the work under its lease to stop.
func (w *world) kill() {
	for _, c := range w.clients {
		s := w.sessions[c.s.ID]
		switch releases := !c.s.later.empty(); {
		case s == nil || s.ended:
		case releases && w.chance(5), !releases && w.chance(2000):
			w.counts["killed"]++
			s.killed = true
			if w.end(s, protocol.EndKilled); releases {
				w.counts["killed before a release"]++
			}
		}
	}
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

// worldNames: the holds of e have a bound, and owners of f are to yield.
var worldNames = []string{"a", "b", "c", "d", "e", "f"}

// check: whatever a client relies on, the cluster has for its session.
func (w *world) check() {
	for i, c := range w.clients {
		c.check()
		if s := w.sessions[c.s.ID]; s != nil && s.killed || c.stopped {
			continue
		}
		for _, x := range c.calls {
			if x.acquire == nil || !x.done || x.lease.Token == 0 || x.lease.over != nil || !x.lease.HeldAt(c.e, c.now()) {
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
		if x := c.way; x.ended == nil && (x.state != Queued || x.att != c.s.attachment || x.on.over) {
			w.t.Errorf("client %d: a way is in state %d at rest", i, x.state)
		}
		c.e.Unfollow(c.now(), c.way)
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
			for range 700 {
				w.step()
			}
			w.atRest()
			for what, n := range w.counts {
				counts[what] += n
			}
		})
	}
	for _, what := range []string{
		"leader moved", "ended", "killed", "killed before a release", "restored", "connection lost", "hung", "attached again", "started", "given up", "closed", "relied on",
		"stream opened", "stream cut", "stream event", "watch event", "watch interrupted", "snapshot of two pages",
		"stream resumed",
		"read", "read of a replica", "strict read",
		"bound refused", "ended at a bound", "yielded at a bound", "silent", "known", "extended", "given back in time",
	} {
		if counts[what] < 100 {
			t.Errorf("%s happened %d times: the worlds do not try it", what, counts[what])
		}
	}
	t.Log(counts)
}
