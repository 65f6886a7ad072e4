package sim

import (
	"fmt"
	"hash"
	"math/rand/v2"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

const (
	shards   = 3
	replicas = 3
	buckets  = 6
	node     = 1
	nodePath = "/simulated"
)

// simulation is one run. Everything in it belongs to one goroutine.
type simulation struct {
	o   Options
	now uint64 // ms; true time, which no simulated clock shows
	pcg rand.PCG
	nth [faultsCount][64]uint32 // draws of a kind for an actor in this step
	off Faults

	faultsOver bool // faults are over
	eventLog   []Event
	counts     map[string]int
	trace      hash.Hash64

	timers  timers
	timersN uint64
	atEnd   []func() // see afterOrEnd

	timeout, doubt, maxDelay  uint64
	grace, minGrace, maxGrace uint64
	relaxed                   bool
	sharing                   bool    // instances host a replica of each shard
	sessionsEach              uint32  // sessions of a client
	electionChance            float64 // chance of a new leader in a step
	releaseChance             float64 // chance of a release in a step
	clientCount               int
	revision                  uint64
	appliedRevision           [shards]uint64 // revision of the node that the shard has applied

	tier       uint8               // of all shards: it is in the ids of sessions
	window     uint32              // of all connections
	shards     [shards]*raftGroup  // see placeOf
	instances  []*instance         // by id, from 1
	shared     [replicas]*instance // that host a replica of each shard; nil: each replica has an instance of its own
	clients    []*client
	holders    uint32
	conns      map[uint64]*conn // that are open, as their instances see it
	connsN     uint64
	operations int

	routes    *clusterMap
	move      *move
	moveSteps []moveStep
	surplus   *raftGroup // it is to have no buckets, and then to go; nil: none is

	// what only an observer of all shards knows
	sessions  map[uint64]*holder        // by session; nil: no client was told of it
	contested map[uint64]bool           // sessions that two processes restored: they take each other's leases for their own
	ended     map[uint64]uint64         // session -> when
	tokens    map[string]uint64         // name -> newest fencing token
	believed  [len(semaphores)][]belief // scratch
}

func (w *simulation) bootstrap() {
	w.routes = &clusterMap{version: 1}
	for b := range uint64(buckets) {
		w.routes.owner[b], w.routes.epoch[b] = b%shards+1, 1
	}
	w.faultsOver = true
	if w.sharing {
		for i := range w.shared {
			w.shared[i] = w.newInstance(uint32(i))
		}
	}
	for i := range w.shards {
		w.shards[i] = newGroup(w, uint64(i)+1)
	}
	w.routes.shards = w.shards
	w.revision = 1
	for i, s := range w.shards {
		s.elect(s.replicas[0])
		s.leader.apply(1)
		s.commit(s.leader, shard.Command{Kind: shard.CmdNodePut, Body: w.nodePut()})
		w.appliedRevision[i] = 1
		for b := range uint32(buckets) {
			if w.routes.owner[b] == s.id {
				s.commit(s.leader,
					shard.Command{Kind: shard.CmdBuckets,
						Body: shard.AppendBuckets(nil, shard.BucketsBody{Tier: w.tier, Total: buckets, First: b, Count: 1})})
			}
		}
	}
	w.faultsOver = false
	for range w.clientCount {
		w.clients = append(w.clients, w.newStartingClient())
	}
}

func (w *simulation) nodePut() []byte {
	return shard.AppendNodePut(nil, shard.NodePutBody{Node: node, Revision: w.revision, Config: w.nodeConfig()})
}

func (w *simulation) nodeConfig() protocol.NodeConfig {
	config := protocol.NodeConfig{
		SelfCheckPeriod: 500, GracePeriod: w.grace, ReadConsistency: protocol.Strict, AttachConsistency: protocol.Strict,
		CountersMode: protocol.CountersAggregated, MaxSessions: 1000, MaxSemaphores: 1000,
		MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000,
	}
	if w.relaxed {
		config.AttachConsistency = protocol.Relaxed
	}
	return config
}

// changeGracePeriod changes the grace period, and brings the change to every shard's log, each in
// its own time.
func (w *simulation) changeGracePeriod() {
	if w.fault(ChangeGrace, 0, 0.001) {
		w.grace = 4_500 - w.grace // 1,500 or 3,000
		w.revision++
	}
	for i, s := range w.shards {
		if w.appliedRevision[i] < w.revision && s.accepts() {
			if x, ok := s.commit(s.leader, shard.Command{Kind: shard.CmdNodePut, Body: w.nodePut()}); ok && x.Status == protocol.StatusOK {
				w.appliedRevision[i] = w.revision
			}
		}
	}
}

// endFaults ends all faults that last.
func (w *simulation) endFaults() {
	for _, in := range w.instances {
		in.pausedUntil, in.isolatedUntil, in.downUntil = 0, 0, min(in.downUntil, w.now)
	}
	for _, c := range w.clients {
		c.pausedUntil, c.unreachableUntil = 0, 0
		for _, k := range slices.Clone(c.conns) {
			k.endFaults()
		}
	}
	for _, id := range sorted(w.conns) {
		if k := w.conns[id]; k != nil {
			k.endFaults()
		}
	}
	for _, f := range w.atEnd {
		f()
	}
}

func sessionName(id uint64) string {
	return fmt.Sprintf("%d/%x", protocol.SessionBucket(id), id&0xffffff)
}
