package sim

import (
	"fmt"
	"hash"
	"math/rand/v2"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

const (
	shards   = 3
	replicas = 3
	buckets  = 6
	node     = 1
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

	timeout, doubt, maxDelay  uint64
	grace, minGrace, maxGrace uint64
	relaxed                   bool
	electionChance            float64 // chance of a new leader in a step
	clientCount               int
	revision                  uint64
	appliedRevision           [shards]uint64 // revision of the node that the shard has applied

	tier       uint8              // of all shards: it is in the ids of sessions
	shards     [shards]*raftGroup // see placeOf
	clients    []*client
	clientsN   uint32
	conns      map[uint64]*clientConn
	connsN     uint64
	operations int

	routes    routingTable
	move      *move
	moveSteps []moveStep
	surplus   *raftGroup // it is to have no buckets, and then to go; nil: none is

	// what only an observer of all shards knows
	sessions map[uint64]*client // by session
	ended    map[uint64]uint64  // session -> when
	tokens   map[string]uint64  // name -> newest fencing token
}

func (w *simulation) bootstrap() {
	for b := range uint64(buckets) {
		w.routes.owner[b], w.routes.epoch[b] = b%shards+1, 1
	}
	w.faultsOver = true
	for i := range w.shards {
		w.shards[i] = newGroup(w, uint64(i)+1)
	}
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
		w.clients = append(w.clients, w.newClient())
	}
}

func (w *simulation) nodePut() []byte {
	config := protocol.NodeConfig{
		SelfCheckPeriod: 500, GracePeriod: w.grace, ReadConsistency: protocol.Strict, AttachConsistency: protocol.Strict,
		CountersMode: protocol.CountersAggregated, MaxSessions: 1000, MaxSemaphores: 1000,
		MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000,
	}
	if w.relaxed {
		config.AttachConsistency = protocol.Relaxed
	}
	return shard.AppendNodePut(nil, shard.NodePutBody{Node: node, Revision: w.revision, Config: config})
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
	for _, s := range w.shards {
		for _, r := range s.replicas {
			r.pausedUntil, r.isolatedUntil, r.downUntil = 0, 0, min(r.downUntil, w.now)
		}
	}
	for _, c := range w.clients {
		c.pausedUntil, c.unreachableUntil = 0, 0
	}
}

func sessionName(id uint64) string {
	return fmt.Sprintf("%d/%x", protocol.SessionBucket(id), id&0xffffff)
}
