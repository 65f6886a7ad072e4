package core

import (
	"slices"
	"time"
)

// shortest is the shortest of many durations, of which few differ.
type shortest []struct {
	d time.Duration
	n int // how many there are
}

// Add adds one.
func (s *shortest) Add(d time.Duration) {
	for i := range *s {
		if (*s)[i].d == d {
			(*s)[i].n++
			return
		}
	}
	*s = append(*s, struct {
		d time.Duration
		n int
	}{d, 1})
}

// Remove removes one that was added.
func (s *shortest) Remove(d time.Duration) {
	for i := range *s {
		if x := &(*s)[i]; x.d == d {
			if x.n--; x.n == 0 {
				*s = slices.Delete(*s, i, i+1)
			}
			return
		}
	}
}

// Or is the shortest one, or most if none is shorter.
func (s shortest) Or(most time.Duration) time.Duration {
	for i := range s {
		most = min(most, s[i].d)
	}
	return most
}
