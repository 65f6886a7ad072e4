package busiest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

func all(uint64) bool { return true }

// grantOf is the change that a grant makes.
func grantOf(node uint64, name string) shard.SemaphoreChange {
	return shard.SemaphoreChange{Node: node, Name: []byte(name), SemaphoreChange: protocol.SemaphoreChange{Kind: protocol.ChangeOwnerAdded}}
}

// check looks whether the heap, the chains and the counters agree.
func (g *Grants) check() error {
	if err := g.heap.Check(); err != nil || g.heap.Len() != g.n {
		return fmt.Errorf("%d counters of %d are in the heap: %v", g.heap.Len(), g.n, err)
	}
	for i := range g.n {
		if s := g.heap.At(i); s.Key != math.Float64bits(s.Item.weight) || s.Item != &g.counter[s.Item.at] {
			return fmt.Errorf("counter %d is out of place", s.Item.at)
		}
	}
	seen := 0
	for i, at := range g.chains {
		for ; at != 0; at = g.counter[at-1].next {
			if g.counter[at-1].hash%uint64(len(g.chains)) != uint64(i) {
				return fmt.Errorf("chain %d has a counter of another one", i)
			}
			seen++
		}
	}
	if seen != g.n {
		return fmt.Errorf("%d counters are in chains, %d are in use", seen, g.n)
	}
	return nil
}

// TestGrantsOfMany: among a hundred thousand names that are granted as often as any, those with
// more than 1 of 256 grants are found, first to last, with their rates.
func TestGrantsOfMany(t *testing.T) {
	var g Grants
	r := rand.New(rand.NewPCG(1, 2))
	heavy := []float64{0.2, 0.1, 0.05, 0.02} // shares of the grants
	const perSecond = 10_000
	now := time.Hour
	for range 60 * perSecond / 20 {
		now += time.Second * 20 / perSecond
		var changes []shard.SemaphoreChange
		for range 20 {
			name, x := strconv.Itoa(r.IntN(100_000)), r.Float64()
			for i, share := range heavy {
				if x -= share; x < 0 {
					name = fmt.Sprint("heavy", i)
					break
				}
			}
			changes = append(changes, grantOf(7, name))
		}
		g.Count(now, changes)
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
	list := g.Top(now, len(heavy), all)
	for i, share := range heavy {
		want := share * perSecond
		if x := list[i]; string(x.Name) != fmt.Sprint("heavy", i) || x.Node != 7 || math.Abs(x.PerSecond-want) > want/5 {
			t.Errorf("%s of node %d has %.0f grants a second, want heavy%d with %.0f", x.Name, x.Node, x.PerSecond, i, want)
		}
	}
	for _, x := range g.Top(now, tracked, all)[len(heavy):] {
		if x.PerSecond > perSecond/100 {
			t.Errorf("%s is granted once in a while, and has %.0f grants a second", x.Name, x.PerSecond)
		}
	}
}

// TestGrantsOfFew: with few names nothing is estimated but the weight of time.
func TestGrantsOfFew(t *testing.T) {
	var g Grants
	now := time.Minute
	for range 120 { // two minutes
		now += time.Second
		changes := []shard.SemaphoreChange{grantOf(1, "a"), grantOf(1, "b"), grantOf(2, "a"), grantOf(1, "a"), {Node: 1, Name: []byte("c")}}
		g.Count(now, changes)
	}
	want := map[string]float64{"1a": 2, "1b": 1, "2a": 1}
	list := g.Top(now, 10, all)
	if len(list) != len(want) || string(list[0].Name) != "a" || list[0].Node != 1 {
		t.Fatalf("%+v", list)
	}
	for _, x := range list {
		if w := want[fmt.Sprint(x.Node)+string(x.Name)]; math.Abs(x.PerSecond-w) > w/10 {
			t.Errorf("%s of node %d has %.2f grants a second, want %.0f", x.Name, x.Node, x.PerSecond, w)
		}
	}
	if list := g.Top(now, 10, func(node uint64) bool { return node == 2 }); len(list) != 1 || list[0].Node != 2 {
		t.Errorf("of node 2: %+v", list)
	}
	// A minute later they are all but forgotten, and what is granted now is first.
	now += time.Minute
	g.Count(now, []shard.SemaphoreChange{grantOf(1, "new")})
	if x := g.Top(now, 1, all)[0]; string(x.Name) != "new" || x.PerSecond > 0.1 {
		t.Errorf("a minute later %s is first, with %.2f grants a second", x.Name, x.PerSecond)
	}
	g.Reset()
	if list := g.Top(now, 10, all); len(list) != 0 {
		t.Errorf("after a reset: %+v", list)
	}
}

// TestGrantedOnce: a name that was granted once is listed for a while, and not for ever.
func TestGrantedOnce(t *testing.T) {
	var g Grants
	now := time.Hour
	g.Count(now, []shard.SemaphoreChange{grantOf(7, "once")})
	if list := g.Top(now+5*time.Second, 10, all); len(list) != 1 {
		t.Errorf("after 5 s: %v", list)
	}
	if list := g.Top(now+time.Minute, 10, all); len(list) != 0 {
		t.Errorf("after a minute: %v", list)
	}
}

// TestGrantsOverLongTimes: the weights stay numbers, however long it goes on.
func TestGrantsOverLongTimes(t *testing.T) {
	var g Grants
	now := time.Duration(0)
	for i := range 5_000 {
		now += time.Second
		g.Count(now, []shard.SemaphoreChange{grantOf(1, "steady"), grantOf(1, strconv.Itoa(i))})
	}
	if err := g.check(); err != nil {
		t.Fatal(err)
	}
	if x := g.Top(now, 1, all)[0]; string(x.Name) != "steady" || math.Abs(x.PerSecond-1) > 0.1 {
		t.Errorf("%s has %.2f grants a second", x.Name, x.PerSecond)
	}
	now += 1_000_000 * time.Hour
	g.Count(now, []shard.SemaphoreChange{grantOf(1, "late")})
	if x := g.Top(now, 1, all)[0]; string(x.Name) != "late" || math.IsNaN(x.PerSecond) || math.IsInf(x.PerSecond, 0) {
		t.Errorf("%+v", x)
	}
}

// TestGrantsOfALargeEntry: a few of its changes stand for all, without a bias.
func TestGrantsOfALargeEntry(t *testing.T) {
	var g Grants
	var changes []shard.SemaphoreChange
	for range 500 {
		changes = append(changes, grantOf(1, "a"), grantOf(1, "a"), grantOf(1, "a"), grantOf(1, "b"))
	}
	now := time.Duration(0)
	for range 1_000 {
		now += 100 * time.Millisecond
		g.Count(now, changes)
	}
	list := g.Top(now, 2, all)
	if got := list[0].PerSecond / list[1].PerSecond; math.Abs(got-3) > 0.3 || math.Abs(list[0].PerSecond-15_000) > 1_500 {
		t.Errorf("%s %.0f, %s %.0f a second; want a 15000, b 5000", list[0].Name, list[0].PerSecond, list[1].Name, list[1].PerSecond)
	}
}

// TestGrantsAllocateNothing: once the counters are in use.
func TestGrantsAllocateNothing(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	var g Grants
	var changes []shard.SemaphoreChange
	for i := range 3 * tracked {
		changes = append(changes, grantOf(1, fmt.Sprintf("jobs/%06d", i)))
	}
	now := time.Duration(0)
	step := func() {
		for i := 0; i < len(changes); i += 8 {
			now += time.Millisecond
			g.Count(now, changes[i:i+8])
		}
	}
	step()
	if n := testing.AllocsPerRun(10, step); n != 0 {
		t.Errorf("%v allocations for %d grants", n, len(changes))
	}
}

// TestLatencies: a quantile is at most a quarter too high, and never too low.
func TestLatencies(t *testing.T) {
	var l Latencies
	var before counts
	r := rand.New(rand.NewPCG(3, 4))
	var list []time.Duration
	for range 10_000 {
		d := time.Duration(math.Exp(r.Float64()*14)) * time.Microsecond
		list = append(list, d)
		l.Add(d, 1)
	}
	slices.Sort(list)
	after := l.counts()
	for _, q := range []float64{0.5, 0.9, 0.99} {
		want, got := list[int(q*float64(len(list)))], after.quantile(&before, q)
		if got < want || got > want+want/4+time.Microsecond {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := after.quantile(&after, 0.5); got != 0 {
		t.Errorf("nothing has a median of %v", got)
	}
	l.Add(time.Duration(math.MaxInt64), 1)
	l.Add(-1, 1)
}

// TestRates: what happened between the oldest sample that is kept and the newest.
func TestRates(t *testing.T) {
	var r Rates
	if n := r.Now(); n != (Now{}) {
		t.Errorf("before the first sample: %+v", n)
	}
	for i := range 20 {
		r.Changes.Add(time.Millisecond, 10)
		r.Sample(time.Duration(i)*time.Second, Totals{Answered: uint64(i) * 100, Rejected: uint64(i) * 3})
	}
	if n := r.Now(); n.Requests != 100 || n.Rejected != 3 || n.ChangeP50 < time.Millisecond ||
		n.ChangeP99 > 1250*time.Microsecond || n.WriteP99 != 0 {
		t.Errorf("%+v", n)
	}
}

// BenchmarkGrants is one grant: of a semaphore that has a counter, and of one that takes another's.
func BenchmarkGrants(b *testing.B) {
	for _, names := range []int{100, 1_000_000} {
		b.Run(strconv.Itoa(names), func(b *testing.B) {
			var g Grants
			changes := make([]shard.SemaphoreChange, names)
			for i := range changes {
				changes[i] = grantOf(1, fmt.Sprintf("jobs/%08d", i))
			}
			now, i := time.Duration(0), 0
			b.ReportAllocs()
			for b.Loop() {
				now += 10 * time.Microsecond
				g.Count(now, changes[i:i+1])
				i = (i + 7919) % names
			}
		})
	}
}
