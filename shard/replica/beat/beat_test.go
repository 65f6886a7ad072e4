package beat

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNext: without Align a period counts from the call. After it all periods come together.
func TestNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer origin.Store(0)
		next := func(period, want time.Duration) {
			t.Helper()
			if d := Next(period); d != want {
				t.Errorf("the next beat of %v is in %v, want %v", period, d, want)
			}
		}
		time.Sleep(30 * time.Millisecond)
		next(time.Second, time.Second)

		Align()
		next(100*time.Millisecond, 100*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		next(100*time.Millisecond, 80*time.Millisecond)
		next(time.Second, 980*time.Millisecond)
		time.Sleep(80 * time.Millisecond)
		next(100*time.Millisecond, 100*time.Millisecond)
		next(time.Second, 900*time.Millisecond)
		time.Sleep(3*time.Second + 150*time.Millisecond) // a missed beat is not made up for
		next(100*time.Millisecond, 50*time.Millisecond)
		next(time.Second, 750*time.Millisecond)
	})
}

// TestNextBeforeAlign: the clock of a test may be behind the moment of Align.
func TestNextBeforeAlign(t *testing.T) {
	defer origin.Store(0)
	origin.Store(int64(time.Hour)) // this process is younger
	for range 100 {
		if d := Next(time.Second); d <= 0 || d > time.Second {
			t.Fatalf("the next beat of a second is in %v", d)
		}
	}
}
