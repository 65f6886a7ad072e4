package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
)

// replicaMachine is a [Shard], a [Meta] or a [Recovery]'s reader.
type replicaMachine interface {
	leaderUpdated(term, leader uint64)
	tick(now time.Duration)
	startTick() (wait func(thorough bool))
	quiet() bool
	appliedEntries() uint64 // so far
	awaitQuiet(most time.Duration) bool
	transfer(ctx context.Context, to, after uint64) error
	report(r *GroupReport)
	stop()
	stopped()
}

// group is a raft group's replica on this host.
type group struct {
	shard, id uint64
	replica   replicaMachine
	stopMu    sync.Mutex // held while the group is stopped
	changeMu  sync.Mutex // held during a change of members that was requested here

	// Guarded by the host's mu.
	term, leader uint64 // as raft reported last
	stopped      bool   // it was taken off
}

// noteLeader is called on the engine's event goroutine.
func (h *Host) noteLeader(shard, replica, term, leader uint64) {
	h.mu.Lock()
	g := h.groups[shard]
	if g != nil && g.id != replica {
		g = nil
	}
	if g != nil {
		g.term, g.leader = term, leader
	}
	h.mu.Unlock()
	if g != nil {
		g.replica.leaderUpdated(term, leader)
	}
}

// noteRemoved is called on the engine's event goroutine when the replica has applied its own
// removal, and the engine is about to stop it.
func (h *Host) noteRemoved(shard, replica uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.removed[[2]uint64{shard, replica}] = true
	g := h.groups[shard]
	if g == nil || g.id != replica {
		return
	}
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		h.log.Info("replica removed from its shard", "shard", shard, "replica", replica)
		_ = h.stopGroup(g) // the engine has stopped it
		if h.cfg.Removed != nil {
			h.cfg.Removed(shard, replica)
		}
	}()
}

func (h *Host) leaderOf(shard, replica uint64) (leader, term uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.groups[shard]; g != nil && g.id == replica {
		return g.leader, g.term
	}
	return 0, 0
}

// addGroup registers a replica before its group starts: the first leader event may come before the
// start returns.
func (h *Host) addGroup(g *group) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return protocol.Errorf(protocol.StatusUnavailable, "host is closed")
	}
	if h.groups[g.shard] != nil {
		return fmt.Errorf("shard %d runs on this host already", g.shard)
	}
	h.groups[g.shard] = g
	return nil
}

func (h *Host) removeGroup(g *group) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.stopped = true
	if h.groups[g.shard] == g {
		delete(h.groups, g.shard)
	}
}

func (h *Host) group(shard uint64) *group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups[shard]
}

// running lists the replicas in the order of their shards.
func (h *Host) running() []*group {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*group, 0, len(h.groups))
	for _, g := range h.groups {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b *group) int { return cmp.Compare(a.shard, b.shard) })
	return list
}

// bootstrap is how a replica joins its group the first time. It has no effect at a restart.
type bootstrap struct {
	members map[uint64]string
	join    bool
}

// startGroup starts a raft group's replica.
//
// The engine must be told whether the replica votes. If that contradicts its log, at a snapshot or
// entry that says it does not vote, the engine panics. It may have changed while the replica was
// down, so the right answer is unknown. But the engine follows a promotion that it finds in an
// entry or snapshot, and a replica that joined becomes a voter in no other way. So a replica that
// joined is always started as non-voting, and a founder, which has always voted, as a voter. The
// engine has stored which of them it is since the first start, and rejects the other.
func (h *Host) startGroup(g *group, f bootstrap, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config) error {
	if g.id == 0 {
		return errors.New("replica id must be at least 1")
	}
	if f.join && len(f.members) > 0 {
		return fmt.Errorf("shard %d: a replica that joins must not have members", g.shard)
	}
	known := h.nh.HasNodeInfo(g.shard, g.id)
	if !known && !f.join && len(f.members) == 0 {
		return fmt.Errorf("shard %d: replica %d was never started here; give it the shard's members, or let it join", g.shard, g.id)
	}
	if known {
		if err := h.checkSnapshot(g.shard, g.id); err != nil {
			return err
		}
	}
	if err := h.addGroup(g); err != nil {
		return err
	}
	h.mu.Lock()
	delete(h.removed, [2]uint64{g.shard, g.id})
	h.mu.Unlock()
	start := func(joined bool) error {
		cfg.IsNonVoting = joined
		if joined {
			return h.startReplica(nil, true, create, cfg)
		}
		return h.startReplica(f.members, false, create, cfg)
	}
	joined := len(f.members) == 0
	err := start(joined)
	if known && errors.Is(err, dragonboat.ErrInvalidShardSettings) {
		err = start(!joined)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dragonboat.ErrInvalidShardSettings):
		err = errors.New("it was first started here with other members; give those, or none")
	case errors.Is(err, dragonboat.ErrReplicaRemoved):
		err = fmt.Errorf("replica %d was removed and its data with it; add a new replica", g.id)
	}
	h.removeGroup(g)
	if g.shard == MetaShard {
		return fmt.Errorf("start the meta shard: %w", err)
	}
	return fmt.Errorf("start shard %d: %w", g.shard, err)
}

// startReplica starts it in the engine. After a stop, the engine refuses to start a replica for a
// moment.
func (h *Host) startReplica(members map[uint64]string, join bool, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config) error {
	for end := time.Now().Add(restartTimeout); ; time.Sleep(time.Millisecond) {
		err := h.nh.StartConcurrentReplica(members, join, create, cfg)
		if !errors.Is(err, dragonboat.ErrShardAlreadyExist) || time.Now().After(end) {
			return err
		}
	}
}

// StopShard stops a replica on this host; its data stay. Requests in its open batch fail with
// StatusUnavailable.
func (h *Host) StopShard(id uint64) error {
	g := h.group(id)
	if g == nil {
		return fmt.Errorf("shard %d does not run on this host", id)
	}
	return h.stopGroup(g)
}

// stopGroup stops a replica once; a second caller waits for the first.
func (h *Host) stopGroup(g *group) error {
	g.stopMu.Lock()
	defer g.stopMu.Unlock()
	h.mu.Lock()
	gone := g.stopped
	h.mu.Unlock()
	if gone {
		return nil
	}
	g.replica.stop()
	err := h.nh.StopReplica(g.shard, g.id)
	if errors.Is(err, dragonboat.ErrShardNotFound) {
		err = nil // the engine stops a removed replica by itself
	}
	g.replica.stopped()
	h.removeGroup(g)
	return err
}

// HasReplica reports whether the replica was ever started on this host and its log is still here.
func (h *Host) HasReplica(shard, replica uint64) bool { return h.nh.HasNodeInfo(shard, replica) }

// StoredReplicas lists the shard and id of each replica that was started on this host and whose log
// is here, running or not.
func (h *Host) StoredReplicas() (list [][2]uint64) {
	info := h.engineInfo(dragonboat.NodeHostInfoOption{})
	if info == nil {
		return nil
	}
	for _, n := range info.LogInfo {
		list = append(list, [2]uint64{n.ShardID, n.ReplicaID})
	}
	return list
}
