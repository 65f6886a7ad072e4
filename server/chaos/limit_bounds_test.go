package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// limitDrift is how far the clock of a leader and those of its clients may be apart. Here they are
// one: this is for times that are whole milliseconds.
const limitDrift = 0.01

// limitBound is what a resource allows: units per second, and units at once.
type limitBound struct{ rate, burst float64 }

// in is the most that may be admitted in a window.
func (b limitBound) in(window time.Duration) float64 {
	return (1+limitDrift)*b.rate*window.Seconds() + b.burst
}

// limitWindows are the lengths that are looked at.
var limitWindows = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}

// fullestWindow finds the window of a length in which most was admitted for certain: what began and
// ended in it. A window begins where an admission does.
func fullestWindow(list []admission, window time.Duration) (most int, at time.Duration) {
	byEnd := slices.Clone(list)
	slices.SortFunc(byEnd, func(a, b admission) int { return cmp.Compare(a.To, b.To) })
	byStart := slices.Clone(list)
	slices.SortFunc(byStart, func(a, b admission) int { return cmp.Compare(b.From, a.From) })
	counts := make([]int, len(list)+1) // a Fenwick tree over ends
	endsUpTo := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(byEnd, t+1, func(a admission, t time.Duration) int { return cmp.Compare(a.To, t) })
		return i
	}
	taken := map[time.Duration]int{} // equal ends have places of their own
	for i, a := range byStart {
		place := endsUpTo(a.To-1) + taken[a.To] + 1
		taken[a.To]++
		for k := place; k < len(counts); k += k & -k {
			counts[k]++
		}
		if i+1 < len(byStart) && byStart[i+1].From == a.From {
			continue
		}
		n := 0
		for k := endsUpTo(a.From + window); k > 0; k -= k & -k {
			n += counts[k]
		}
		if n > most {
			most, at = n, a.From
		}
	}
	return most, at
}

// checkWindows fails if any window has more than its bound. It returns the fullest windows as parts of
// their bounds.
func checkWindows(list []admission, bound limitBound) (parts []float64, err error) {
	for _, w := range limitWindows {
		most, at := fullestWindow(list, w)
		parts = append(parts, float64(most)/bound.in(w))
		if float64(most) > bound.in(w) {
			return parts, fmt.Errorf("%d units were admitted within %v from %v on; at most %.0f may be", most, w, at, bound.in(w))
		}
	}
	return parts, nil
}

func TestLimitWindows(t *testing.T) {
	const ms = time.Millisecond
	bound := limitBound{rate: 100, burst: 10}
	var list []admission
	for i := range 10 { // the burst
		list = append(list, admission{From: 0, To: time.Duration(i)})
	}
	for i := range 2000 { // and the rate
		at := time.Duration(i) * 10 * ms
		list = append(list, admission{From: at, To: at + ms})
	}
	if parts, err := checkWindows(list, bound); err != nil || slices.Min(parts) < 0.9 {
		t.Errorf("what may be is refused: %v, %.2f", err, parts)
	}
	for at, more := range map[time.Duration]int{0: 2, 5 * time.Second: 12, 15 * time.Second: 120} {
		much := slices.Clone(list)
		for i := range more {
			from := at + time.Duration(i)*ms
			much = append(much, admission{From: from, To: from})
		}
		if _, err := checkWindows(much, bound); err == nil {
			t.Errorf("%d units too many at %v are not seen", more, at)
		}
	}
	late := append(slices.Clone(list), make([]admission, 500)...)
	for i := range late[len(list):] { // each may have been at any time
		late[len(list)+i] = admission{From: 0, To: time.Minute}
	}
	if _, err := checkWindows(late, bound); err != nil {
		t.Errorf("a process that was stopped in a call: %v", err)
	}
}
