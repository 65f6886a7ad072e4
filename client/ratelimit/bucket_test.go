package ratelimit

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// model is a token bucket in floating point.
type model struct{ rate, burst, level, at float64 }

func (m *model) fill(now float64) {
	m.level, m.at = min(m.burst, m.level+(now-m.at)*m.rate/1e9), now
}

// TestBucket compares with the model: over any time a bucket admits what the model would, up to
// rounding, and never more than rate and burst allow.
func TestBucket(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		now := int64(1)
		lease := func() (rate, burst uint64) {
			rate = 1 + r.Uint64N(1<<(5+r.IntN(30)))
			return rate, min(1+r.Uint64N(1<<(5+r.IntN(25))), rate*3600+1000)
		}
		rate, burst := lease()
		l := newLeaf(newPart("api"), "api")
		x := &protocol.LimitLease{Rate: rate, Burst: burst, Most: burst}
		l.install(now, x, math.MaxInt64)
		m := &model{rate: float64(rate), burst: float64(burst), at: float64(now)}
		for range 400 {
			now += int64(r.Uint64N(1 << (5 + r.IntN(25))))
			m.fill(float64(now))
			switch n := 1 + r.Uint64N(burst); r.IntN(10) {
			case 0: // another lease: the level stays, up to the burst
				rate, burst = lease()
				x.Rate, x.Burst = rate, burst
				l.install(now, x, math.MaxInt64)
				m.rate, m.burst, m.level = float64(rate), float64(burst), max(min(m.level, float64(burst)), -10*float64(burst))
			case 1: // used already
				l.spend(now, n)
				m.level = min(m.level, max(m.level-float64(n), -10*m.burst))
			default:
				slack := 2 + m.rate/1e9 + float64(n)/1e6
				if l.decide(now, n) {
					if m.level -= float64(n); m.level < -slack {
						t.Fatalf("seed %d: %d admitted of %v", seed, n, m.level+float64(n))
					}
				} else if m.level-float64(n) > slack {
					t.Fatalf("seed %d: %d denied of %v, rate %d burst %d", seed, n, m.level, rate, burst)
				}
			}
			if b := l.bucket.Load(); math.Abs(float64(b.levelAt(now, b.full.Load()))-m.level) > 3+m.burst/1e6+m.rate/1e8 {
				t.Fatalf("seed %d: level %d, want %v (rate %d, burst %d)", seed, b.levelAt(now, b.full.Load()), m.level, rate, burst)
			} else {
				m.level = float64(b.levelAt(now, b.full.Load())) // rounding does not add up in the comparison
			}
		}
	}
}

// TestLeaseEnds: without a lease nothing is admitted but what the floor allows; the next lease
// begins empty.
func TestLeaseEnds(t *testing.T) {
	l := newLeaf(newPart("api"), "api")
	lease := &protocol.LimitLease{Rate: 1_000_000, Burst: 1_000_000, Most: 1_000_000}
	l.install(0, lease, 1e9)
	if !l.decide(9e8, 800_000) || l.decide(1e9, 1000) {
		t.Fatal("a lease is used until its end, and not longer")
	}
	l.install(2e9, lease, 4e9)
	if l.decide(2e9, 1000) || !l.decide(21e8, 90_000) {
		t.Fatal("the next lease begins empty")
	}
	lease.Floor = 2000
	l.install(22e8, lease, 3e9)
	if l.unreachable(25e8); l.decide(25e8, 900_000) {
		t.Fatal("the floor is used beside a lease")
	}
	l.unreachable(3e9)
	if !l.decide(5e9, 2000) || l.decide(5e9, 2000) {
		t.Fatal("the floor is used without a lease")
	}
}

// TestConcurrentDecisions: however many decide at once, with leases that are replaced meanwhile,
// all together are admitted no more than one would be.
func TestConcurrentDecisions(t *testing.T) {
	l := newLeaf(newPart("api"), "api")
	const rate, burst = 50_000_000, 5_000_000
	l.install(0, &protocol.LimitLease{Rate: rate, Burst: burst, Most: burst}, math.MaxInt64)
	var clock, taken atomic.Int64
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for n := range 20_000 {
				now := clock.Add(1000)
				if l.decide(now, 1000) {
					taken.Add(1000)
				}
				if i == 0 && n%100 == 0 {
					l.install(now, &protocol.LimitLease{Rate: rate - uint64(n%3), Burst: burst, Most: burst}, math.MaxInt64)
				}
			}
		})
	}
	running.Wait()
	if most := float64(clock.Load())/1e9*rate + 2000; float64(taken.Load()) > most {
		t.Fatalf("%d taken, at most %v are allowed", taken.Load(), most)
	}
}

// TestDecisionDoesNotAllocate: neither does what is denied.
func TestDecisionDoesNotAllocate(t *testing.T) {
	l := newLeaf(newPart("api"), "api")
	l.install(now(), &protocol.LimitLease{Rate: 1_000_000, Burst: 1_000_000, Most: 1_000_000}, math.MaxInt64)
	if n := testing.AllocsPerRun(1000, func() { l.attempt(1000); l.decide(now(), 1000) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkDecide is a decision with the clock read for it.
func BenchmarkDecide(b *testing.B) {
	l := newLeaf(newPart("api"), "api")
	l.install(now(), &protocol.LimitLease{Rate: 1e15, Burst: 1e15, Most: 1e15}, math.MaxInt64)
	b.ReportAllocs()
	for b.Loop() {
		l.attempt(1000)
		l.decide(now(), 1000)
	}
}

// BenchmarkDecideParallel is the same by 64 goroutines.
func BenchmarkDecideParallel(b *testing.B) {
	l := newLeaf(newPart("api"), "api")
	l.install(now(), &protocol.LimitLease{Rate: 1e15, Burst: 1e15, Most: 1e15}, math.MaxInt64)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.attempt(1000)
			l.decide(now(), 1000)
		}
	})
}
