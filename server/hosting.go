package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// hosting keeps the replicas that run here in step with the map: a replica that the map gives to this instance is started, one that the map or its own group has
// taken away is stopped and its data removed. One goroutine works on it at a time: the start, and then followMap.
type hosting struct {
	server          *Server
	removedReplicas chan [2]uint64     // shard and replica: it has seen its own removal
	purged          map[[2]uint64]bool // whose data were removed
	toPurge         map[[2]uint64]bool // whose data are to be

	pending bool // the last map is not carried out yet
}

func newHosting(s *Server) *hosting {
	return &hosting{server: s, removedReplicas: make(chan [2]uint64, 64), purged: make(map[[2]uint64]bool), toPurge: make(map[[2]uint64]bool)}
}

// replicaRemoved is called when a replica here has applied its own removal.
func (h *hosting) replicaRemoved(shard, id uint64) {
	if shard == replica.MetaShard {
		h.server.membership.MetaRemoved(id)
		return
	}
	select {
	case h.removedReplicas <- [2]uint64{shard, id}:
	case <-h.server.ctx.Done():
	}
}

// reconcile brings what runs into step with a map. A replica that cannot be started is tried again with the next map or after a while; an error is one that
// this instance must not go on with. Again says that something is left to be done later.
func (h *hosting) reconcile(state *meta.State) (again bool, err error) {
	s := h.server
	wanted := make(map[uint64]meta.Replica)
	for _, x := range state.Shards() {
		if r, ok := x.On(s.instance); ok && (r.TargetRole != meta.RoleNone || r.Role != meta.RoleNone) {
			wanted[x.ID] = r
		}
	}
	for _, d := range s.shards.all() {
		if r, ok := wanted[d.id]; !ok || r.Replica != d.replica {
			h.stop(d)
		}
	}
	for _, x := range state.Shards() {
		r, ok := wanted[x.ID]
		if !ok || s.shards.get(x.ID) != nil || h.purged[[2]uint64{x.ID, r.Replica}] || h.toPurge[[2]uint64{x.ID, r.Replica}] {
			continue
		}
		cfg := replica.ShardConfig{ID: x.ID, Replica: r.Replica}
		if r.Founder {
			cfg.Members = map[uint64]string{r.Replica: s.host.RaftAddress()}
		} else {
			cfg.Join = true
		}
		// A vote that is given twice in a term, or a log that has lost what it acknowledged, breaks the shard for everybody.
		if r.Role == meta.RoleVoter && (x.Ready || !r.Founder) && !s.host.HasReplica(x.ID, r.Replica) {
			if r.TargetRole == meta.RoleNone {
				continue // it has been removed, and its data with it; the map does not show it yet
			}
			return false, fmt.Errorf("shard %d's log is missing from data folder %q: put the whole folder back, or start on a new one and expel this instance", x.ID, s.cfg.DataDir)
		}
		if slices.ContainsFunc(x.Replicas, func(o meta.Replica) bool { return o.Replica != r.Replica && o.Role == meta.RoleVoter }) {
			s.host.SuppressElections(x.ID)
		}
		if err := h.open(cfg); errors.Is(err, logstore.ErrDamaged) {
			return false, err
		} else if err != nil {
			s.log.Error("replica does not start, will be retried", "shard", x.ID, "replica", r.Replica, "error", err)
			again = true
		}
	}
	again = !h.purge() || again
	h.pending = again
	return again, nil
}

// findOrphans notes the data of replicas that the map, which must be up to date, does not give to this instance: they were taken away while it was down, or it stopped
// before their data were removed.
func (h *hosting) findOrphans(state *meta.State) {
	for _, kept := range h.server.host.StoredReplicas() {
		shard, id := kept[0], kept[1]
		if shard == replica.MetaShard {
			continue // its own start sees to it
		}
		x, _ := state.Shard(shard)
		if r, ok := x.On(h.server.instance); !ok || r.Replica != id {
			h.toPurge[kept] = true
		}
	}
}

// followMap keeps what runs here, the routes and the clients up to date with the map.
func (h *hosting) followMap() {
	s := h.server
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		changed := s.meta.Changed()
		if again := h.applyMap(s.meta.State()); again {
			retry.Reset(reconcileRetry)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-retry.C:
		case gone := <-h.removedReplicas:
			h.removed(gone[0], gone[1])
		}
	}
}

// reconcileRetry is the pause before a replica that could not be started is tried again.
const reconcileRetry = time.Second

// applyMap follows a map.
func (h *hosting) applyMap(state *meta.State) (again bool) {
	s := h.server
	if !s.membership.Follow(state) {
		return false
	}
	old := s.routing()
	if old != nil && old.state.Revision() == state.Revision() && !h.pending {
		return false
	}
	again, err := h.reconcile(state)
	if err != nil {
		s.fail(err)
		return false
	}
	s.routes.Store(newRoutes(state, &s.shards, old))
	s.setAuth(state)
	if old != nil && old.state.MapVersion() != state.MapVersion() {
		for _, d := range s.shards.all() {
			d.raft.RouteChanged()
		}
		s.broadcastMapChanged(&protocol.MapChanged{Version: state.MapVersion()})
		s.membership.SavePeers(state)
	}
	return again
}

// removed follows the removal of a replica here that its group has decided on, which the map may not
// show yet.
func (h *hosting) removed(shard, id uint64) {
	h.toPurge[[2]uint64{shard, id}] = true
	if d := h.server.shards.get(shard); d != nil && d.replica == id {
		h.stop(d)
	}
	h.pending = true // its data are removed with the next look at the map
}

// stop closes a shard host whose replica is in its group no more. Its data are due to be removed.
func (h *hosting) stop(d *shardHost) {
	h.server.log.Info("replica is taken off this instance", "shard", d.id, "replica", d.replica)
	h.toPurge[[2]uint64{d.id, d.replica}] = true
	if err := h.close(d); err != nil {
		h.server.log.Debug("the engine has stopped the replica before", "shard", d.id, "error", err)
	}
}

// purge removes the data of replicas that were removed, each once. Done says that none is left.
func (h *hosting) purge() (done bool) {
	for key := range h.toPurge {
		ctx, cancel := context.WithTimeout(h.server.ctx, purgeTimeout)
		err := h.server.host.RemoveData(ctx, key[0], key[1])
		cancel()
		if err != nil {
			if h.server.ctx.Err() == nil {
				h.server.log.Error("data of a removed replica are not removed, will be retried", "shard", key[0], "replica", key[1], "error", err)
			}
			continue
		}
		h.purged[key] = true
		delete(h.toPurge, key)
	}
	return len(h.toPurge) == 0
}

// purgeTimeout bounds the wait for the engine to let go of a replica.
const purgeTimeout = 5 * time.Second
