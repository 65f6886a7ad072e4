package leader

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
	"github.com/signalbox-dev/signalbox/shard"
)

// The simulation: three shards, each a log, an authority that applies what is committed at once,
// and two replicas that apply it late and have a real Leader each. Leaders change while
// the old one knows nothing, replicas pause, proposals are lost or reach the log late, and messages
// between shards are lost, duplicated, delayed and reordered. Clients ping, attach, acquire,
// release, stop, fall silent and die. All of it follows from a seed.
const (
	simShards  = 3
	simBuckets = 12
	simNode    = 1
	simTimeout = 2_000
	simGrace   = 1_500
	simStep    = 25
)

// simEvent is something that happens to a replica, or to the world, at a time.
type simEvent struct {
	at, n uint64
	do    func()
}

type sim struct {
	t        testing.TB
	rand     *rand.Rand
	now      uint64
	quiet    bool
	shards   [simShards]*simShard
	events   []simEvent
	n        uint64
	conns    map[uint64]*simConn
	nextConn uint64
	clients  []*simClient
	ended    map[uint64]uint64 // session -> when
	owners   map[uint64]*simClient
	trace    hash.Hash64    // of all that leaders wanted done
	counts   map[string]int // how often each interesting thing happened

	routes simMap
	moving *simMove
	steps  []simStepSent // of moves
}

func newSim(t testing.TB, seed uint64) *sim {
	w := &sim{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: 1_000_000, conns: map[uint64]*simConn{},
		ended:  map[uint64]uint64{},
		owners: map[uint64]*simClient{}, counts: map[string]int{}, trace: fnv.New64a(),
	}
	for b := range uint64(simBuckets) {
		w.routes.owner[b], w.routes.epoch[b] = b%simShards+1, 1
	}
	for i := range w.shards {
		s := &simShard{id: uint64(i) + 1, authority: shard.New(uint64(i) + 1)}
		w.shards[i] = s
		for k := range s.replicas {
			r := &simReplica{w: w, s: s, m: shard.New(s.id), offset: uint64(w.rand.IntN(1 << 20)), routes: w.routes}
			r.l = New(Config{
				Shard: s.id, SelfCheck: 500, Compare: 1 << 40, BarrierTimeout: []uint64{simGrace, 60_000}[seed%2],
				Route: func(_ uint8, b uint32) (uint64, uint64) { return r.routes.owner[b], r.routes.epoch[b] },
			})
			s.replicas[k] = r
		}
	}
	for _, s := range w.shards {
		w.elect(s, s.replicas[0])
		s.master.apply(1)
		config := protocol.NodeConfig{SelfCheckPeriod: 500, GracePeriod: simGrace, ReadConsistency: protocol.Strict,
			AttachConsistency: protocol.Strict,
			CountersMode:      protocol.CountersAggregated, MaxSessions: 1000, MaxSemaphores: 1000,
			MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000}
		body := shard.AppendNodePut(nil, shard.NodePutBody{Node: simNode, Revision: 1, Config: config})
		w.commit(s.master, nil, shard.Command{Kind: shard.CmdNodePut, Body: body})
		for b := range uint32(simBuckets) {
			if uint64(b%simShards)+1 == s.id {
				body := shard.AppendBuckets(nil, shard.BucketsBody{Total: simBuckets, First: b, Count: 1})
				w.commit(s.master, nil, shard.Command{Kind: shard.CmdBuckets, Body: body})
			}
		}
	}
	for range 5 {
		w.clients = append(w.clients, w.newClient())
	}
	return w
}

func (w *sim) chance(p float64) bool { return !w.quiet && w.rand.Float64() < p }

// after runs f in about d ms at the earliest, in an order of its own.
func (w *sim) after(d uint64, f func()) {
	w.n++
	w.events = append(w.events, simEvent{w.now + d, w.n, f})
}

func (w *sim) delay(most int) uint64 {
	if w.quiet {
		return uint64(w.rand.IntN(20))
	}
	return uint64(w.rand.IntN(most))
}

// holdings checks that what clients were granted is still theirs, unless their session ended.
func (w *sim) holdings() {
	var out protocol.DescribeReply
	for _, c := range w.owners {
		if w.ended[c.session] != 0 {
			continue
		}
		home := w.serving(c.home())
		if home == nil {
			continue
		}
		if _, lives := home.authority.Sessions().Home(c.session); !lives && w.now >= c.until {
			continue // overdue, and about to be ended
		}
		for name, id := range c.holds {
			s := w.serving(protocol.Bucket(simNode, []byte(name), simBuckets))
			if s == nil {
				continue
			}
			err := s.authority.Semaphores().Describe(&protocol.Describe{Node: simNode,
				Name: []byte(name), Flags: protocol.WithOwners}, &out)
			if err != nil || !slices.ContainsFunc(out.Owners,
				func(o protocol.Owner) bool { return o.Session == c.session && o.OrderID <= id }) {
				w.t.Fatalf("at %d: %s of the living session %s is not held any more in shard %d: %v",
					w.now, name, sessionName(c.session), s.id, err)
			}
		}
	}
}

func (w *sim) step() {
	w.now += simStep
	slices.SortFunc(w.events, func(a, b simEvent) int {
		if a.at != b.at {
			return int(a.at) - int(b.at)
		}
		return int(a.n) - int(b.n)
	})
	for len(w.events) > 0 && w.events[0].at <= w.now {
		e := w.events[0]
		w.events = slices.Delete(w.events, 0, 1)
		e.do()
	}
	for _, s := range w.shards {
		p := 0.004
		if w.now < s.master.isolatedUntil {
			p = 0.05
		}
		if r := s.replicas[w.rand.IntN(2)]; w.now >= r.isolatedUntil && w.chance(p) {
			w.elect(s, r)
			w.counts["elected"]++
		}
		for _, r := range s.replicas {
			if w.now < r.pausedUntil {
				continue
			}
			if w.chance(0.002) {
				r.pausedUntil = w.now + uint64(500+w.rand.IntN(5_000))
				w.counts["paused"]++
				continue
			}
			inbox := r.inbox
			r.inbox = nil
			for _, e := range inbox {
				e.do()
				r.carryOut()
			}
			if w.chance(0.002) {
				r.isolatedUntil = w.now + uint64(1_000+w.rand.IntN(7_000))
				w.counts["apart"]++
			}
			if w.now >= r.isolatedUntil && !w.chance(0.3) {
				r.apply(1 + w.rand.IntN(20))
			}
			if w.now-r.lastTick >= 100 {
				r.lastTick = w.now
				next, has := r.m.NextDeadline()
				r.l.Tick(r.clock(), func(id uint64) (uint64, bool) {
					k := w.conns[id]
					return k.heard, k.open
				}, next, has)
				r.carryOut()
			}
		}
	}
	w.mover()
	for i := range w.clients {
		w.client(i)
	}
	w.holdings()
}

func (w *sim) run(busy, quiet uint64) {
	for end := w.now + busy; w.now < end; {
		w.step()
	}
	w.quiet = true
	for _, s := range w.shards {
		for _, r := range s.replicas {
			r.pausedUntil, r.isolatedUntil = 0, 0
		}
	}
	for end := w.now + quiet; w.now < end; {
		w.step()
	}
	// Faults stopped long ago: what ended is held nowhere, who lives holds on.
	for _, s := range w.shards {
		for _, m := range []*shard.Machine{s.authority, s.master.m} {
			m.Sessions().Remotes(func(id, _ uint64) bool {
				if at := w.ended[id]; at != 0 {
					w.t.Errorf("session %s ended at %d, and shard %d holds something for it at %d",
						sessionName(id), at, s.id, w.now)
				}
				return true
			})
		}
	}
	for id, c := range w.owners {
		if w.ended[id] == 0 && (c.dead || w.now >= c.until) {
			w.t.Errorf("nobody believes in session %s since %d, and it has not ended at %d",
				sessionName(id), c.until, w.now)
		}
	}
}

// rare are the things that must have happened for a run to say anything.
var rare = []string{
	"apart", "attached again", "barrier failed", "cut", "deposed", "died", "duplicated",
	"elected", "ended by 1", "ended by 2", "lost", "lost its connection", "moved",
	"paused", "pong", "proposed 129", "proposed 130", "proposed 131",
	"refused", "step again", "stopped", "told of a move",
}

func TestSimulation(t *testing.T) {
	runs, seen := 0, map[string]int{}
	for seed := range seeds.Of(t, 6, 24) {
		runs++
		w := newSim(t, seed)
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w.t = t
			w.run(60_000, simTimeout+simGrace+5_000)
		})
		for k, n := range w.counts {
			seen[k] += n
		}
	}
	t.Log(seen)
	for _, k := range rare {
		if seen[k] < runs {
			t.Errorf("%q happened %d times in %d runs; the simulation does not try it", k, seen[k], runs)
		}
	}
}

// TestLeadersAreDeterministic: equal calls give equal outputs.
func TestLeadersAreDeterministic(t *testing.T) {
	var sums [2]uint64
	for i := range sums {
		w := newSim(t, 7)
		w.run(30_000, 5_000)
		sums[i] = w.trace.Sum64()
	}
	if sums[0] != sums[1] {
		t.Errorf("two runs of one seed differ: %x %x", sums[0], sums[1])
	}
}
