package grpcsignalbox

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

// TestSchedule: in any run of as many picks as the sum of weights, each comes its weight, plus or
// minus 1.
func TestSchedule(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		weights := make([]int, 1+r.IntN(20))
		sum := 0
		for i := range weights {
			weights[i] = 1 + r.IntN([]int{1, 5, 1000}[r.IntN(3)])
			sum += weights[i]
		}
		s := newSchedule(weights, rand.IntN)
		for range 3 {
			count := make([]int, len(weights))
			for range sum {
				count[s.next()]++
			}
			for i, w := range weights {
				if count[i] < w-1 || count[i] > w+1 {
					t.Fatalf("weights %v: %v", weights, count)
				}
			}
			for range r.IntN(sum) {
				s.next()
			}
		}
	}
	s := newSchedule([]int{100, 200, 300}, rand.IntN)
	if n := testing.AllocsPerRun(100, func() { s.next() }); n != 0 {
		t.Errorf("a pick allocates %v times", n)
	}
}

// TestFreshCallersAreSpread: of the first calls of many callers that have just got a list, each member
// gets its weight's share, and of the second ones no more than twice, nor less than half of it.
func TestFreshCallersAreSpread(t *testing.T) {
	const callers = 20_000
	r := rand.New(rand.NewPCG(1, 1))
	for _, weights := range [][]int{{1}, {1, 1}, {7, 7, 7, 7, 7}, {10, 1}, {1, 10}, {100, 1, 50}, {3, 1, 4, 1, 5, 9, 2, 6}} {
		sum := 0
		for _, w := range weights {
			sum += w
		}
		count := [2][]int{make([]int, len(weights)), make([]int, len(weights))}
		for range callers {
			s := newSchedule(weights, r.IntN)
			count[0][s.next()]++
			count[1][s.next()]++
		}
		for call, n := range count {
			for i, w := range weights {
				want := callers * w / sum
				least, most := want*4/5, want*6/5 // chance
				if call > 0 {                     // and the order of the turns
					least, most = want/2, want*2
				}
				if n[i] < least || n[i] > most {
					t.Errorf("weights %v: member %d gets call %d of %d callers, %d by its weight: %v", weights, i, call+1, n[i], want, n)
				}
			}
		}
	}
}

func BenchmarkPick(b *testing.B) {
	weights := make([]int, 100)
	for i := range weights {
		weights[i] = 1 + i*7
	}
	s := newSchedule(weights, rand.IntN)
	b.ReportAllocs()
	for range b.N {
		s.next()
	}
}

// TestTargets: the node and the service, each with percent-encoding.
func TestTargets(t *testing.T) {
	for target, want := range map[string]string{
		"signalbox:///billing/api": "/billing api", "signalbox:///a/b/c%2Fd": "/a/b c/d", "signalbox:///a%20b/c": "/a b c",
	} {
		u, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		if node, service, err := parseTarget(u); node+" "+service != want || err != nil {
			t.Errorf("%s: %q %q %v", target, node, service, err)
		}
	}
}

// FuzzTarget: what is taken has a node and a service.
func FuzzTarget(f *testing.F) {
	f.Add("signalbox:///billing/api")
	f.Add("signalbox:///a%2/b?c#d")
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.Parse(target)
		if err != nil {
			return
		}
		if node, service, err := parseTarget(u); err == nil && (service == "" || node == "" || strings.Contains(u.Host, "x")) {
			t.Fatalf("%q: %q %q", target, node, service)
		}
	})
}
