package ratelimit

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestLiveness: from a second after the last change on, callers get 95 % of what the oracle gives
// them in each second, and never more than the limit in any window.
func TestLiveness(t *testing.T) {
	many, windows, together := form.Of[uint64](40, 400), 0, 0
	// Each of these had too little once, for a reason of its own.
	seeds := []uint64{42, 49, 54, 82, 106, 142, 171, 183, 276, 299, 312}
	for seed := range many {
		if !slices.Contains(seeds, seed) {
			seeds = append(seeds, seed)
		}
	}
	for _, seed := range seeds {
		x := newSimulation(t, seed, true)
		for range 20_000 {
			x.step()
		}
		windows, together = windows+x.windows, together+x.together
	}
	t.Logf("%d seconds were compared with the oracle, %d times those of calls of several leaves", windows, together)
	if windows < 5*len(seeds) || together < len(seeds) {
		t.Error("too little was compared")
	}
}

// compare asks the oracle at the end of each second that began a second after the last change.
func (x *simulation) compare() {
	if x.now < x.window+1000 {
		return
	}
	if l := x.leader; l.leases.Learning(l.logTime(x.now)) > 0 {
		x.change()
	}
	if x.quiet && !x.random && x.window >= x.changed+1000 {
		x.windows++
		x.compareWindow((x.now - x.window) / 1000)
	}
	x.window = x.now
	clear(x.got)
	for _, c := range x.clients {
		c.together = 0
	}
}

// compareWindow compares what was admitted in the last seconds with what the oracle says.
func (x *simulation) compareWindow(seconds float64) {
	least := 0.95
	if x.now < x.died+10_000 {
		least = 0.85
	}
	without, with, few := x.oracle(0), x.oracle(1), x.oracle(3)
	grain, callers := map[string]float64{}, map[string]float64{}
	for _, c := range x.clients {
		for _, path := range x.leaves {
			if n := c.calls(path); n > 0 {
				grain[path] += n // a call may come a moment later
				callers[path]++
			}
		}
	}
	sum, got, grains := 0., 0., 0.
	for _, path := range x.leaves {
		want := seconds * min(x.apart(path, without[path], 0), x.apart(path, with[path], 1), x.apart(path, few[path], 3))
		sum, got, grains = sum+want, got+x.got[path], grains+grain[path]+1000
		if x.got[path] < least*want-grain[path]-1000 {
			x.t.Fatalf("seed %d at %.0f: %s admitted %.0f of %.0f thousandths in a second (%.0f %%)\n%s", x.seed, x.now, path, x.got[path], want, 100*x.got[path]/want, x.describe())
		}
	}
	if got < least*sum-grains {
		x.t.Fatalf("seed %d at %.0f: %.0f of %.0f thousandths were admitted in a second\n%s", x.seed, x.now, got, sum, x.describe())
	}
	for _, c := range x.clients {
		for _, q := range c.callers {
			if q.soft() {
				x.compareSoft(c, q, least, seconds, func(path string) float64 { return min(with[path], few[path]) / callers[path] })
			}
		}
	}
}

// calls is the sum of the amounts of a client's calls for a leaf, one of each of its callers.
func (c *simClient) calls(path string) (sum float64) {
	for _, q := range c.callers {
		for _, l := range q.leaves {
			if l.path == path {
				sum += float64(q.amount)
			}
		}
	}
	return sum
}

// apart is what all clients of a leaf use of what it has, but for those whose calls are of several
// leaves: these have a share of each, and use as much of it as they get of the others. Clients
// share by demand; that of callers with few calls is multiplied.
func (x *simulation) apart(path string, has, soft float64) (sum float64) {
	together, demands := 0., []float64{}
	for _, c := range x.clients {
		demand := 0.
		for _, q := range c.callers {
			switch {
			case !slices.ContainsFunc(q.leaves, func(l *leaf) bool { return l.path == path }):
			case len(q.leaves) > 1 && soft > 0:
				together++
			case len(q.leaves) > 1:
			case q.demand == 0:
				demand += 1e18
			case q.few():
				demand += soft * q.demand
			default:
				demand += q.demand
			}
		}
		demands = append(demands, demand)
	}
	slices.Sort(demands)
	for i, d := range demands {
		part := min(d, has/(float64(len(demands)-i)+together))
		sum, has = sum+part, has-part
	}
	return sum
}

// fewLate is how long one of few calls waits at most, in ms, beside callers without bound: the time
// of its units twice, and this. A second has none of these calls, or one or two, so what they get
// in it says nothing; what each waits does.
const fewLate = 3_000

// compareSoft compares what a caller got with its client's share of each of its leaves.
func (x *simulation) compareSoft(c *simClient, q *simCaller, least, seconds float64, share func(path string) float64) {
	has := math.MaxFloat64
	for _, l := range q.leaves {
		has = min(has, share(l.path))
	}
	if q.few() {
		if has < 2*q.demand {
			return
		}
		for _, w := range q.waiting {
			if late := x.now - max(w.since, x.changed+1000) - 2*float64(q.amount)/has*1000; late > fewLate && !w.finished {
				x.t.Fatalf("seed %d at %.0f: a call of %d for %d leaves waits for %.0f ms, with %.0f thousandths per second for a demand of %.0f\n%s",
					x.seed, x.now, q.amount, len(q.leaves), x.now-w.since, has, q.demand, x.describe())
			}
		}
		return
	}
	if q.demand > 0 {
		has = min(has, q.demand)
	}
	x.together++
	if want := has * seconds; c.together < least*want-2*float64(q.amount)-1000 {
		x.t.Fatalf("seed %d at %.0f: calls of %d for %d leaves together got %.0f of %.0f thousandths in a second (%.0f %%)\n%s",
			x.seed, x.now, q.amount, len(q.leaves), c.together, want, 100*c.together/want, x.describe())
	}
}

// describe is what the leader knows, for a failure.
func (x *simulation) describe() (s string) {
	var out protocol.LimitStatus
	_ = x.leader.leases.Describe(x.leader.logTime(x.now), x.tree, x.version, &protocol.LimitDescribe{Path: []byte("api"), Sessions: 100}, &out)
	for _, r := range out.Resources {
		s += fmt.Sprintf("%s rate %d demand %d target %d leased %d own %d level %d burst %d of %d\n", r.Path, r.Rate, r.Demand, r.Target, r.Leased, r.Remote, r.Level, r.LeasedBurst, r.Burst)
	}
	for _, q := range out.Sessions {
		s += fmt.Sprintf("  %d %s rate %d demand %d share %d waiting %d why %d state %d lacks %d age %d\n", q.Session, q.Path, q.Rate, q.Demand, q.Share, q.Waiting, q.Why, q.State, q.Lacks, q.Age)
	}
	for _, c := range x.clients {
		for _, q := range c.callers {
			s += fmt.Sprintf("  %d calls", c.session)
			for _, l := range q.leaves {
				s += " " + l.path
			}
			s += fmt.Sprintf(" for %d, demand %.0f, waits %t, %d waiting\n", q.amount, q.demand, q.waits, len(q.waiting))
		}
	}
	return s
}

// oracle is what each leaf is to have: guarantees first, the rest by weight, to nobody more than
// its callers ask for. The demand of those of whom it is not sure what they get is multiplied.
func (x *simulation) oracle(soft float64) map[string]float64 {
	demand := map[string]float64{}
	for _, c := range x.clients {
		for _, q := range c.callers {
			for _, l := range q.leaves {
				d := q.demand
				if d == 0 {
					d = 1e18
				}
				if q.soft() {
					d *= soft
				}
				if d > 0 {
					demand[l.path] += d
				}
			}
		}
	}
	root, _, _ := x.tree.Resource("api")
	gets := map[string]float64{}
	if len(x.leaves) == 1 && x.leaves[0] == "api" {
		gets["api"] = min(demand["api"], float64(root.Rate))
		return gets
	}
	left := float64(root.Rate)
	wanted := slices.Sorted(maps.Keys(demand))
	weight := map[string]float64{}
	for _, path := range wanted {
		c, _, _ := x.tree.Resource(path)
		demand[path] = min(demand[path], float64(root.Rate))
		if !c.Unlimited {
			demand[path] = min(demand[path], float64(c.Rate))
		}
		gets[path] = min(demand[path], float64(c.Min))
		weight[path] = max(float64(c.Weight), 1)
		left -= gets[path]
	}
	for range 10_000 { // little by little
		weights := 0.
		for _, path := range wanted {
			if gets[path] < demand[path] {
				weights += weight[path]
			}
		}
		if weights == 0 || left < 1 {
			break
		}
		part := left / 50
		for _, path := range wanted {
			if gets[path] < demand[path] {
				more := min(part*weight[path]/weights, demand[path]-gets[path])
				gets[path] += more
				left -= more
			}
		}
	}
	return gets
}
