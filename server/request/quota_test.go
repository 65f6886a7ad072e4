package request

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestRate: a second's requests at once and not one more, then one an interval; what is never
// refused is counted, for one more second at most.
func TestRate(t *testing.T) {
	const at = 1000 * time.Second
	r := newRate(5)
	for i := range 5 {
		if !r.take(at, chargeAsk) {
			t.Fatalf("request %d of 5 is refused", i+1)
		}
	}
	for range 2 {
		if r.take(at, chargeAsk) || r.take(at+200*time.Millisecond-1, chargeAsk) {
			t.Fatal("more than 5 in a second")
		}
	}
	if !r.take(at+200*time.Millisecond, chargeAsk) || r.take(at+200*time.Millisecond, chargeAsk) {
		t.Fatal("a fifth of a second later it is one more")
	}
	if got := r.refused.Load(); got != 5 {
		t.Errorf("%d refused, want 5", got)
	}
	// 100 that are never refused cost a second, not twenty.
	now := at + 200*time.Millisecond
	for i := range 100 {
		if ahead := r.take(now, chargeAlways); ahead != (i < 5) {
			t.Fatalf("request %d that is never refused: %v, want 5 to be taken ahead", i+1, ahead)
		}
	}
	if got := r.refused.Load(); got != 5 {
		t.Errorf("%d refused after those that never are, want 5", got)
	}
	if r.take(now+time.Second, chargeAsk) {
		t.Error("what was not refused is not counted")
	}
	if !r.take(now+1200*time.Millisecond, chargeAsk) {
		t.Error("a debt of more than a second")
	}
	// However long nobody asks, a second's requests is all there is.
	now += time.Hour
	for i := range 6 {
		if got := r.take(now, chargeAsk); got != (i < 5) {
			t.Errorf("request %d after an hour: %v", i+1, got)
		}
	}
}

// TestRateIsNeverExceeded: whatever the quota and whenever requests come, no span of time has more
// of them than its length and one second allow; and who asks all the time gets at least 99 % of it.
func TestRateIsNeverExceeded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		quota := uint64(1) << random.Uint64N(23)
		quota = min(quota+random.Uint64N(quota), 10_000_000)
		r := newRate(quota)
		start := time.Duration(random.Int64N(1 << 50))
		now, taken := start, uint64(0)
		step := max(1, int64(r.interval))
		for range 3000 {
			now += time.Duration(random.Int64N(2 * step))
			for range random.IntN(4) {
				if r.take(now, chargeAsk) {
					taken++
				}
			}
			if most := uint64((now-start).Seconds()*float64(quota)) + quota + 1; taken > most {
				t.Fatalf("quota %d: %d requests in %v", quota, taken, now-start)
			}
		}
		full := newRate(quota)
		for range quota { // empties it
			if quota <= 1<<16 && !full.take(start, chargeAsk) {
				t.Fatalf("quota %d: not a second's requests at once", quota)
			}
		}
		if got := float64(full.interval) * float64(quota) / float64(time.Second); got < 1 || got > 1.01 {
			t.Fatalf("quota %d: an interval of %v is %.4f of the exact one", quota, full.interval, got)
		}
	}
}

// TestRateShared: loops that ask at once get no more together.
func TestRateShared(t *testing.T) {
	r := newRate(1000)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				if r.take(time.Second, chargeAsk) {
					taken.Add(1)
				}
			}
		})
	}
	all.Wait()
	if taken.Load() != 1000 || r.refused.Load() != 3000 {
		t.Errorf("%d taken and %d refused, want 1000 and 3000", taken.Load(), r.refused.Load())
	}
	if n := testing.AllocsPerRun(100, func() { r.take(2*time.Second, chargeAsk) }); n != 0 && !form.Race {
		t.Errorf("%v allocations a request", n)
	}
}
