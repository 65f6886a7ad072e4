package discovery

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// endpoints reads a list such as "a=ready:100@SAS b=failing": name, state, weight and zone.
func endpoints(text string) (list []*Endpoint) {
	for f := range strings.FieldsSeq(text) {
		name, rest, _ := strings.Cut(f, "=")
		rest, zone, _ := strings.Cut(rest, "@")
		state, weight, _ := strings.Cut(rest, ":")
		e := &Endpoint{Addr: name + ":1", Zone: zone, State: State(state), Token: uint64(len(list) + 1)}
		_, _ = fmt.Sscan(weight, &e.Weight)
		list = append(list, e)
	}
	return list
}

func names(list []*Endpoint) string {
	var all []string
	for _, e := range list {
		all = append(all, strings.TrimSuffix(e.Addr, ":1"))
	}
	return strings.Join(all, " ")
}

// TestWhoIsUsed has the rules as tables.
func TestWhoIsUsed(t *testing.T) {
	for _, c := range []struct {
		rule, list, zone string
		share            int
		used             string
		panics           bool
	}{
		{"nobody", "", "", 30, "", false},
		{"ready ones", "a=ready b=failing c=draining d=", "", 30, "a d", false},
		{"30 per cent are enough", "a=ready:30 b=failing:70", "", 30, "a", false},
		{"less is a panic", "a=ready:29 b=failing:71", "", 30, "a b", true},
		{"drained weight is not counted", "a=ready:30 b=failing:70 c=draining:1000", "", 30, "a", false},
		{"all failing", "a=failing b=failing c=draining", "", 30, "a b", true},
		{"share 0: one is enough", "a=ready:1 b=failing:1000", "", 0, "a", false},
		{"share 0: none is not", "a=failing b=failing", "", 0, "a b", true},
		{"share 100: all must be ready", "a=ready:1000 b=failing:1", "", 100, "a b", true},
		{"draining ones still answer", "a=draining b=draining", "", 30, "a b", false},

		{"two in the zone", "a=ready@S b=ready@S c=ready@V", "S", 30, "a b", false},
		{"one in the zone", "a=ready@S b=ready@V c=ready@V", "S", 30, "a b c", false},
		{"none in the zone", "a=ready@V b=ready@V", "S", 30, "a b", false},
		{"half of the zone is ready", "a=ready@S b=ready@S c=failing@S d=draining@S e=ready@V", "S", 30, "a b", false},
		{"less than half", "a=ready@S b=ready@S c=failing:201@S e=ready@V", "S", 30, "a b e", false},
		{"drained weight counts there", "a=ready@S b=ready@S c=draining:201@S e=ready@V", "S", 30, "a b e", false},
		{"no zone is the zone of no caller", "a=ready b=ready c=ready@S d=ready@S", "", 30, "a b c d", false},
		{"another case is another zone", "a=ready@s b=ready@s c=ready@S d=ready@S e=ready@V", "S", 30, "c d", false},
		{"panic in the zone", "a=failing@S b=failing@S c=failing@V", "S", 30, "a b c", true},
	} {
		used, panics := choose(endpoints(c.list), caller{zone: c.zone, panicShare: c.share, subset: 100})
		if names(used) != c.used || panics != c.panics {
			t.Errorf("%s: %q, panic %v; want %q, %v", c.rule, names(used), panics, c.used, c.panics)
		}
	}
}

// naive is section by section what the page says, with sets.
func naive(all []*Endpoint, c caller) (used []*Endpoint, panics bool) {
	weigh := func(list []*Endpoint) (sum int) {
		for _, e := range list {
			sum += e.Weight
		}
		return sum
	}
	where := func(list []*Endpoint, f func(*Endpoint) bool) []*Endpoint {
		return slices.DeleteFunc(slices.Clone(list), func(e *Endpoint) bool { return !f(e) })
	}
	is := func(states ...State) func(*Endpoint) bool {
		return func(e *Endpoint) bool { return slices.Contains(states, e.State) }
	}
	ready, both := where(all, is(Ready)), where(all, is(Ready, Failing))
	used = ready
	if len(both) > 0 && (len(ready) == 0 || float64(weigh(ready)) < float64(c.panicShare)/100*float64(weigh(both))-1e-9) {
		used, panics = both, true
	}
	if len(both) == 0 {
		used = all
	}
	inZone := func(e *Endpoint) bool { return e.Zone == c.zone }
	zone := where(used, inZone)
	if c.zone != "" && len(zone) >= 2 && float64(weigh(where(where(all, inZone), is(Ready)))) >= float64(weigh(where(all, inZone)))/2 {
		used = zone
	}
	if c.subset > 0 && len(used) > c.subset {
		best := slices.Clone(used)
		slices.SortFunc(best, func(a, b *Endpoint) int {
			if score(a.weight(), fraction(c.id, a.Addr)) > score(b.weight(), fraction(c.id, b.Addr)) {
				return -1
			}
			return 1
		})
		used = where(used, func(e *Endpoint) bool { return slices.Contains(best[:c.subset], e) })
	}
	return used, panics
}

func randomList(r *rand.Rand, n int) (list []*Endpoint) {
	states := []State{Ready, Ready, Ready, Failing, Draining}[r.IntN(4):]
	for i := range n {
		list = append(list, &Endpoint{
			Addr: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: 1 + r.IntN(MaxWeight), State: states[r.IntN(len(states))],
			Zone: []string{"", "S", "V"}[r.IntN(3)], Token: uint64(i + 1),
		})
	}
	return list
}

// TestChoiceIsTheNaiveOne: random lists and callers.
func TestChoiceIsTheNaiveOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		all := randomList(r, r.IntN(12))
		c := caller{zone: []string{"", "S", "V", "other"}[r.IntN(4)], subset: r.IntN(6), panicShare: r.IntN(101), id: r.Uint64()}
		used, panics := choose(all, c)
		if want, wantPanic := naive(all, c); !slices.Equal(used, want) || panics != wantPanic {
			t.Fatalf("%d: %+v of %d: %q, %v; want %q, %v", i, c, len(all), names(used), panics, names(want), wantPanic)
		}
		if len(all) > 0 && len(used) == 0 {
			t.Fatalf("%d: %+v: nobody is used", i, c)
		}
		reasons := reasonsOf(all, c)
		for _, e := range all {
			if is, why := reasons.of(e); is != slices.Contains(used, e) || why == "" {
				t.Fatalf("%d: %+v: %s: %v, %q", i, c, e.Addr, is, why)
			}
		}
	}
}

// TestSubsets: one change of the list moves at most one connection of a caller, and the callers'
// connections are spread by weight.
func TestSubsets(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all := randomList(r, 500)
	for _, e := range all {
		e.State = Ready
	}
	for range 100 {
		c := caller{subset: 1 + r.IntN(200), id: r.Uint64()}
		before, _ := choose(all, c)
		i := r.IntN(len(all))
		after, _ := choose(slices.Delete(slices.Clone(all), i, i+1), c)
		for _, e := range before {
			if e != all[i] && !slices.Contains(after, e) {
				t.Fatalf("%+v: %s is left because %s went", c, e.Addr, all[i].Addr)
			}
		}
	}
	const callers, subset = 2000, 20
	for i, e := range all {
		e.Weight = 100 * (1 + i%2)
	}
	count := map[*Endpoint]int{}
	for range callers {
		used, _ := choose(all, caller{subset: subset, id: r.Uint64()})
		for _, e := range used {
			count[e]++
		}
	}
	for _, e := range all { // 53 and 107 about, with a deviation of 7 and 10
		if want := callers * subset / 750.0 * float64(e.Weight) / 100; math.Abs(float64(count[e])-want) > 0.75*want {
			t.Errorf("%d callers use %s of weight %d, want about %.0f", count[e], e.Addr, e.Weight, want)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	all := randomList(rand.New(rand.NewPCG(5, 6)), 5000)
	b.ReportAllocs()
	for i := range b.N {
		choose(all, caller{zone: "S", subset: 100, panicShare: 30, id: uint64(i)})
	}
}
