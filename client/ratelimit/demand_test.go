package ratelimit

import (
	"math"
	"math/rand/v2"
	"testing"
)

// demandTest is a leaf whose callers and looks are driven by hand: ten looks a second.
type demandTest struct {
	*testing.T
	l   *leaf
	d   *demand
	now int64
}

func newDemandTest(t *testing.T) *demandTest {
	x := &demandTest{T: t, l: newLeaf(newPart("api"), "api"), now: 1e9}
	x.d = &x.l.demand
	x.l.length = 1500
	x.l.burst, x.l.rate = 1<<40, 1
	x.l.report(x.now) // the first refresh
	return x
}

// call is one that is admitted.
func (x *demandTest) call(amount uint64) {
	x.l.attempt(amount)
	x.l.allowed.Add(amount)
}

// looks is after how many looks of most the server is to hear; 0: it is not. Each has 100 ms of calls
// before it.
func (x *demandTest) looks(most int, calls func()) int {
	for i := range most {
		calls()
		x.now += 1e8
		if x.d.changed(x.now, x.l) {
			return i + 1
		}
	}
	return 0
}

// refresh reports, with 100 ms of calls before it.
func (x *demandTest) refresh(calls func()) (waiting bool) {
	calls()
	x.now += 1e8
	return x.l.report(x.now).Waiting > 0
}

// TestDemandChanges: the server hears at once of a demand that rose, and of one that fell for a second;
// as long as it stays, calls that are denied send nothing.
func TestDemandChanges(t *testing.T) {
	x := newDemandTest(t)
	attempts := func(calls int) func() { // of one unit each
		return func() {
			for range calls {
				x.call(1000)
			}
		}
	}
	if n := x.looks(20, attempts(0)); n != 0 {
		t.Errorf("nobody calls, and look %d finds a change", n)
	}
	if n := x.looks(1, attempts(10)); n != 1 {
		t.Error("calls begin, and nothing changes")
	}
	for range 3 { // the last one has seen enough calls
		x.refresh(attempts(10))
	}
	if got := x.d.reported; got != 120_000 {
		t.Errorf("100 units a second are a demand of %d", got)
	}
	for range 3 { // from the peak that calls begin with to the average
		x.looks(10, attempts(10))
		x.refresh(attempts(10))
	}
	if n := x.looks(30, attempts(10)); n != 0 {
		t.Errorf("the demand stays, and look %d finds a change", n)
	}
	x.refresh(attempts(10))
	if n := x.looks(5, attempts(20)); n == 0 {
		t.Error("twice as many calls change nothing")
	}
	x.refresh(attempts(20))
	if n := x.looks(20, attempts(0)); n != 5 {
		t.Errorf("calls end, and look %d finds a change", n)
	}
	for range 3 {
		x.now += 1e9
		x.refresh(attempts(0))
	}
	if x.d.reported != 0 || x.d.patience() != 0 {
		t.Errorf("calls have ended, and the demand is %d", x.d.reported)
	}
	x.l.rate, x.l.burst = 1, 5000
	if n := x.looks(1, attempts(0)); n != 0 {
		t.Error("nothing changed")
	}
	x.call(9000)
	x.d.reported = 1 << 40 // so that it is no change of the rate
	if n := x.looks(1, attempts(0)); n != 1 {
		t.Error("a call larger than the burst of the lease changes nothing")
	}
}

// TestFewCalls: ten calls a second, which come at any time, are a demand that stays: two of them
// soon after each other are no change.
func TestFewCalls(t *testing.T) {
	x := newDemandTest(t)
	r, calls := rand.New(rand.NewPCG(1, 2)), 0
	changes, least, most := 0, uint64(math.MaxUint64), uint64(0)
	for look := range 600 {
		for calls < look && r.IntN(2) == 0 || calls < look-2 { // 1 in 100 ms, now and then none or more
			x.call(1000)
			calls++
		}
		x.now += 1e8
		if look < 50 {
			x.l.report(x.now)
			continue
		}
		if x.d.changed(x.now, x.l) {
			changes++
			x.l.report(x.now)
		} else if look%10 == 0 {
			x.l.report(x.now)
		}
		least, most = min(least, x.d.reported), max(most, x.d.reported)
	}
	if changes > 55 || least < 8_000 || most > 17_000 {
		t.Errorf("10 calls a second are a demand of %d to %d, with %d changes in 55 s", least, most, changes)
	}
}

// TestPauseOfFewCalls: ten calls a second that pause for a moment are no change. Hundreds are one.
func TestPauseOfFewCalls(t *testing.T) {
	for calls, want := range map[int]int{1: 0, 20: 5} { // in 100 ms
		x := newDemandTest(t)
		x.l.length = 3000
		for range 50 {
			x.refresh(func() {
				for range calls {
					x.call(1000)
				}
			})
		}
		if n := x.looks(9, func() {}); n != want {
			t.Errorf("%d calls a second pause, and look %d finds a change, not %d", 10*calls, n, want)
		}
	}
}

// TestOftenReported: refreshes that others cause, between the calls too, do not change the demand.
// What a refresh told of a call's size counts until the average is taken.
func TestOftenReported(t *testing.T) {
	for _, amount := range []uint64{1000, 40_000} {
		x := newDemandTest(t)
		most := uint64(0)
		for tick := range 600 {
			if tick%10 == 0 {
				x.call(amount)
			}
			if x.now += 1e7; tick%3 == 0 {
				if x.l.report(x.now); tick >= 200 {
					most = max(most, x.d.reported)
				}
			}
		}
		if most < 11*amount || most > 14*amount {
			t.Errorf("ten calls of %d a second, reported each 30 ms, are a demand of up to %d", amount, most)
		}
	}
}

// TestWaitingChanges: so it does of calls that wait. A queue that is empty now and then still is one.
func TestWaitingChanges(t *testing.T) {
	x := newDemandTest(t)
	var m machine
	enqueue := func() { m.enqueue(x.now, &call{leaves: []*leaf{x.l}, amount: 0}) }
	finish := func() {
		for c := x.l.head(); c != nil; c = x.l.head() {
			m.finish(x.now, c, nil)
		}
	}
	if n := x.looks(1, enqueue); n != 1 || !x.refresh(func() {}) {
		t.Errorf("a call waits: %d", n)
	}
	if x.d.patience() != demandGap {
		t.Error("nobody looks whether the calls still wait")
	}
	toggle := func() { enqueue(); finish() }
	for range 3 {
		if n := x.looks(9, toggle); n != 0 || !x.refresh(toggle) {
			t.Errorf("look %d finds a change of a queue that is empty now and then", n)
		}
	}
	if n := x.looks(3, finish); n < 1 || n > 2 || x.refresh(finish) {
		t.Errorf("no call waits any more: %d", n)
	}
	if n := x.looks(9, finish); n != 0 {
		t.Errorf("look %d finds a change of an empty queue", n)
	}
}
