package membership

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestFollowIncarnation: heartbeats have the incarnation that the process itself was given: none
// before it was registered, and the present one when the cluster has marked it offline and it came
// back.
func TestFollowIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		other := m.process(3, 1)
		check := func(what string, want uint64) {
			t.Helper()
			m.clock.Advance(time.Second)
			m.service.SendHeartbeat()
			if h := other.Instances().Health()[2]; h.Heard != m.clock.Now() || h.Incarnation != want {
				t.Errorf("%s: the last heartbeat, %v ago, was of incarnation %d; want %d", what, m.clock.Now()-h.Heard,
					h.Incarnation, want)
			}
		}
		if !m.Follow(m.Meta.State()) {
			t.Error("a member may not go on")
		}
		check("the map knows a former process", 0)
		m.registered.Store(true)
		m.Follow(m.Meta.State())
		check("registered", m.of(2).Target.Incarnation)
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Offline})
		m.Follow(m.Meta.State())
		check("marked offline", 1)
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: meta.ReasonAutoOnline})
		m.Follow(m.Meta.State())
		check("back", 2)
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Offline}) // with the incarnation that it was Online with
		m.Follow(m.Meta.State())
		check("marked offline again", 2)
	})
}

// TestFollowExpelled: an instance that is to be expelled goes on, because its buckets have still to
// move. One that was expelled notes it for its next start, and ends.
func TestFollowExpelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		m.goes(2)
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Reason: meta.ReasonExpel})
		if !m.Follow(m.Meta.State()) || m.entry.Identity().Expelled || len(m.failed) != 0 {
			t.Errorf("to be expelled: %+v, %v", m.entry.Identity(), m.failed)
		}
		m.remove(2, 2)
		m.remove(meta.MetaShardID, 2)
		m.do(&meta.InstanceCurrent{Instance: 2, State: m.of(2).Target})
		if m.Follow(m.Meta.State()) {
			t.Error("an instance that was expelled may go on")
		}
		if !m.entry.Identity().Expelled || len(m.failed) != 1 || !errors.Is(m.failed[0], cluster.ErrExpelled) {
			t.Errorf("expelled: %+v, failed with %v", m.entry.Identity(), m.failed)
		}
	})
}

// TestSavePeers: the next start asks the other instances, without those that were expelled.
func TestSavePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		m.SavePeers(m.Meta.State())
		if got := m.entry.Identity().Known; !slices.Equal(got, []string{address(1), address(3)}) {
			t.Errorf("known: %v", got)
		}
	})
}

// TestSetTarget: an instance that is to be expelled does not come back because it said so before it
// knew. Only the leader of the meta shard takes a target.
func TestSetTarget(t *testing.T) {
	m := newLeader(t)
	ctx := t.Context()
	if err := m.SetTarget(ctx, meta.InstanceUpdate{Instance: 2, Target: meta.Offline, Reason: meta.ReasonShutdown}); err != nil {
		t.Error(err)
	}
	m.wants("it stops", 2, meta.Offline, meta.ReasonShutdown)
	if err := m.SetTarget(ctx, meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: meta.ReasonAutoOnline}); err != nil {
		t.Error(err)
	}
	m.wants("it comes back", 2, meta.Online, meta.ReasonAutoOnline)
	m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: true})
	if err := m.SetTarget(ctx, meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: meta.ReasonAutoOnline}); !errors.Is(err, protocol.StatusPreconditionFailed) {
		t.Errorf("an instance that is to be expelled comes back: %v", err)
	}
	m.wants("to be expelled", 2, meta.Expelled, meta.ReasonExpel)
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		if err := m.SetTarget(t.Context(), meta.InstanceUpdate{Instance: 2, Target: meta.Offline}); !errors.Is(err, protocol.StatusWrongShard) {
			t.Errorf("a follower takes a target: %v", err)
		}
	})
}

// TestStopped: an instance whose target is Offline because it was stopped has stopped as planned,
// and one that was marked has not. The case of its address does not matter.
func TestStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		for reason, want := range map[string]bool{meta.ReasonShutdown: true, "no heartbeat for 5s": false} {
			m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Online, Reason: reason})
			if m.Stopped("A2:1") {
				t.Error("an instance that is to be Online has stopped")
			}
			m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Offline, Reason: reason})
			if got := m.Stopped("A2:1"); got != want {
				t.Errorf("stopped because of %q: %v, want %v", reason, got, want)
			}
		}
	})
}
