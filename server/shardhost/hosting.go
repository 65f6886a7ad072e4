package shardhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/membership"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// Config of a Hosting. All fields are required unless they say otherwise.
type Config struct {
	Meta   *membership.Meta
	Member *membership.Member
	Clock  replica.Clock
	Logger *slog.Logger
	Dir    string // the data folder, where snapshots for backups are written
	Memory bool   // nothing is on disk

	Shards  *Table   // made by the caller, and filled here
	Serving *Serving // serves them to clients
	// Route and Heard are those of [replica.ShardConfig].
	Route func(tier uint8, bucket uint32) (shard, bucketEpoch uint64)
	Heard func(conn uint64) time.Duration
	// Format returns the highest format version of a data shard that may be written.
	Format func() uint8
	// MapChanged is called with each newer map, when the replicas that it gives to this instance
	// have been started, and the others stopped.
	MapChanged func(*meta.State)

	Go      func(func())                     // starts a goroutine that ends with the context
	Contain func(where string, panicked any) // reports a contained panic
	Fail    func(error)                      // ends the instance
}

// Hosting keeps the replicas that run here in step with the map. A replica that the map gives to
// this instance is started. One that the map or its own group has taken away is stopped, and its
// data are removed. One goroutine at a time works on that: the start, and then followMap.
type Hosting struct {
	Config
	Backups *backup.Snapshots

	ctx      context.Context
	instance uint64
	host     *replica.Host
	service  *cluster.Service
	dropped  atomic.Uint64 // messages between leaders

	removedReplicas chan [2]uint64     // shard and replica: it has seen its own removal
	purged          map[[2]uint64]bool // whose data were removed
	toPurge         map[[2]uint64]bool // whose data are to be
	followed        *meta.State        // the last map that was carried out
	pending         bool               // not completely
}

// New returns one that hosts nothing yet. Its goroutines end with ctx.
func New(ctx context.Context, cfg Config) *Hosting {
	h := &Hosting{
		Config: cfg, ctx: ctx, removedReplicas: make(chan [2]uint64, 64), purged: make(map[[2]uint64]bool),
		toPurge: make(map[[2]uint64]bool),
	}
	h.Backups = backup.NewSnapshots(ctx, backup.SnapshotsConfig{
		Clock: cfg.Clock, Logger: cfg.Logger, Dir: cfg.Dir, Memory: cfg.Memory,
		Led: Local{h}.led, Write: Local{h}.writeSnapshot, Go: cfg.Go, Contain: cfg.Contain,
	})
	return h
}

// Connect gives it the service to the other instances.
func (h *Hosting) Connect(service *cluster.Service) { h.service = service }

// SetHost gives it the host of the replicas. It is called before other instances may ask anything:
// they ask about replicas while this instance still waits for the meta shard.
func (h *Hosting) SetHost(host *replica.Host, instance uint64) { h.host, h.instance = host, instance }

// Open starts the replicas that the map gives to this instance, and follows the map from then on.
// What is missing from the data folder is found here, before anything is served.
func (h *Hosting) Open() error {
	state := h.Meta.State()
	if state.Bootstrapped() {
		h.findOrphans(state, h.host.StoredReplicas())
		if _, err := h.reconcile(state); err != nil {
			return err
		}
	}
	h.carriedOut(state)
	h.Go(h.followMap)
	return nil
}

// LogTransfers marks the end of this process in the logs of the shards that are led here, as a transfer
// of the leadership does: the next leader leaves sessions their remaining time and adds no grace
// period.
func (h *Hosting) LogTransfers(ctx context.Context) {
	var sending sync.WaitGroup
	for _, d := range h.Shards.All() {
		if d.Leading() {
			sending.Go(func() { _ = d.replica.LogTransfer(ctx) })
		}
	}
	sending.Wait()
}

// DroppedMessages is the number of messages between leaders that were dropped.
func (h *Hosting) DroppedMessages() uint64 { return h.dropped.Load() }

// ReplicaRemoved is called when a replica here has applied its own removal.
func (h *Hosting) ReplicaRemoved(shard, id uint64) {
	if shard == replica.MetaShard {
		h.Member.MetaRemoved(id)
		return
	}
	select {
	case h.removedReplicas <- [2]uint64{shard, id}:
	case <-h.ctx.Done():
	}
}

// reconcile brings what runs into step with a map. A replica that cannot be started is tried again
// with the next map or after a while. After an error this instance must not go on. If again,
// something is left to be done later.
func (h *Hosting) reconcile(state *meta.State) (again bool, err error) {
	wanted := make(map[uint64]meta.Replica)
	for _, x := range state.Shards() {
		if r, ok := x.On(h.instance); ok && (r.TargetRole != meta.RoleNone || r.Role != meta.RoleNone) {
			wanted[x.ID] = r
		}
	}
	for _, d := range h.Shards.All() {
		if r, ok := wanted[d.id]; !ok || r.Replica != d.ReplicaID {
			h.stop(d)
		}
	}
	for _, x := range state.Shards() {
		r, ok := wanted[x.ID]
		if !ok || h.Shards.Get(x.ID) != nil || h.purged[[2]uint64{x.ID, r.Replica}] ||
			h.toPurge[[2]uint64{x.ID, r.Replica}] {
			continue
		}
		cfg := replica.ShardConfig{ID: x.ID, Replica: r.Replica}
		if r.Founder {
			cfg.Members = map[uint64]string{r.Replica: h.host.RaftAddress()}
		} else {
			cfg.Join = true
		}
		// A vote that is given twice in a term, or a log that has lost what it acknowledged, breaks
		// the shard for everybody.
		if r.Role == meta.RoleVoter && (x.Ready || !r.Founder) {
			has, err := h.host.HasReplica(x.ID, r.Replica)
			switch {
			case err != nil:
				return true, nil // this instance is stopping
			case has:
			case r.TargetRole == meta.RoleNone:
				continue // it has been removed, and its data with it; the map does not show it yet
			default:
				return false, fmt.Errorf(
					"shard %d's log is missing from data folder %q: put the whole folder back, or start on a new one and expel this instance",
					x.ID, h.Dir)
			}
		}
		if slices.ContainsFunc(x.Replicas, func(o meta.Replica) bool {
			return o.Replica != r.Replica && o.Role == meta.RoleVoter
		}) {
			h.host.SuppressElections(x.ID)
		}
		if err := h.openShard(cfg); errors.Is(err, logstore.ErrDamaged) {
			return false, err
		} else if err != nil {
			h.Logger.Error("replica does not start, will be retried", "shard", x.ID, "replica", r.Replica, "error", err)
			again = true
		}
	}
	again = !h.purge() || again
	h.pending = again
	return again, nil
}

// findOrphans notes the data of replicas that the map, which must be up to date, does not give to
// this instance, or leaves no role. They were taken away while it was down, or it stopped before
// their data were removed.
func (h *Hosting) findOrphans(state *meta.State, stored [][2]uint64) {
	for _, kept := range stored {
		shard, id := kept[0], kept[1]
		if shard == replica.MetaShard {
			continue // its own start removes them
		}
		x, _ := state.Shard(shard)
		if r, ok := x.On(h.instance); !ok || r.Replica != id || r.Role == meta.RoleNone && r.TargetRole == meta.RoleNone {
			h.toPurge[kept] = true
		}
	}
}

// followMap keeps what runs here up to date with the map.
func (h *Hosting) followMap() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		changed := h.Meta.Changed()
		if again := h.follow(h.Meta.State()); again {
			retry.Reset(reconcileRetry)
		}
		select {
		case <-h.ctx.Done():
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

// follow carries out a map.
func (h *Hosting) follow(state *meta.State) (again bool) {
	if !h.Member.Follow(state) || h.followed.Revision() == state.Revision() && !h.pending {
		return false
	}
	again, err := h.reconcile(state)
	if err != nil {
		h.Fail(err)
		return false
	}
	h.carriedOut(state)
	return again
}

// carriedOut has everybody know of a map that was carried out.
func (h *Hosting) carriedOut(state *meta.State) {
	former := h.followed
	h.followed = state
	h.MapChanged(state)
	switch {
	case former == nil:
	case former.MapVersion() == state.MapVersion():
		return
	default:
		for _, d := range h.Shards.All() {
			d.replica.RouteChanged()
		}
	}
	h.Member.SavePeers(state)
}

// removed follows the removal of a replica here that its group has decided on, which the map may
// not show yet.
func (h *Hosting) removed(shard, id uint64) {
	h.toPurge[[2]uint64{shard, id}] = true
	if d := h.Shards.Get(shard); d != nil && d.ReplicaID == id {
		h.stop(d)
	}
	h.pending = true // its data are removed with the next look at the map
}

// stop closes a shard whose replica is in its group no more. Its data are due to be removed.
func (h *Hosting) stop(d *Shard) {
	h.Logger.Info("replica removed from this instance", "shard", d.id, "replica", d.ReplicaID)
	h.toPurge[[2]uint64{d.id, d.ReplicaID}] = true
	if err := h.CloseShard(d); err != nil {
		h.Logger.Debug("the engine has stopped the replica before", "shard", d.id, "error", err)
	}
}

// purge removes the data of removed replicas, each once. If done, none is left.
func (h *Hosting) purge() (done bool) {
	for key := range h.toPurge {
		ctx, cancel := context.WithTimeout(h.ctx, purgeTimeout)
		err := h.host.RemoveData(ctx, key[0], key[1])
		cancel()
		if err != nil {
			if h.ctx.Err() == nil {
				h.Logger.Error("data of a removed replica are not removed, will be retried", "shard", key[0],
					"replica", key[1], "error", err)
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
