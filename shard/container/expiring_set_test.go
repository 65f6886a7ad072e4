package container

import "testing"

// TestExpiringSet: a key is remembered up to its time, and one that is added again outlives the
// forgetting of its first time.
func TestExpiringSet(t *testing.T) {
	r := NewExpiringSet[uint64]()
	r.Add(1, 700)
	r.Add(2, 800)
	for _, c := range []struct {
		key, now uint64
		want     bool
	}{{1, 700, true}, {1, 701, false}, {2, 800, true}, {3, 0, false}} {
		if got := r.Has(c.key, c.now); got != c.want {
			t.Errorf("%d at %d: %v", c.key, c.now, got)
		}
	}
	r.Add(1, 1800) // again, before the old one was forgotten
	var aside []uint64
	r.Forget(900, 10, func(number uint64, k ExpiringKey[uint64]) { aside = append(aside, number, k.Key) })
	if !r.Has(1, 1800) || r.Has(2, 800) || len(r.Queue()) != 1 || r.Base() != 2 || r.End() != 3 || r.At(2).Key != 1 {
		t.Error("forgotten the wrong one")
	}
	if len(aside) != 4 || aside[0] != 0 || aside[1] != 1 || aside[2] != 1 || aside[3] != 2 {
		t.Errorf("put aside %v", aside)
	}
}
