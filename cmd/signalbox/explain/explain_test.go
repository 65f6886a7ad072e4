package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestWhyEachKindWaits: what is said of each kind of waiter, without the tables behind it.
func TestWhyEachKindWaits(t *testing.T) {
	owner := func(session, count uint64) client.Owner {
		return client.Owner{Session: session, Token: session, Count: count, Description: "owner"}
	}
	waiter := func(count uint64) client.Waiter {
		return client.Waiter{Session: 9, Place: 9, Count: count, Timeout: client.Forever, Since: time.Now(),
			Priority: 5}
	}
	slots := func(states ...client.SlotState) (list []client.Slot) {
		for i, state := range states {
			x := client.Slot{Name: string(rune('a' + i)), Labels: []string{"big"}, State: state}
			if state == client.SlotHeld || state == client.SlotDraining {
				x.Session = 1
			}
			list = append(list, x)
		}
		return append(list, client.Slot{Name: "small", State: client.SlotHeld, Session: 2})
	}
	first := waiter(3)
	first.Session, first.Place = 8, 8
	big := waiter(1)
	big.Labels = []string{"big"}
	named := waiter(1)
	named.Slots = []string{"a"}
	keyed := waiter(1)
	keyed.Key = "ads"
	late := waiter(1)
	late.Timeout = time.Hour
	bounded, asked, silent := owner(1, 1), owner(1, 1), owner(1, 1)
	bounded.Left = 90 * time.Second
	asked.Preempted, asked.Left = true, 90*time.Second
	silent.Preempted, silent.Silent, silent.Slots = true, true, []string{"a", "b"}
	asksLater := owner(1, 1)
	asksLater.Preempted = true
	for _, x := range []struct {
		name string
		w    client.QueueStatus
		want string
	}{
		{"nobody waits", client.QueueStatus{Free: 2, Limit: 3, Holders: []client.Owner{owner(1, 1)}}, "2 of 3 free"},
		{"it is held", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{owner(1, 1)}},
			"session 9 is first in the queue of x and wants 1; 0 of 1 free|it came 0s ago"},
		{"gives up", client.QueueStatus{Waiting: true, Position: 1, Own: late, Limit: 1, Holders: []client.Owner{owner(1, 1)}},
			"it came 0s ago and gives up in 1h0m"},
		{"what is free is kept", client.QueueStatus{Waiting: true, Position: 2, Own: waiter(1), Ahead: []client.Waiter{first}, Free: 2,
			Limit: 3, Holders: []client.Owner{owner(1, 1)}},
			"is number 2 in the queue of x and wants 1; 2 of 3 free|the queue is strict|what is free is kept for the first in the queue, which wants 3"},
		{"never", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(3), Free: 2, Limit: 2},
			"it wants 3 of limit 2 and can never be granted, unless the limit is raised or it leaves the queue"},
		{"behind never", client.QueueStatus{Waiting: true, Position: 2, Own: waiter(1), Ahead: []client.Waiter{first}, Free: 2, Limit: 2},
			"session 8 wants 3 of limit 2 and can never be granted, and nobody behind it"},
		{"lowered limit", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 2, Holders: []client.Owner{owner(1, 3)}},
			"3 are held, more than the limit of 2: it was lowered"},
		{"a lock that is held", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(client.Max), Limit: client.Max,
			Holders: []client.Owner{owner(1, client.Max)}}, "wants all of it; it is held whole"},
		{"a lock that is shared", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(client.Max), Limit: client.Max,
			Holders: []client.Owner{owner(1, 1), owner(2, 1)}}, "wants all of it; 2 of its units are held"},
		{"behind the first 16", client.QueueStatus{Waiting: true, Own: keyed, Limit: 1, Holders: []client.Owner{owner(1, 1)},
			Config: &client.SemaphoreConfig{Policy: client.PolicyFair, Weights: map[string]uint64{"ads": 2}}},
			`is not among the 16 that are next in the queue of x, and wants 1; 0 of 1 free|keys share the units by weight; its key "ads" has weight 2`},
		{"no key", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1,
			Config: &client.SemaphoreConfig{Policy: client.PolicyFair}}, "it has no key, and weight 1"},
		{"priority", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{owner(1, 1)},
			Config: &client.SemaphoreConfig{Policy: client.PolicyPriority, Preempt: client.PreemptLower}},
			"the highest priority is served first; it has priority 5|nobody is preempted: owners with a priority below 5 do not hold enough"},
		{"a slot", client.QueueStatus{Waiting: true, Position: 1, Own: named, Limit: 3,
			Config: &client.SemaphoreConfig{Slots: slots(client.SlotHeld, client.SlotFree)}},
			"wants slot a; it is held|first come, first served on each slot"},
		{"labels", client.QueueStatus{Waiting: true, Position: 1, Own: big, Limit: 4,
			Config: &client.SemaphoreConfig{Slots: slots(client.SlotHeld, client.SlotHeld, client.SlotDrained)}},
			"wants 1 slot with big; 3 slots have that: 2 held, 1 drained"},
		{"drained", client.QueueStatus{Waiting: true, Position: 1, Own: named, Limit: 2,
			Config: &client.SemaphoreConfig{Slots: slots(client.SlotDraining)}},
			"wants slot a; it is draining|it cannot be granted before `signalbox sem undrain x a`"},
		{"left out", client.QueueStatus{Waiting: true, Position: 1, Own: named, Limit: 1, Config: &client.SemaphoreConfig{Slots: slots()}},
			"wants slot a; it is not in the list any more|it cannot be granted: slots that it takes are not in the list any more"},
		{"any slot", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(2), Limit: 3,
			Config: &client.SemaphoreConfig{Slots: slots(client.SlotHeld, client.SlotFree)}}, "wants 2 slots; 3 slots: 1 free, 2 held"},
		{"a slot is kept", client.QueueStatus{Waiting: true, Position: 2, Own: big, Ahead: []client.Waiter{waiter(2)}, Limit: 3,
			Config: &client.SemaphoreConfig{Slots: slots(client.SlotHeld, client.SlotFree)}},
			"b is kept for those ahead in the queue that take it too"},
		{"a hold with a bound", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{bounded}},
			"the hold of session 1 (owner) ends by itself in 1m30s"},
		{"bounds of others", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{owner(2, 1), bounded}},
			"the first hold that ends by itself is that of session 1 (owner), in 1m30s"},
		{"preempted", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{asked},
			Config: &client.SemaphoreConfig{Preempt: client.PreemptAny}}, "session 1 (owner) is asked to give back what it holds, within 1m30s"},
		{"preempted without a grace", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1, Holders: []client.Owner{asksLater},
			Config: &client.SemaphoreConfig{Preempt: client.PreemptAny}}, "what it holds, and may take its time: there is no --grace"},
		{"silent", client.QueueStatus{Waiting: true, Position: 1, Own: big, Limit: 3, Holders: []client.Owner{silent},
			Config: &client.SemaphoreConfig{Preempt: client.PreemptAny, Slots: slots(client.SlotHeld, client.SlotHeld)}},
			"session 1 (owner) is asked to give back a and b, and does not answer|" +
				"it holds on until its session ends, or until `signalbox sem force-release x --token 1 --reason WHY`"},
		{"nobody has enough", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1,
			Config: &client.SemaphoreConfig{Preempt: client.PreemptAny}}, "nobody is preempted: what owners hold would not be enough"},
		{"behind another semaphore", client.QueueStatus{Waiting: true, Position: 1, Own: waiter(1), Limit: 1,
			Behind: []client.WaitStep{{Session: 1, Name: "y", By: 3, Holds: true, Token: 7}}, Unread: "1 session"},
			"in turn, session 1 waits for y since|not read, and taken to go on: 1 session"},
	} {
		t.Run(x.name, func(t *testing.T) {
			got := strings.Join(Lines("", "x", 9, &x.w), "\n")
			for _, want := range strings.Split(x.want, "|") {
				if !strings.Contains(got, want) {
					t.Errorf("it lacks %q:\n%s", want, got)
				}
			}
		})
	}
}
