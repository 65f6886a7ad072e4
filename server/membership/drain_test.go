package membership

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// drain runs a drain, and returns a function that reports whether it has ended by now.
func (m *testMember) drain(ctx context.Context) (ended func() bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Drain(ctx)
	}()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

// TestDrain: an instance that stops asks to be Offline, sends heartbeats, and waits until the
// cluster has it Offline and what it leads is led elsewhere.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		two := m.process(2, 1)
		two.SendHeartbeat()
		m.process(3, 1).SendHeartbeat()
		ended := m.drain(t.Context())
		wait := func(what string) {
			t.Helper()
			if time.Sleep(2 * offlineLinger); ended() {
				t.Fatalf("%s: drained", what)
			}
		}
		synctest.Wait()
		if _, ok := two.Instances().Health()[1]; !ok {
			t.Error("no heartbeat says what is led here")
		}
		m.detector.step(t.Context())
		if n := m.detector.actions[detectorAction{failuredetector.GoOffline, unanswered}]; n != 1 {
			t.Errorf("asked to be Offline %d times, want once", n)
		}
		m.clock.Advance(time.Millisecond)
		wait("the cluster does not know")
		if h := two.Instances().Health()[1]; h.Heard != m.clock.Now() {
			t.Error("no heartbeat while it waits")
		}
		m.do(&meta.InstanceUpdate{Instance: 1, Target: meta.Offline, Reason: meta.ReasonShutdown})
		wait("it is to be Offline")
		m.do(&meta.InstanceCurrent{Instance: 1, State: m.of(1).Target})
		if ended() {
			t.Fatal("nobody could hear of it: it stops at once")
		}
		time.Sleep(offlineLinger)
		if !ended() {
			t.Fatal("not drained")
		}
	})
}

// TestDrainAgain: an instance that was marked offline, and is to be Online, is not drained.
func TestDrainAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		m.process(2, 1).SendHeartbeat()
		m.process(3, 1).SendHeartbeat()
		m.goes(1)
		m.do(&meta.InstanceUpdate{Instance: 1, Target: meta.Online})
		ended := m.drain(t.Context())
		if time.Sleep(time.Minute); ended() {
			t.Error("drained while it is to be Online")
		}
		m.goes(1)
		time.Sleep(offlineLinger)
		if !ended() {
			t.Error("not drained")
		}
	})
}

// TestTransferable: what another voter can lead keeps an instance from its end, until it leads that
// no more or no such voter is Online.
func TestTransferable(t *testing.T) {
	for what, change := range map[string]func(m *testMember){
		"it leads no more":            func(m *testMember) { m.leads() },
		"the map has no such shard":   func(m *testMember) { m.leads(9) },
		"the voter stops":             func(m *testMember) { m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Offline}) },
		"the voter has lost its vote": func(m *testMember) { m.unvote(2, 2) },
		"the voter comes": func(m *testMember) {
			m.goes(2)
			m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Online})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMember(t, 1)
				m.process(2, 1).SendHeartbeat()
				m.process(3, 1).SendHeartbeat()
				m.leads(2)
				m.goes(1)
				m.unvote(2, 3)
				ended := m.drain(t.Context())
				if time.Sleep(time.Minute); ended() {
					t.Fatal("drained while another instance can lead its shard")
				}
				change(m)
				if time.Sleep(drainPoll + offlineLinger); !ended() {
					t.Error("not drained")
				}
			})
		})
	}
}

// TestDrainGivenUp: a drain ends when it cannot go on.
func TestDrainGivenUp(t *testing.T) {
	for what, end := range map[string]func(m *testMember, cancel func()){
		"too long": func(_ *testMember, cancel func()) { cancel() },
		"failed":   func(m *testMember, _ func()) { close(m.failures) },
		"no quorum": func(m *testMember, _ func()) {
			m.clock.Advance(missedAfter + time.Second)
			time.Sleep(drainPoll)
		},
		"nobody else": func(m *testMember, _ func()) {
			m.goes(2)
			m.goes(3)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMember(t, 1)
				m.process(2, 1).SendHeartbeat()
				m.process(3, 1).SendHeartbeat()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := m.drain(ctx)
				if ended() {
					t.Fatal("given up at once")
				}
				end(m, cancel)
				if !ended() {
					t.Error("goes on")
				}
			})
		})
	}
}

// TestNoSuccessor: there is nobody to drain to without another instance that is Online, or
// without a majority that is up. A voter that was never heard is waited for.
func TestNoSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		check := func(what string, waited time.Duration, want string) {
			t.Helper()
			if got := m.NoSuccessor(m.Meta.State(), waited); !strings.Contains(got, want) || (got == "") != (want == "") {
				t.Errorf("%s, waited for %v: %q, want %q", what, waited, got, want)
			}
		}
		check("nobody was heard yet", 0, "")
		check("nobody was heard yet", missedAfter, "")
		check("nobody was heard", missedAfter+1, "1 of 3 voting instances up")
		two := m.process(2, 1)
		two.SendHeartbeat()
		check("one was heard", time.Hour, "")
		m.do(&meta.InstanceUpdate{Instance: 3, Target: meta.Offline})
		m.do(&meta.InstanceCurrent{Instance: 3, State: m.of(3).Target})
		check("the other instance is down", time.Hour, "")
		m.clock.Advance(missedAfter + 1)
		check("the one that was heard is silent", 0, "1 of 3")
		m.do(&meta.Join{UUID: "u4", Name: "i4", Address: "a4:2", RaftAddress: address(4), Tier: "default",
			Version: meta.Version{Minor: 1}})
		m.come(4)
		m.do(&meta.ReplicaAdd{Shard: meta.MetaShardID, Instance: 4, TargetRole: meta.RoleNonVoting})
		m.process(4, 1).SendHeartbeat()
		check("one without a vote is heard", 0, "1 of 3")
		m.goes(4)
		two.SendHeartbeat()
		m.unvote(meta.MetaShardID, 1)
		check("this instance has no vote, and one of two others is up", 0, "1 of 2 voting instances up")
		m.goes(2)
		check("it sends heartbeats, and is Offline", 0, "no other instance is Online")
		m.come(2)
		m.do(&meta.InstanceUpdate{Instance: 1, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: true})
		check("expelled", 0, "this instance was expelled")
	})
}

// TestNeededAmongUp: the shard is named that loses its majority with this instance. A voter that
// was never heard does not count.
func TestNeededAmongUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		two, three := m.process(2, 1), m.process(3, 1)
		two.SendHeartbeat()
		if got, want := m.NeededAmongUp(), "without this instance shard 2 has 1 of 3 voters up"; got != want {
			t.Errorf("one other voter was heard: %q, want %q", got, want)
		}
		three.SendHeartbeat()
		if got := m.NeededAmongUp(); got != "" {
			t.Errorf("both were heard: %q", got)
		}
		m.clock.Advance(missedAfter + 1)
		three.SendHeartbeat()
		if got := m.NeededAmongUp(); got == "" {
			t.Error("one has been silent, and nothing needs this instance")
		}
		m.unvote(2, 1)
		if got, want := m.NeededAmongUp(), fmt.Sprintf("without this instance shard %d has 1 of 3 voters",
			meta.MetaShardID); !strings.HasPrefix(got, want) {
			t.Errorf("without a vote in the data shard: %q, want %q", got, want)
		}
	})
}
