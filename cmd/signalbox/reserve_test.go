package main

import "testing"

// TestReserve: it takes a quiet while to give the reserve back, and one busy look to have it again; a crowd has more of it while the heap is small; in between nothing
// changes.
func TestReserve(t *testing.T) {
	var r reserve
	const little = 1 << 20
	for i, step := range []struct {
		allocated, live uint64
		want            int
	}{
		{0, little, 100}, {0, little, 100}, {0, little, 100}, {quietBytes, little, 100}, // not quiet enough
		{0, little, 100}, {0, little, 100}, {0, little, 100}, {quietBytes - 1, little, quietPercent},
		{0, little, quietPercent}, {busyBytes, little, quietPercent}, {busyBytes + 1, little, 100},
		{crowdedBytes, little, 100}, {crowdedBytes + 1, little, largestPercent}, {busyBytes + 1, little, largestPercent}, // a pause does not take it back
		{crowdedBytes + 1, crowdedLarge / 2, 200}, {crowdedBytes + 1, crowdedLarge * 4 / 9, 200}, // 225 is not felt
		{crowdedBytes + 1, crowdedLarge * 2, 100}, {crowdedBytes + 1, 0, largestPercent},
		{0, little, largestPercent}, {0, little, largestPercent}, {0, little, largestPercent}, {0, little, quietPercent},
	} {
		if got := r.look(step.allocated, step.live); got != step.want {
			t.Fatalf("look %d: %d %%, want %d", i, got, step.want)
		}
	}
}
