package main

import "testing"

// TestReserve: it takes a quiet while to give the reserve back, and one busy look to have it again; in between nothing changes.
func TestReserve(t *testing.T) {
	var r reserve
	for i, step := range []struct {
		allocated uint64
		change    bool
		small     bool
	}{
		{0, false, false}, {0, false, false}, {0, false, false}, {quietBytes, false, false}, // not quiet enough
		{0, false, false}, {0, false, false}, {0, false, false}, {quietBytes - 1, true, true},
		{0, false, true}, {busyBytes, false, true}, {busyBytes + 1, true, false},
		{busyBytes * 100, false, false}, {0, false, false},
	} {
		if change := r.look(step.allocated); change != step.change || r.small != step.small {
			t.Fatalf("look %d: change %v, small %v", i, change, r.small)
		}
	}
}
