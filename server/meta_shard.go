package server

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// metaShard is this instance's way to the meta shard. The replica behind it changes when the instance loses its vote: the engine cannot take a vote away, so the replica
// is removed and another one added. The map never goes back meanwhile: until the new replica has caught up, the old one's last state stands.
type metaShard struct {
	mu          sync.Mutex
	replica     *replica.Meta // nil before the first, and between two
	last        meta.State    // the newest state that was seen
	changed     chan struct{}
	clock       replica.Clock
	confirmedAt time.Duration // when a majority confirmed the state last: the begin of that Sync

	unfollow context.CancelFunc // ends the goroutine that follows rep
}

func newMetaShard(clock replica.Clock) *metaShard {
	return &metaShard{changed: make(chan struct{}), clock: clock}
}

// setReplica makes a replica the one behind it, and returns the function that follows it, until ctx ends or another one takes its place.
func (m *metaShard) setReplica(ctx context.Context, rep *replica.Meta) (follow func()) {
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

// refresh takes over what the replica has applied, if it is newer: by the log's index, which goes on also where an entry changes nothing in the map. mu is held.
func (m *metaShard) refresh() {
	if m.replica == nil {
		return
	}
	if s := m.replica.State(); s.AppliedIndex() > m.last.AppliedIndex() {
		m.last = s
	}
}

// notify wakes who waits for a change; mu is held.
func (m *metaShard) notify() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// replicaRemoved says that a replica was removed, or stopped for good. Its last state stays.
func (m *metaShard) replicaRemoved(id uint64) {
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

func (m *metaShard) current() *replica.Meta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replica
}

// State is the newest map that was applied here.
func (m *metaShard) State() *meta.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
	s := m.last
	return &s
}

// View implements governor.Meta. The machine is a copy, good for reading its state.
func (m *metaShard) View(f func(m *meta.Machine)) { f(&meta.Machine{State: *m.State()}) }

// Propose implements governor.Meta.
func (m *metaShard) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	rep := m.current()
	if rep == nil {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "this instance has no replica of the meta shard at the moment; ask again")
	}
	return rep.Propose(ctx, cmd)
}

// Leading implements governor.Meta.
func (m *metaShard) Leading() bool {
	rep := m.current()
	return rep != nil && rep.Leading()
}

// Sync waits until everything that was acknowledged anywhere before the call is applied here.
func (m *metaShard) Sync(ctx context.Context) error {
	rep := m.current()
	if rep == nil {
		return protocol.Errorf(protocol.StatusUnavailable, "this instance has no replica of the meta shard at the moment; ask again")
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

// age is how long ago a majority of the meta shard confirmed the state last. A leader is told it with each
// heartbeat of its followers, else it would lead no more.
func (m *metaShard) age() time.Duration {
	if m.Leading() {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock.Now() - m.confirmedAt
}

// Changed implements governor.Meta.
func (m *metaShard) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}
