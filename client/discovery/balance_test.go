package discovery

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func loads(n int) *balance {
	b := newBalance()
	for range n {
		b.backends = append(b.backends, &load{weight: 100})
	}
	return b
}

// TestEjection: five failures in a row for 10 s, doubling to 60 s while single tries fail; a success
// ends it.
func TestEjection(t *testing.T) {
	now := time.Unix(1000, 0)
	b := loads(2)
	bad := b.backends[0]
	for i := range failuresEject {
		if !bad.mayTry(now) {
			t.Fatalf("ejected after %d failures", i)
		}
		b.result(now, bad, true)
	}
	for _, want := range []time.Duration{10, 20, 40, 60, 60} {
		want *= time.Second
		if bad.mayTry(now.Add(want-1)) || !bad.mayTry(now.Add(want)) {
			t.Fatalf("not ejected for %s", want)
		}
		b.result(now.Add(time.Millisecond), bad, true) // of a request that began before
		now = now.Add(want)
		other := b.backends[1]
		if b.pick(now, 0, 0, 0, []*load{other}) != bad {
			t.Fatal("nobody tries it")
		}
		if bad.mayTry(now) {
			t.Fatal("two try it")
		}
		b.result(now, bad, true)
	}
	b.result(now, bad, false)
	if !bad.mayTry(now) {
		t.Error("a success does not end it")
	}
	for range failuresEject {
		b.result(now, bad, true)
	}
	if bad.mayTry(now.Add(ejectMin - 1)) {
		t.Error("not ejected again")
	}
}

// TestEjectsHalf: whatever fails, at most half of the endpoints are ejected, and somebody is picked.
func TestEjectsHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 9 {
		b := loads(n)
		now := time.Unix(0, 0)
		for range 5000 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			l := b.pick(now, 0, r.Float64(), r.Float64(), nil)
			if (l == nil) != (n == 0) {
				t.Fatalf("of %d nobody is picked", n)
			}
			if l == nil {
				continue
			}
			b.result(now, l, r.IntN(10) > 0)
			l.inFlight--
			ejected := 0
			for _, x := range b.backends {
				if x.ejected {
					ejected++
				}
			}
			if 2*ejected > n {
				t.Fatalf("%d of %d are ejected", ejected, n)
			}
		}
	}
}

// TestEjectsTheNextOne: one that fails is left out although another one still is, which comes back
// into use; a retry goes to an ejected one rather than to the one that has just failed.
func TestEjectsTheNextOne(t *testing.T) {
	now := time.Unix(0, 0)
	b := loads(2)
	first, second := b.backends[0], b.backends[1]
	fail := func(l *load) {
		for range failuresEject {
			b.result(now, l, true)
		}
	}
	fail(first)
	for _, x := range []float64{0, 0.5, 0.99} {
		if b.pick(now, 0, x, x, []*load{second}) != first {
			t.Error("a retry goes to the one that has just failed")
		}
	}
	fail(second)
	if !first.mayTry(now) || second.mayTry(now) {
		t.Errorf("first %+v, second %+v", first, second)
	}
	b.result(now, first, true) // it has not come back
	if first.mayTry(now) || !second.mayTry(now) {
		t.Errorf("first %+v, second %+v", first, second)
	}
	one := loads(1)
	for range 2 * failuresEject {
		one.result(now, one.backends[0], true)
	}
	if !one.backends[0].mayTry(now) {
		t.Error("the only one is left out")
	}
}

// TestRetryAvoidsFailures: a retry goes to one that has not failed, if there is one.
func TestRetryAvoidsFailures(t *testing.T) {
	now := time.Unix(0, 0)
	b := loads(3)
	b.backends[1].failures, b.backends[1].failed = 1, now.Add(-time.Hour)
	b.backends[2].inFlight = 100
	for _, x := range []float64{0, 0.5, 0.99} {
		if b.pick(now, 0, x, x, []*load{b.backends[0]}) != b.backends[2] {
			t.Error("a retry goes to one that failed")
		}
	}
}

// TestPickAmongThousands: a pick looks at few of many endpoints, wherever it starts, allocates nothing,
// comes to each of them, and finds the only one that has not just failed.
func TestPickAmongThousands(t *testing.T) {
	now := time.Unix(0, 0)
	b := loads(5000)
	r := rand.New(rand.NewPCG(1, 2))
	picked := map[*load]bool{}
	pick := func(failed []*load) *load {
		l := b.pick(now, r.Float64(), r.Float64(), r.Float64(), failed)
		l.inFlight--
		return l
	}
	for range 100_000 {
		picked[pick(nil)] = true
	}
	if len(picked) != len(b.backends) {
		t.Errorf("%d of %d are picked", len(picked), len(b.backends))
	}
	if n := testing.AllocsPerRun(100, func() { pick(nil) }); n != 0 {
		t.Errorf("a pick allocates %v times", n)
	}
	for range 10 {
		failed := slices.Clone(b.backends)
		i := r.IntN(len(failed))
		left := failed[i]
		if got := pick(slices.Delete(failed, i, i+1)); got != left {
			t.Error("it is not the one that is left")
		}
	}
}

// TestPick: requests in flight, latency and weight decide; a retry goes elsewhere.
func TestPick(t *testing.T) {
	now := time.Unix(0, 0)
	for _, c := range []struct {
		name string
		a, b load
	}{
		{"fewer in flight", load{weight: 100, inFlight: 1}, load{weight: 100, inFlight: 3}},
		{"faster", load{weight: 100, latency: time.Millisecond, measured: now}, load{weight: 100, latency: 5 * time.Millisecond, measured: now}},
		{"slow long ago", load{weight: 100, latency: 5 * time.Millisecond, measured: now.Add(-20 * time.Second)}, load{weight: 100, latency: time.Millisecond, measured: now}},
		{"has not failed", load{weight: 100, inFlight: 9}, load{weight: 100, failures: 2, failed: now.Add(-1999 * time.Millisecond)}},
		{"failed a while ago", load{weight: 100, failures: 2, failed: now.Add(-2 * time.Second)}, load{weight: 100, inFlight: 1}},
		{"heavier", load{weight: 300, inFlight: 1}, load{weight: 100, latency: 3 * time.Millisecond, measured: now}},
	} {
		for _, first := range []float64{0, 0.9} {
			b := &balance{backends: []*load{{}, {}}}
			*b.backends[0], *b.backends[1] = c.a, c.b
			if b.pick(now, 0, first, 0.5, nil) != b.backends[0] {
				t.Errorf("%s: the other endpoint is picked", c.name)
			}
			if b.pick(now, 0, first, 0.5, []*load{b.backends[0]}) != b.backends[1] {
				t.Errorf("%s: a retry goes to the same one", c.name)
			}
		}
	}
	one := loads(1)
	if one.pick(now, 0, 0.99, 0.99, []*load{one.backends[0]}) != nil {
		t.Error("the only one is tried again")
	}
	l := one.backends[0]
	l.answered(now, 8*time.Millisecond)
	l.answered(now.Add(latencyFade), 0)
	if l.latency < 2*time.Millisecond || l.latency > 4*time.Millisecond { // 8 / e
		t.Errorf("the average is %s", l.latency)
	}
}

// TestRetryShare: 20 in hand, and one for each ten requests.
func TestRetryShare(t *testing.T) {
	b := loads(1)
	count := func() (n int) {
		for b.retry() {
			n++
		}
		return n
	}
	b.request()
	if n := count(); n != retriesInHand {
		t.Errorf("%d in hand", n)
	}
	for range 101 {
		b.request()
	}
	if n := count(); n != 10 {
		t.Errorf("%d after 100 requests", n)
	}
}
