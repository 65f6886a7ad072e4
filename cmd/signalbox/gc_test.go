package main

import "testing"

// TestGCTuner: it takes a quiet while to give the reserve back, and one busy look to have it again;
// in between nothing changes.
func TestGCTuner(t *testing.T) {
	var r gcTuner
	for i, step := range []struct {
		allocated uint64
		change    bool
		small     bool
	}{
		{0, false, false}, {0, false, false}, {0, false, false}, {gcIdleBytes, false, false}, // not quiet enough
		{0, false, false}, {0, false, false}, {0, false, false}, {gcIdleBytes - 1, true, true},
		{0, false, true}, {gcBusyBytes, false, true}, {gcBusyBytes + 1, true, false},
		{gcBusyBytes * 100, false, false}, {0, false, false},
	} {
		if change := r.sample(step.allocated); change != step.change || r.reduced != step.small {
			t.Fatalf("look %d: change %v, small %v", i, change, r.reduced)
		}
	}
}
