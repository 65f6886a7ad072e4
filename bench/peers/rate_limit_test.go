// How much faster is a local decision of a rate limit than a request for each?

package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/signalbox-dev/signalbox/bench"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// gcraText decides about a call in Redis, as its users do: a key has the time at which the limit is
// unused again, and expires then. The arguments are the time that a unit takes and the time of a
// burst, in microseconds.
const gcraText = `
local t = redis.call("TIME")
local now = t[1] * 1000000 + t[2]
local full = math.max(tonumber(redis.call("GET", KEYS[1]) or now), now) + ARGV[1]
if full - now > tonumber(ARGV[2]) then return 0 end
redis.call("SET", KEYS[1], full, "PX", math.max(math.ceil((full - now) / 1000), 1))
return 1`

var gcra = rueidis.NewLuaScript(gcraText)

// decider decides about one call of a limit: whether it is admitted.
type decider func(ctx context.Context) (bool, error)

// redisLimiter starts Redis with one limit. Redis writes nothing to a disk: a limit that is lost is
// full again, which its users live with.
func redisLimiter(t testing.TB, rate, burst uint64) decider {
	r := &redisServer{client: bench.Rueidis}
	if _, err := r.Version(t.Context()); err != nil {
		t.Skip(err)
	}
	p, addr, err := r.start(t.Context(), t.TempDir(), "--appendonly", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	c, err := (&rueidisTarget{addr}).client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	unit := strconv.FormatFloat(1e6/float64(rate), 'f', -1, 64)
	whole := strconv.FormatFloat(float64(burst)*1e6/float64(rate), 'f', -1, 64)
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		n, err := gcra.Exec(ctx, c, []string{"limit/api"}, []string{unit, whole}).AsInt64()
		return n == 1, err
	}
}

// localLimiter starts signalbox with one limit, and opens it.
func localLimiter(t testing.TB, rate float64) decider {
	system := &bench.SignalboxSystem{Binary: filepath.Join("..", "..", "bin", "signalbox")}
	if _, err := system.Version(t.Context()); err != nil {
		t.Skip(err)
	}
	server, err := system.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	plan, err := server.Plan(bench.SingleCaller)
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.OpenSession(t.Context(), plan.Target.(*loadgen.Signalbox).Client, client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Client().Close() })
	if _, err := ratelimit.Create(t.Context(), s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(rate)}); err != nil {
		t.Fatal(err)
	}
	l, err := ratelimit.JoinSession(t.Context(), s, "api")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(t.Context(), 1000); err != nil { // its lease has begun, and is not empty
		t.Fatal(err)
	}
	return func(context.Context) (bool, error) { return l.Allow(1), nil }
}

// BenchmarkDecision measures decisions about calls that are admitted, by one caller and by 64, and
// their p99. The clock that times each decision counts with it.
func BenchmarkDecision(b *testing.B) {
	const plenty = 1_000_000_000 // no measurement reaches it
	for _, system := range []struct {
		name string
		open func(testing.TB) decider
	}{
		{"local", func(t testing.TB) decider { return localLimiter(t, plenty) }},
		{"redis", func(t testing.TB) decider { return redisLimiter(t, plenty, plenty) }},
	} {
		b.Run("system="+system.name, func(b *testing.B) {
			decide := system.open(b)
			for _, callers := range []int{1, 64} {
				b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) { measureDecisions(b, callers, decide) })
			}
		})
	}
}

func measureDecisions(b *testing.B, callers int, decide decider) {
	b.ReportAllocs()
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range callers {
		all.Go(func() {
			for t := time.Now(); ; {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				if ok, err := decide(b.Context()); !ok || err != nil {
					b.Errorf("a decision: %v, %v; the limit is far away", ok, err)
					return
				}
				now := time.Now()
				took[i], t = now.Sub(t), now
			}
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// TestRedisAdmits: a burst is admitted, and then no more than the rate.
func TestRedisAdmits(t *testing.T) {
	decide := redisLimiter(t, 1, 3)
	begun, admitted := time.Now(), 0
	for range 20 {
		ok, err := decide(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			admitted++
		}
	}
	if most := 3 + int(time.Since(begun)/time.Second) + 1; admitted < 3 || admitted > most {
		t.Errorf("Redis admitted %d calls at once; 3 to %d may be", admitted, most)
	}
}
