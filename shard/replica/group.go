package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/shard/replica/engine"
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

	// Guarded by the mu of groupTable.
	term, leader uint64 // as raft reported last
	stopped      bool   // it was taken off
}

// bootstrap describes how a replica joins its group the first time. It has no effect at a restart.
type bootstrap struct {
	members map[uint64]string
	join    bool
}

// startGroup starts a raft group's replica.
//
// The engine must know whether the replica votes. If that contradicts its log, at a snapshot or
// entry that says it does not vote, the engine panics. It may have changed while the replica was
// down, so the right answer is unknown. But the engine follows a promotion that it finds in an
// entry or snapshot, and a replica that joined becomes a voter in no other way. So a replica that
// joined is always started as non-voting, and a founder, which has always voted, as a voter. The
// engine has stored which of them it is since the first start, and rejects the other.
func (h *Host) startGroup(
	g *group, f bootstrap, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config,
) error {
	if g.id == 0 {
		return errors.New("replica id must be at least 1")
	}
	if f.join && len(f.members) > 0 {
		return fmt.Errorf("shard %d: a replica that joins must not have members", g.shard)
	}
	known, err := h.engine.HasReplica(g.shard, g.id)
	if err != nil {
		return errHostClosed
	}
	if !known && !f.join && len(f.members) == 0 {
		return fmt.Errorf("shard %d: replica %d was never started here; give it the shard's members, or let it join",
			g.shard, g.id)
	}
	if known {
		if err := engine.CheckSnapshot(h.store, g.shard, g.id, shardName(g.shard)); err != nil {
			return err
		}
	}
	if err := h.groups.add(g); err != nil {
		return err
	}
	start := func(joined bool) error {
		cfg.IsNonVoting = joined
		if joined {
			return h.startReplica(nil, true, create, cfg)
		}
		return h.startReplica(f.members, false, create, cfg)
	}
	joined := len(f.members) == 0
	err = start(joined)
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
	h.groups.drop(g)
	if g.shard == MetaShard {
		return fmt.Errorf("start the meta shard: %w", err)
	}
	return fmt.Errorf("start shard %d: %w", g.shard, err)
}

// startReplica starts it in the engine. After a stop, the engine refuses to start a replica for a
// moment.
func (h *Host) startReplica(
	members map[uint64]string, join bool, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config,
) error {
	for end := time.Now().Add(restartTimeout); ; time.Sleep(time.Millisecond) {
		err := h.engine.StartReplica(members, join, create, cfg)
		if !errors.Is(err, dragonboat.ErrShardAlreadyExist) || time.Now().After(end) {
			return err
		}
	}
}

// StopShard stops a replica on this host; its data stay. Requests in its open batch fail with
// StatusUnavailable.
func (h *Host) StopShard(id uint64) error {
	g := h.groups.get(id)
	if g == nil {
		return fmt.Errorf("shard %d does not run on this host", id)
	}
	return h.stopGroup(g)
}

// stopGroup stops a replica once; a second caller waits for the first.
func (h *Host) stopGroup(g *group) error {
	g.stopMu.Lock()
	defer g.stopMu.Unlock()
	if h.groups.isStopped(g) {
		return nil
	}
	g.replica.stop()
	err := h.engine.StopReplica(g.shard, g.id)
	switch {
	case errors.Is(err, dragonboat.ErrShardNotFound):
		err = nil // the engine stops a removed replica by itself
	case errors.Is(err, dragonboat.ErrClosed):
		return errHostClosed // Close stops it
	}
	g.replica.stopped()
	h.groups.drop(g)
	return err
}

// stopRemoved stops a replica that has applied its own removal, which the engine is about to stop.
// It is called on the engine's event goroutine.
func (h *Host) stopRemoved(shard, replica uint64) {
	g := h.groups.noteRemoved(shard, replica, &h.wg)
	if g == nil {
		return
	}
	go func() {
		defer h.wg.Done()
		h.log.Info("replica removed from its shard", "shard", shard, "replica", replica)
		_ = h.stopGroup(g) // the engine has stopped it
		if h.cfg.Removed != nil {
			h.cfg.Removed(shard, replica)
		}
	}()
}

// HasReplica reports whether the replica was ever started on this host and its log is still here.
// It fails if the host is closed.
func (h *Host) HasReplica(shard, replica uint64) (bool, error) {
	has, err := h.engine.HasReplica(shard, replica)
	if err != nil {
		return false, errHostClosed
	}
	return has, nil
}

// StoredReplicas lists the shard and id of each replica that was started on this host and whose log
// or snapshots are here, running or not. The engine removes a log before its snapshots, so those
// may be left alone.
func (h *Host) StoredReplicas() (list [][2]uint64) {
	info := h.engine.HostInfo(dragonboat.NodeHostInfoOption{})
	if info == nil {
		return nil
	}
	for _, n := range info.LogInfo {
		list = append(list, [2]uint64{n.ShardID, n.ReplicaID})
	}
	for _, k := range h.store.SavedSnapshots() {
		if !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list
}
