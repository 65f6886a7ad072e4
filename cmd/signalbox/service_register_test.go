package main

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestOnceWait: a wait that begins again with another session does not last longer than it was to.
func TestOnceWait(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for _, x := range []struct{ length, passed, want time.Duration }{
		{time.Minute, 0, time.Minute},
		{time.Minute, 20 * time.Second, 40 * time.Second},
		{time.Minute, time.Hour, 0},
		{0, time.Second, 0},
		{client.Forever, time.Hour, client.Forever},
	} {
		w := onceWait{length: x.length}
		if got := w.left(begin); got != x.length {
			t.Errorf("a wait of %v begins with %v", x.length, got)
		}
		if got := w.left(begin.Add(x.passed)); got != x.want {
			t.Errorf("a wait of %v that begins again after %v lasts %v, want %v", x.length, x.passed, got, x.want)
		}
	}
}
