package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// MetaShard is the id of the meta shard's raft group. Data shards have lower ids.
const MetaShard uint64 = 1 << 40

const defaultMetaSnapshotEntries = 10_000

// MetaConfig configures the meta shard's replica. Replica is required, and Members unless it joins
// or restarts; see [ShardConfig].
type MetaConfig struct {
	Replica uint64
	Members map[uint64]string // replica id -> raft address of the first members
	Join    bool
	// SnapshotEntries is the number of entries between snapshots, default 10,000;
	// CompactionOverhead the number kept before one, default half of it.
	SnapshotEntries, CompactionOverhead uint64
	// Applied is called for each entry that changed the state, in log order, with the states before
	// and after, which never change. A restored snapshot is one call, with the index of its last
	// entry. After a restart entries come again, beginning with the last snapshot. The machine is
	// locked: Applied must be quick, and not call the Meta. May be nil.
	Applied func(index uint64, before, after *meta.State)
}

// Meta is one replica of the meta shard. All methods are safe for concurrent use.
//
// Commands are rare, and may be proposed again while an outcome is unknown: each has an op id that
// the machine remembers, or is compare-and-set. So there are no epochs and no batches, and any
// replica may propose.
type Meta struct {
	cfg     MetaConfig
	host    *Host
	group   *group
	log     *slog.Logger
	session *client.Session

	leader atomic.Uint64
	term   atomic.Uint64

	mu      sync.RWMutex
	machine *meta.Machine
	changed chan struct{} // closed at the next change, and then replaced

	stopC   chan struct{}
	stopOne sync.Once
}

// StartMeta starts the replica of the meta shard. It returns before the log is read back.
func (h *Host) StartMeta(cfg MetaConfig) (*Meta, error) {
	cfg.SnapshotEntries = cmp.Or(cfg.SnapshotEntries, defaultMetaSnapshotEntries)
	m := &Meta{
		cfg:     cfg,
		host:    h,
		log:     h.log.With("shard", "meta"),
		session: h.engine.Session(MetaShard),
		machine: meta.New(),
		changed: make(chan struct{}),
		stopC:   make(chan struct{}),
	}
	m.group = &group{shard: MetaShard, id: cfg.Replica, replica: m}
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return (*metaMachine)(m) }
	raft := engine.GroupConfig(MetaShard, cfg.Replica, cfg.SnapshotEntries, cfg.CompactionOverhead)
	if err := h.startGroup(m.group, bootstrap{cfg.Members, cfg.Join}, create, raft); err != nil {
		return nil, err
	}
	return m, nil
}

// View runs fn with the machine, which does not change meanwhile. Other replicas may have applied
// more; see [Meta.Sync]. A copy of the machine's State is immutable, and may be kept.
func (m *Meta) View(fn func(*meta.Machine)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	fn(m.machine)
}

// Changed is closed at the next change of the state. Take it before reading the state, so that no
// change is missed.
func (m *Meta) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// Leading reports whether this replica leads, as far as it knows. Two replicas that believe so do
// no harm: commands are compare-and-set.
func (m *Meta) Leading() bool { return m.leader.Load() == m.cfg.Replica }

// Replica is this replica's id.
func (m *Meta) Replica() uint64 { return m.cfg.Replica }

// LeaderReplica is the replica id of the leader as known here, 0 for none.
func (m *Meta) LeaderReplica() uint64 { return m.leader.Load() }

// Propose proposes a command made by [meta.AppendCommand] and returns its result when it is applied
// here. It retries until ctx ends; then the command may still be applied. The entry is copied.
func (m *Meta) Propose(ctx context.Context, entry []byte) (result []byte, err error) {
	for try := 0; ; try++ {
		data, done, err := m.try(ctx, entry)
		if done {
			return data, err
		}
		if err := m.pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// try proposes once. If not done, the command should be proposed again.
func (m *Meta) try(ctx context.Context, entry []byte) (data []byte, done bool, err error) {
	r, err := m.host.engine.ProposeRequest(m.session, entry, m.timeout())
	switch {
	case err == nil:
	case errors.Is(err, dragonboat.ErrPayloadTooBig):
		return nil, true, protocol.Errorf(protocol.StatusBadRequest, "command of %d bytes is too large", len(entry))
	default:
		return nil, false, nil
	}
	select {
	case res := <-r.AppliedC():
		r.Release()
		if res.Completed() {
			return res.GetResult().Data, true, nil
		}
		return nil, false, nil // dropped or unknown: safe to repeat
	case <-ctx.Done():
		return nil, true, ctx.Err()
	case <-m.stopC:
		return nil, true, errHostClosed
	}
}

// Sync waits until everything acknowledged anywhere before the call is applied here.
func (m *Meta) Sync(ctx context.Context) error {
	for try := 0; ; try++ {
		if m.host.engine.ReadIndex(ctx, MetaShard, m.timeout(), m.stopC, nil, nil) {
			return nil
		}
		if err := m.pause(ctx, try); err != nil {
			return err
		}
	}
}

// timeout of one attempt. A proposal forwarded to a leader that has died uses all of it; an
// election takes 10 to 20 round trip times.
func (m *Meta) timeout() time.Duration {
	return max(500*time.Millisecond, 15*m.host.cfg.RTT)
}

// pause waits between two attempts, a random 5 to 200 ms.
func (m *Meta) pause(ctx context.Context, try int) error {
	most := min(200*time.Millisecond, 10*time.Millisecond<<min(try, 5))
	t := time.NewTimer(most/2 + rand.N(most/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.stopC:
		return errHostClosed
	}
}

// Digest is the machine's digest, equal on all replicas that applied the same log.
func (m *Meta) Digest() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.machine.Digest()
}

// Backup writes a snapshot of the map and returns the index of its last entry.
func (m *Meta) Backup(w io.Writer) (index uint64, err error) {
	m.mu.RLock()
	snap := m.machine.BeginSnapshot()
	index = m.machine.AppliedIndex()
	m.mu.RUnlock()
	_, err = snap.WriteTo(w)
	return index, err
}

func (m *Meta) leaderUpdated(term, leader uint64) {
	m.term.Store(term)
	if m.leader.Swap(leader) != leader {
		m.mu.Lock()
		m.signal()
		m.mu.Unlock()
	}
}

// signal wakes waiters for a change of the state or the leader. The caller holds mu.
func (m *Meta) signal() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Meta) tick(time.Duration) {}

func (m *Meta) startTick() func(bool)         { return func(bool) {} }
func (m *Meta) quiet() bool                   { return true }
func (m *Meta) appliedEntries() uint64        { return 0 }
func (m *Meta) awaitQuiet(time.Duration) bool { return true }

func (m *Meta) stop() { m.stopOne.Do(func() { close(m.stopC) }) }

func (m *Meta) stopped() {}

// metaMachine is a [Meta] as the engine sees it.
type metaMachine Meta

var _ statemachine.IConcurrentStateMachine = (*metaMachine)(nil)

func (mm *metaMachine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	if err := mm.update(entries); err != nil {
		return nil, mm.host.fatal(err)
	}
	return entries, nil
}

func (mm *metaMachine) update(entries []statemachine.Entry) error {
	m := (*Meta)(mm)
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.machine.Revision()
	for i := range entries {
		e := &entries[i]
		// An error stops the process: skipping an entry that other replicas apply would make them
		// diverge.
		if err := meta.CheckFormat(e.Cmd); err != nil {
			return fmt.Errorf("entry %d of the meta shard: %w", e.Index, err)
		}
		old := m.machine.State
		e.Result = statemachine.Result{Value: 1, Data: m.machine.Apply(e.Index, e.Cmd)}
		m.notify(e.Index, &old)
	}
	if m.machine.Revision() != before {
		m.signal()
	}
	return nil
}

func (mm *metaMachine) Lookup(interface{}) (interface{}, error) {
	return nil, errors.New("reads do not go through the engine")
}

// PrepareSnapshot copies the state, which is a value that shares unchanged parts.
func (mm *metaMachine) PrepareSnapshot() (interface{}, error) {
	mm.mu.RLock()
	defer mm.mu.RUnlock()
	return mm.machine.BeginSnapshot(), nil
}

func (mm *metaMachine) SaveSnapshot(
	state interface{}, w io.Writer, _ statemachine.ISnapshotFileCollection, stop <-chan struct{},
) error {
	snap, ok := state.(*meta.Snapshot)
	if !ok {
		return fmt.Errorf("snapshot of type %T was not prepared here", state)
	}
	if _, err := snap.WriteTo(&stoppableWriter{w: w, stop: stop}); err != nil {
		if isClosed(stop) {
			return statemachine.ErrSnapshotStopped
		}
		return fmt.Errorf("save snapshot of the meta shard: %w", err)
	}
	return nil
}

func (mm *metaMachine) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, stop <-chan struct{}) error {
	machine, err := meta.Restore(&stoppableReader{r: r, stop: stop})
	if err != nil {
		if isClosed(stop) {
			return statemachine.ErrSnapshotStopped
		}
		return mm.host.fatal(fmt.Errorf("restore the snapshot of the meta shard: %w", err))
	}
	mm.mu.Lock()
	defer mm.mu.Unlock()
	old := mm.machine.State
	mm.machine = machine
	(*Meta)(mm).notify(machine.AppliedIndex(), &old)
	(*Meta)(mm).signal()
	return nil
}

// notify calls MetaConfig.Applied. The caller holds mu.
func (m *Meta) notify(index uint64, old *meta.State) {
	if m.cfg.Applied != nil && m.machine.Revision() != old.Revision() {
		now := m.machine.State
		m.cfg.Applied(index, old, &now)
	}
}

func (mm *metaMachine) Close() error { return nil }
