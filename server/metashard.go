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
	mu      sync.Mutex
	rep     *replica.Meta // nil before the first, and between two
	last    meta.State    // the newest state that was seen
	changed chan struct{}
	clock   replica.Clock
	sure    time.Duration // when a majority confirmed the state last: the begin of that Sync

	unfollow context.CancelFunc // ends the goroutine that follows rep
}

func newMetaShard(clock replica.Clock) *metaShard {
	return &metaShard{changed: make(chan struct{}), clock: clock}
}

// use makes a replica the one behind it, and returns the function that follows it, until ctx ends or another one takes its place.
func (m *metaShard) use(ctx context.Context, rep *replica.Meta) (follow func()) {
	ctx, cancel := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unfollow != nil {
		m.unfollow()
	}
	m.rep, m.unfollow = rep, cancel
	m.tell()
	return func() {
		defer cancel()
		for {
			c := rep.Changed()
			m.mu.Lock()
			if m.rep != rep {
				m.mu.Unlock()
				return
			}
			m.look()
			m.tell()
			m.mu.Unlock()
			select {
			case <-c:
			case <-ctx.Done():
				return
			}
		}
	}
}

// look takes over what the replica has applied, if it is newer: by the log's index, which goes on also where an entry changes nothing in the map. mu is held.
func (m *metaShard) look() {
	if m.rep == nil {
		return
	}
	if s := m.rep.State(); s.AppliedIndex() > m.last.AppliedIndex() {
		m.last = s
	}
}

// tell wakes who waits for a change; mu is held.
func (m *metaShard) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// lost says that a replica was removed, or stopped for good. Its last state stays.
func (m *metaShard) lost(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rep == nil || m.rep.Replica() != id {
		return
	}
	m.look()
	m.rep = nil
	m.unfollow()
	m.tell()
}

func (m *metaShard) now() *replica.Meta {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rep
}

// State is the newest map that was applied here.
func (m *metaShard) State() *meta.State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	s := m.last
	return &s
}

// View implements governor.Meta. The machine is a copy, good for reading its state.
func (m *metaShard) View(f func(m *meta.Machine)) { f(&meta.Machine{State: *m.State()}) }

// Propose implements governor.Meta.
func (m *metaShard) Propose(ctx context.Context, cmd []byte) ([]byte, error) {
	rep := m.now()
	if rep == nil {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "this instance has no replica of the meta shard at the moment; ask again")
	}
	return rep.Propose(ctx, cmd)
}

// Leading implements governor.Meta.
func (m *metaShard) Leading() bool {
	rep := m.now()
	return rep != nil && rep.Leading()
}

// Sync waits until everything that was acknowledged anywhere before the call is applied here.
func (m *metaShard) Sync(ctx context.Context) error {
	rep := m.now()
	if rep == nil {
		return protocol.Errorf(protocol.StatusUnavailable, "this instance has no replica of the meta shard at the moment; ask again")
	}
	began := m.clock.Now()
	err := rep.Sync(ctx)
	if err == nil {
		m.mu.Lock()
		m.sure = max(m.sure, began)
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
	return m.clock.Now() - m.sure
}

// Changed implements governor.Meta.
func (m *metaShard) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}
