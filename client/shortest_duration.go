package client

import (
	"slices"
	"time"
)

// shortestDuration is the shortest of many durations, of which few differ.
type shortestDuration []struct {
	d time.Duration
	n int // how many there are
}

func (s *shortestDuration) add(d time.Duration) {
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

// remove removes one that was added.
func (s *shortestDuration) remove(d time.Duration) {
	for i := range *s {
		if x := &(*s)[i]; x.d == d {
			if x.n--; x.n == 0 {
				*s = slices.Delete(*s, i, i+1)
			}
			return
		}
	}
}

// or is the shortest one, or most if none is shorter.
func (s shortestDuration) or(most time.Duration) time.Duration {
	for i := range s {
		most = min(most, s[i].d)
	}
	return most
}
