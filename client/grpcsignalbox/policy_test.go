package grpcsignalbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/signalbox-dev/signalbox/client/discovery"
)

// fakeGRPC is gRPC's side of a policy: it has the newest picker, and makes connections when it is
// told to.
type fakeGRPC struct {
	balancer.ClientConn
	picker balancer.Picker
	later  []func() // what the policy is told next
}

func (g *fakeGRPC) NewSubConn(a []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &fakeConnection{g: g, addr: a[0].Addr, listener: o.StateListener}, nil
}

func (g *fakeGRPC) UpdateState(s balancer.State) { g.picker = s.Picker }

// connect makes the connections that were asked for.
func (g *fakeGRPC) connect() {
	for len(g.later) > 0 {
		f := g.later[0]
		g.later = g.later[1:]
		f()
	}
}

// picked are the addresses that a run of picks comes to.
func (g *fakeGRPC) picked(t testing.TB, picks int) string {
	t.Helper()
	count := map[string]int{}
	for range picks {
		r, err := g.picker.Pick(balancer.PickInfo{})
		if err != nil {
			return err.Error()
		}
		count[r.SubConn.(*fakeConnection).addr]++
	}
	var list []string
	for addr, n := range count {
		list = append(list, fmt.Sprintf("%s=%d", addr, n))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

type fakeConnection struct {
	balancer.SubConn
	g        *fakeGRPC
	addr     string
	listener func(balancer.SubConnState)
}

func (c *fakeConnection) Connect() {
	c.g.later = append(c.g.later, func() {
		c.listener(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		c.listener(balancer.SubConnState{ConnectivityState: connectivity.Ready})
	})
}

func (c *fakeConnection) RegisterHealthListener(f func(balancer.SubConnState)) {
	c.g.later = append(c.g.later, func() { f(balancer.SubConnState{ConnectivityState: connectivity.Ready}) })
}

func (c *fakeConnection) Shutdown() {}

func fakePolicy(t testing.TB) (g *fakeGRPC, update func(used []*discovery.Endpoint)) {
	g = &fakeGRPC{}
	p := policyBuilder{}.Build(g, balancer.BuildOptions{})
	t.Cleanup(p.Close)
	return g, func(used []*discovery.Endpoint) {
		if err := p.UpdateClientConnState(balancer.ClientConnState{ResolverState: stateOf("service api in /billing", used)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChangeIsInThePickerAtOnce: who has gone, and what a weight is, is in the picker before the
// update of the list returns; who has come is in it as soon as it is connected. With
// discovery's TestChangeIsShownAtOnce nothing is waited for between the arrival of a change and the
// picker.
func TestChangeIsInThePickerAtOnce(t *testing.T) {
	g, update := fakePolicy(t)
	a, b, c := &discovery.Endpoint{Addr: "a:1", Weight: 1}, &discovery.Endpoint{Addr: "b:1", Weight: 1}, &discovery.Endpoint{Addr: "c:1", Weight: 2}
	for _, x := range []struct {
		used            []*discovery.Endpoint
		before, connect string // what 12 picks come to
	}{
		{[]*discovery.Endpoint{a, b}, balancer.ErrNoSubConnAvailable.Error(), "a:1=6 b:1=6"},
		{[]*discovery.Endpoint{b}, "b:1=12", "b:1=12"},
		{[]*discovery.Endpoint{b, c}, "b:1=12", "b:1=4 c:1=8"},
		{[]*discovery.Endpoint{{Addr: "b:1", Weight: 6}, c}, "b:1=9 c:1=3", "b:1=9 c:1=3"},
		{nil, "service api in /billing has no members", "service api in /billing has no members"},
	} {
		update(x.used)
		if got := g.picked(t, 12); got != x.before {
			t.Errorf("%v: picks come to %q at once, want %q", x.used, got, x.before)
		}
		g.connect()
		if got := g.picked(t, 12); got != x.connect {
			t.Errorf("%v: picks come to %q, want %q", x.used, got, x.connect)
		}
	}
}

// hundred are the endpoints of a caller with the default subset.
func hundred() (list []*discovery.Endpoint) {
	for i := range discovery.DefaultSubset {
		list = append(list, &discovery.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:80", i), Weight: 1 + i*7})
	}
	return list
}

// BenchmarkUpdate is one of a hundred endpoints that goes, or returns, until it is in the picker. It
// needs no time to connect.
func BenchmarkUpdate(b *testing.B) {
	g, update := fakePolicy(b)
	all := hundred()
	update(all)
	g.connect()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		update(all[i%2:])
		g.connect()
	}
}

// BenchmarkPickOfHundred is a pick of the policy, with the 99th percentile of single picks, from
// which the time of reading the clock is taken.
func BenchmarkPickOfHundred(b *testing.B) {
	g, update := fakePolicy(b)
	update(hundred())
	g.connect()
	measure := func(f func()) []time.Duration {
		list := make([]time.Duration, b.N)
		for i := range list {
			t := time.Now()
			f()
			list[i] = time.Since(t)
		}
		slices.Sort(list)
		return list
	}
	clock := measure(func() {})
	b.ReportAllocs()
	b.ResetTimer()
	picks := measure(func() {
		if _, err := g.picker.Pick(balancer.PickInfo{}); err != nil {
			b.Fatal(err)
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(picks[b.N*99/100]-clock[b.N/2]), "ns-p99")
	b.ReportMetric(float64(picks[b.N/2]-clock[b.N/2]), "ns-p50")
}
