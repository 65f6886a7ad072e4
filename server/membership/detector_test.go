package membership

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestDetectorSilence: a detector that takes no step is noticed, and one that does is not.
func TestDetectorSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m := &Member{detector: new(detectorDriver)}
		go m.detector.feel(ctx)
		for range 20 { // as run does
			time.Sleep(time.Second + time.Millisecond)
			if d := m.DetectorSilence(); d != 0 {
				t.Errorf("silent for %v, with a step in each second", d)
			}
			m.detector.missed.Store(0)
		}
		time.Sleep(time.Minute)
		if d := m.DetectorSilence(); d < 58*time.Second || d > time.Minute {
			t.Errorf("silent for %v, without a step for a minute", d)
		}
	})
}

// turns drives the failure detector for some time, in which these processes send heartbeats.
func (m *testMember) turns(d time.Duration, alive ...*cluster.Service) {
	for ; d > 0; d -= cluster.HeartbeatPeriod {
		m.clock.Advance(cluster.HeartbeatPeriod)
		for _, p := range alive {
			p.SendHeartbeat()
		}
		m.detector.step(m.t.Context())
	}
}

// wants compares the target of an instance.
func (m *testMember) wants(what string, id uint64, target meta.Variant, reason string) {
	m.t.Helper()
	if i := m.of(id); i.Target.Variant != target || !strings.HasPrefix(i.Reason, reason) {
		m.t.Errorf("%s: the target of %s is %v, because of %q; want %v, %q", what, i.Name, i.Target, i.Reason, target, reason)
	}
}

// TestDetectorMarks: the leader of the meta shard marks an instance offline whose heartbeats stay
// away, and no other one.
func TestDetectorMarks(t *testing.T) {
	m := newLeader(t)
	m.detector.activate()
	two, three := m.process(2, m.of(2).Target.Incarnation), m.process(3, m.of(3).Target.Incarnation)
	m.turns(time.Minute, two, three)
	m.wants("all send heartbeats", 2, meta.Online, "")
	m.turns(failuredetector.DefaultOfflineAfter/2, two)
	m.wants("away for a moment", 3, meta.Online, "")
	m.turns(2*failuredetector.DefaultOfflineAfter, two)
	m.wants("away", 3, meta.Offline, "no heartbeat for ")
	m.wants("beside one that is away", 2, meta.Online, "")
	m.wants("the leader itself", 1, meta.Online, "")
	if n := m.detector.actions[detectorAction{failuredetector.MarkOffline, accepted}]; n != 1 || len(m.detector.actions) != 1 {
		t.Errorf("actions: %v, want one that was accepted", m.detector.actions)
	}
}

// TestFormerProcess: an instance whose process was started again is marked offline if only the
// former process is heard, whose heartbeats may come late, and if the new one is heard before the
// cluster knows of it.
func TestFormerProcess(t *testing.T) {
	m := newLeader(t)
	m.detector.activate()
	three := m.process(3, m.of(3).Target.Incarnation)
	former := m.process(2, m.of(2).Target.Incarnation)
	m.turns(time.Second, former, three)
	m.come(2)
	m.turns(2*failuredetector.DefaultOfflineAfter, former, three)
	m.wants("the former process is heard", 2, meta.Offline, "no heartbeat at all for ")
	m.come(2)
	present := m.process(2, m.of(2).Target.Incarnation)
	m.turns(2*failuredetector.DefaultOfflineAfter, former, present, three)
	m.wants("the present process is heard", 2, meta.Online, "")
	m.come(2)
	m.turns(2*failuredetector.DefaultOfflineAfter, m.process(2, 0), three)
	m.wants("a process is heard that was not registered", 2, meta.Offline, "no heartbeat at all for ")
}

// TestExpelledIsNotMarked: an instance that was expelled is of no interest any more, and what it
// sends does not bring it back.
func TestExpelledIsNotMarked(t *testing.T) {
	m := newLeader(t)
	m.detector.activate()
	two := m.process(2, m.of(2).Target.Incarnation)
	m.do(&meta.InstanceUpdate{Instance: 3, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: true})
	m.turns(3*failuredetector.DefaultOfflineAfter, two)
	m.wants("to be expelled", 3, meta.Expelled, meta.ReasonExpel)
	if len(m.detector.actions) != 0 {
		t.Errorf("actions: %v", m.detector.actions)
	}
}

// TestDetectorComesBack: an instance that was marked offline while its process lives comes back by
// itself, and one that stops goes, once each.
func TestDetectorComesBack(t *testing.T) {
	m := newLeader(t)
	before := m.of(1).Target.Incarnation
	offline := &meta.InstanceUpdate{Instance: 1, Target: meta.Offline, Reason: "no heartbeat"}
	m.do(offline)
	m.turns(10 * time.Second)
	m.wants("before the start has ended", 1, meta.Offline, "no heartbeat")
	m.detector.activate()
	m.turns(10 * time.Second)
	m.wants("afterwards", 1, meta.Online, meta.ReasonAutoOnline)
	if got := m.of(1).Target.Incarnation; got != before+1 {
		t.Errorf("incarnation %d, want %d", got, before+1)
	}
	m.do(&meta.InstanceCurrent{Instance: 1, State: m.of(1).Target})
	m.detector.leave()
	m.turns(10 * time.Second)
	m.wants("it stops", 1, meta.Offline, meta.ReasonShutdown)
	for _, kind := range []failuredetector.ActionKind{failuredetector.GoOnline, failuredetector.GoOffline} {
		if n := m.detector.actions[detectorAction{kind, accepted}]; n != 1 {
			t.Errorf("action %s was accepted %d times, want once", actionNames[kind], n)
		}
	}
}

// TestDetectorWithoutLeader: a follower marks nobody, and what it asks of a leader that does not
// answer is unanswered, and asked again.
func TestDetectorWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		m.detector.activate()
		m.turns(time.Minute)
		if len(m.detector.actions) != 0 {
			t.Errorf("a follower that hears nobody acts: %v", m.detector.actions)
		}
		m.goes(2)
		m.turns(time.Minute)
		if n := m.detector.actions[detectorAction{failuredetector.GoOnline, unanswered}]; n < 2 || len(m.detector.actions) != 1 {
			t.Errorf("actions without a leader: %v", m.detector.actions)
		}
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Expelled, Reason: meta.ReasonExpel})
		clear(m.detector.actions)
		m.turns(time.Minute)
		if len(m.detector.actions) != 0 {
			t.Errorf("an instance that is to be expelled asks: %v", m.detector.actions)
		}
	})
}

// TestActionOutcome: a leader that does not answer has not refused.
func TestActionOutcome(t *testing.T) {
	for status, want := range map[protocol.Status]actionOutcome{
		protocol.StatusOK: accepted, protocol.StatusUnavailable: unanswered, protocol.StatusWrongShard: unanswered,
		protocol.StatusInternal: unanswered, protocol.StatusAborted: refused, protocol.StatusNotFound: refused,
		protocol.StatusPreconditionFailed: refused,
	} {
		if got := actionOutcomeOf(status); got != want {
			t.Errorf("%v is %s, want %s", status, got, want)
		}
	}
}
