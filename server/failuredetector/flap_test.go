package failuredetector

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestNoFlapping: whichever of the ways between the leader and an instance are cut, the instance's
// target does not go up and down without end. No instance that is heard is marked, and after the
// cut the instance is online again.
func TestNoFlapping(t *testing.T) {
	for cut := range 8 {
		heartbeats, requests, log := cut&1 == 0, cut&2 == 0, cut&4 == 0
		leader, member := New(0), New(0)
		leader.Activate()
		member.Activate()
		state := View{Leading: true, Self: 1, Applied: 100, Members: []Member{{1, Online, 1}, {2, Online, 1}}}
		set := func(target Target) {
			members := append([]Member(nil), state.Members...)
			members[1].Target = target
			if target == Online {
				members[1].Incarnation++
			}
			state.Members = members
			state.Applied++
		}
		seen := state // by the member
		marks, wakes := 0, 0
		tick := func(now time.Duration, heartbeats, requests, log bool) {
			if log {
				seen = state
			}
			seen.Leading, seen.Self = false, 2
			if heartbeats {
				leader.HeartbeatReceived(2, seen.Members[1].Incarnation, seen.Applied, now)
			} else {
				leader.HeartbeatFailed(2, now)
			}
			if a, _ := leader.Step(now, state); a.Kind != None {
				marks++
				set(Offline)
				leader.Finished(a, protocol.StatusOK, state.Applied, now)
			}
			if a, _ := member.Step(now, seen); a.Kind != None {
				outcome := protocol.StatusUnavailable
				if requests {
					outcome = protocol.StatusOK
					wakes++
					set(Online)
				}
				member.Finished(a, outcome, seen.Applied, now)
			}
		}
		now := time.Duration(0)
		run := func(d time.Duration, heartbeats, requests, log bool) {
			for end := now + d; now < end; now += beat {
				tick(now, heartbeats, requests, log)
				if now%(20*beat) == 0 {
					state.Applied++ // the cluster lives
				}
			}
		}
		run(10*time.Second, true, true, true)
		run(3*time.Hour, heartbeats, requests, log)
		if heartbeats && log && marks > 0 {
			t.Errorf("heartbeats %v, requests %v, log %v: marked %d times although it is heard and follows",
				heartbeats, requests, log, marks)
		}
		if (!heartbeats || !log) && marks == 0 {
			t.Errorf("heartbeats %v, requests %v, log %v: never marked", heartbeats, requests, log)
		}
		if marks > 3*6+10 || wakes > marks+1 { // one per ten minutes in the end
			t.Errorf("heartbeats %v, requests %v, log %v: marked %d and woken %d times in three hours", heartbeats,
				requests, log, marks, wakes)
		}
		marks = 0
		run(25*time.Minute, true, true, true)
		if state.Members[1].Target != Online || marks > 0 {
			t.Errorf("heartbeats %v, requests %v, log %v: target %v after the cut, marked %d times", heartbeats,
				requests, log, state.Members[1].Target, marks)
		}
	}
}
