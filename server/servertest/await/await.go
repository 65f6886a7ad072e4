// Package await waits in tests for what comes by itself and sends no event.
//
// A test waits for an event where there is one: a channel, a stream, a reply. Counters, files of
// other processes and states of a cluster send none; for these a test looks again and again. In a
// bubble of testing/synctest that takes no time.
package await

import (
	"fmt"
	"testing"
	"time"
)

// Limit bounds a wait. It is far above what any machine needs: it only ends tests that fail.
const Limit = 3 * time.Minute

// Longest time between two looks. The first comes after a millisecond, and each doubles it.
const longestPause = 16 * time.Millisecond

// True waits until holds is true, and fails the test if it is not within Limit. What completes the
// sentence "waited in vain for".
func True(t testing.TB, what string, holds func() bool) {
	t.Helper()
	until(t, what, func() (string, bool) { return "", holds() })
}

// Seen is True whose failure says what the last look has seen.
func Seen[T any](t testing.TB, what string, look func() (seen T, holds bool)) T {
	t.Helper()
	var last T
	until(t, what, func() (string, bool) {
		var holds bool
		if last, holds = look(); holds {
			return "", true
		}
		return fmt.Sprintf("; the last look has seen %+v", last), false
	})
	return last
}

func until(t testing.TB, what string, look func() (seen string, holds bool)) {
	t.Helper()
	pause := time.Millisecond
	for end := time.Now().Add(Limit); ; time.Sleep(pause) {
		seen, holds := look()
		if holds {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s%s", what, seen)
		}
		pause = min(2*pause, longestPause)
	}
}
