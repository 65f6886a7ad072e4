package membership

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Meta is the meta shard as this instance reaches it. The replica behind it changes when the
// instance loses its vote: the engine cannot take a vote away, so the replica is removed and
// another one is added. The map never goes back meanwhile: until the new replica has caught up, the
// old one's last state stands.
type Meta struct {
	mu          sync.Mutex
	replica     *replica.Meta // nil before the first, and between two
	last        *meta.State   // the newest state that was seen; never changed
	changed     chan struct{}
	clock       replica.Clock
	confirmedAt time.Duration // when a majority confirmed the state last: the begin of that Sync

	unfollow context.CancelFunc // ends the goroutine that follows rep
}

// NewMeta returns one without a replica yet.
func NewMeta(clock replica.Clock) *Meta {
	return &Meta{last: new(meta.State), changed: make(chan struct{}), clock: clock}
}

// setReplica makes a replica the one behind it. It returns the function that follows the replica,
// until ctx ends or another one takes its place.
func (m *Meta) setReplica(ctx context.Context, rep *replica.Meta) (follow func()) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unfollow != nil {
		m.unfollow()
	}
	m.replica, m.unfollow = rep, cancel
	m.notify()
	return func() {
		defer cancel()
		for {
			c := rep.Changed()
			m.mu.Lock()
			if m.replica != rep {
				m.mu.Unlock()
				return
			}
			m.refresh()
			m.notify()
			m.mu.Unlock()
			select {
			case <-c:
			case <-ctx.Done():
				return
			}
		}
	}
}

// refresh takes over what the replica has applied, if it is newer by the log's index: that advances
// even if an entry changes nothing in the map. The caller holds mu.
func (m *Meta) refresh() {
	if m.replica == nil {
		return
	}
	m.replica.View(func(machine *meta.Machine) {
		if machine.AppliedIndex() > m.last.AppliedIndex() {
			s := machine.State
			m.last = &s
		}
	})
}

// notify wakes those that wait for a change. The caller holds mu.
func (m *Meta) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// replicaRemoved notes that a replica was removed, or stopped for good. Its last state stays.
func (m *Meta) replicaRemoved(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.replica == nil || m.replica.Replica() != id {
		return
	}
	m.refresh()
	m.replica = nil
	m.unfollow()
	m.notify()
}

// Replica is the replica behind it, nil between two.
func (m *Meta) Replica() *replica.Meta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replica
}

// State implements governor.Meta: it is the newest map that was applied here. All calls until the
// next change return the same one, since each start of a session asks.
func (m *Meta) State() *meta.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	return m.last
}

// Propose implements governor.Meta.
func (m *Meta) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	rep := m.Replica()
	if rep == nil {
		return nil, errNoReplica
	}
	return rep.Propose(ctx, cmd)
}

// Leading implements governor.Meta.
func (m *Meta) Leading() bool {
	rep := m.Replica()
	return rep != nil && rep.Leading()
}

var errNoReplica = protocol.Errorf(protocol.StatusUnavailable,
	"this instance has no replica of the meta shard at the moment; ask again")

// Sync waits until everything is applied here that was acknowledged anywhere before the call.
func (m *Meta) Sync(ctx context.Context) error {
	rep := m.Replica()
	if rep == nil {
		return errNoReplica
	}
	began := m.clock.Now()
	err := rep.Sync(ctx)
	if err == nil {
		m.mu.Lock()
		m.confirmedAt = max(m.confirmedAt, began)
		m.mu.Unlock()
	}
	return err
}

// age is the time since a majority of the meta shard confirmed the state. A leader hears it with
// each heartbeat of its followers, or it would not lead any more.
func (m *Meta) age() time.Duration {
	if m.Leading() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Now() - m.confirmedAt
}

// Changed implements governor.Meta. The channel is closed at the next change.
func (m *Meta) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Backup writes a snapshot of the map, with everything that was acknowledged before the call, and
// returns the index of its last entry.
func (m *Meta) Backup(ctx context.Context, w io.Writer) (index uint64, err error) {
	rep := m.Replica()
	if rep == nil {
		return 0, errNoReplica
	}
	if err := rep.Sync(ctx); err != nil {
		return 0, err
	}
	return rep.Backup(w)
}

// leaderInstance is the instance that leads the meta shard, as far as is known here; 0 for none.
func (m *Meta) leaderInstance(state *meta.State) uint64 {
	rep := m.Replica()
	if rep == nil {
		return 0
	}
	group := state.MetaShard()
	leader, _ := group.Replica(rep.LeaderReplica())
	return leader.Instance
}
