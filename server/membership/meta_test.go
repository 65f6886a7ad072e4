package membership

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestMetaBetweenReplicas: the map stands while the replica of the meta shard is replaced, and never
// goes back.
func TestMetaBetweenReplicas(t *testing.T) {
	m := newLeader(t)
	before := m.Meta.State()
	m.Meta.replicaRemoved(7) // a former one
	if !m.Meta.Leading() || m.Meta.Replica() == nil {
		t.Fatal("the removal of another replica counts")
	}
	changed := m.Meta.Changed()
	m.Meta.replicaRemoved(1)
	<-changed
	if m.Meta.Leading() || m.Meta.State() != before {
		t.Errorf("without a replica: leads %v, map %d, want that of entry %d", m.Meta.Leading(),
			m.Meta.State().AppliedIndex(), before.AppliedIndex())
	}
	if err := m.Meta.Sync(t.Context()); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("without a replica: %v", err)
	}
	other := newLeader(t) // whose log is as long
	other.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Offline})
	longer := other.Meta.State()
	empty := makeMember(t, 1)
	empty.machine = meta.New()
	m.Go(m.Meta.setReplica(m.ctx, startReplica(t, empty)))
	if got := m.Meta.State(); got != before {
		t.Errorf("a replica that has not caught up: the map of entry %d, want that of %d", got.AppliedIndex(), before.AppliedIndex())
	}
	m.Go(m.Meta.setReplica(m.ctx, other.Meta.Replica()))
	if got := m.Meta.State(); got.AppliedIndex() != longer.AppliedIndex() {
		t.Errorf("a replica that is ahead: the map of entry %d, want that of %d", got.AppliedIndex(), longer.AppliedIndex())
	}
}

// TestMetaAge: the map is as old as the last confirmation by a majority. A leader has it all the
// time.
func TestMetaAge(t *testing.T) {
	m := newLeader(t)
	if err := m.Meta.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.clock.Advance(time.Minute)
	if d := m.Meta.age(); d != 0 {
		t.Errorf("the leader's map is %v old", d)
	}
	m.Meta.replicaRemoved(1)
	if d := m.Meta.age(); d != time.Minute {
		t.Errorf("the map is %v old, and was confirmed a minute ago", d)
	}
}
