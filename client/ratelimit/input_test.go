package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestBadConfigurations: what a resource cannot be is refused with a sentence, and nothing stays of it.
// Rates are numbers with a fraction here alone: on the wire and in the server they are integers.
func TestBadConfigurations(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000)})
	f.create(s, "api/a", ratelimit.Config{Min: 600})
	type config = ratelimit.Config
	for what, x := range map[string]struct {
		path string
		c    config
		want protocol.Status
	}{
		"a rate that is no number":    {"x", config{Rate: ratelimit.PerSecond(math.NaN())}, protocol.StatusBadRequest},
		"a guarantee that is none":    {"x", config{Rate: ratelimit.PerSecond(1), Min: math.NaN()}, protocol.StatusBadRequest},
		"a floor that is none":        {"x", config{Rate: ratelimit.PerSecond(1), Floor: math.NaN()}, protocol.StatusBadRequest},
		"an infinite rate":            {"x", config{Rate: ratelimit.PerSecond(math.Inf(1))}, protocol.StatusBadRequest},
		"a rate below 0":              {"x", config{Rate: ratelimit.PerSecond(-1)}, protocol.StatusBadRequest},
		"a guarantee below 0":         {"x", config{Rate: ratelimit.PerSecond(1), Min: math.Inf(-1)}, protocol.StatusBadRequest},
		"too high a rate":             {"x", config{Rate: ratelimit.PerSecond(1e12 + 1)}, protocol.StatusBadRequest},
		"no rate":                     {"x", config{}, protocol.StatusBadRequest},
		"a rate that rounds to none":  {"x", config{Rate: ratelimit.PerSecond(0.0004)}, protocol.StatusBadRequest},
		"a burst of too many units":   {"x", config{Rate: ratelimit.PerSecond(1e12), Burst: 1001 * time.Millisecond}, protocol.StatusBadRequest},
		"a burst over an hour":        {"x", config{Rate: ratelimit.PerSecond(1), Burst: time.Hour + 1}, protocol.StatusBadRequest},
		"a burst below 0":             {"x", config{Rate: ratelimit.PerSecond(1), Burst: -1}, protocol.StatusBadRequest},
		"too high a weight":           {"api/x", config{Weight: 10_001}, protocol.StatusBadRequest},
		"a guarantee above the rate":  {"api/x", config{Rate: ratelimit.PerSecond(1), Min: 2}, protocol.StatusBadRequest},
		"guarantees above the parent": {"api/x", config{Min: 400.001}, protocol.StatusBadRequest},
		"too short a lease":           {"x", config{Rate: ratelimit.PerSecond(1), Lease: 499 * time.Millisecond}, protocol.StatusBadRequest},
		"too long a lease":            {"x", config{Rate: ratelimit.PerSecond(1), Lease: time.Minute + 1}, protocol.StatusBadRequest},
		"a lease below 0":             {"x", config{Rate: ratelimit.PerSecond(1), Lease: -1}, protocol.StatusBadRequest},
		"a lease below a root":        {"api/x", config{Lease: time.Second}, protocol.StatusBadRequest},
		"a long foreign setting":      {"x", config{Rate: ratelimit.PerSecond(1), Foreign: strings.Repeat("x", 257)}, protocol.StatusBadRequest},
		"no path":                     {"", config{Rate: ratelimit.PerSecond(1)}, protocol.StatusBadRequest},
		"too long a path":             {strings.Repeat("x", 1025), config{Rate: ratelimit.PerSecond(1)}, protocol.StatusBadRequest},
		"too deep a path":             {"a/b/c/d/e/f/g/h/i", config{Rate: ratelimit.PerSecond(1)}, protocol.StatusBadRequest},
		"an empty segment":            {"api//x", config{}, protocol.StatusBadRequest},
		"a slash at the end":          {"api/", config{}, protocol.StatusBadRequest},
		"a relative path":             {"api/../x", config{}, protocol.StatusBadRequest},
		"another character":           {"api/ä", config{}, protocol.StatusBadRequest},
		"no parent":                   {"api/x/y", config{}, protocol.StatusNotFound},
		"one that is there":           {"api/a", config{}, protocol.StatusAlreadyExists},
	} {
		if _, err := ratelimit.Create(f.ctx, s, x.path, x.c); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
	alter := func(path string, revision uint64, c config) error {
		_, err := ratelimit.Alter(f.ctx, s, path, revision, c)
		return err
	}
	for what, x := range map[string]struct {
		err  error
		want protocol.Status
	}{
		"an alter to no number":         {alter("api", 0, config{Rate: ratelimit.PerSecond(math.NaN())}), protocol.StatusBadRequest},
		"an alter below the guarantees": {alter("api", 0, config{Rate: ratelimit.PerSecond(599.999)}), protocol.StatusBadRequest},
		"an alter of another revision":  {alter("api/a", 9, config{}), protocol.StatusPreconditionFailed},
		"an alter of none":              {alter("api/x", 0, config{}), protocol.StatusNotFound},
		"a delete with children":        {ratelimit.Delete(f.ctx, s, "api", 0), protocol.StatusPreconditionFailed},
		"a delete of another revision":  {ratelimit.Delete(f.ctx, s, "api/a", 9), protocol.StatusPreconditionFailed},
		"a delete of none":              {ratelimit.Delete(f.ctx, s, "x", 0), protocol.StatusNotFound},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", what, x.err, x.want)
		}
	}
	status, err := ratelimit.Describe(f.ctx, s.Node(), "api", 0)
	if err != nil || len(status.Resources) != 2 || status.Resources[0].Rate != 1000 || status.Resources[1].Revision != 2 {
		t.Errorf("%+v %v", status, err)
	}
	if _, err := ratelimit.Describe(f.ctx, s.Node(), "x", 0); !errors.Is(err, protocol.StatusNotFound) {
		t.Error(err)
	}
}

// TestBadAmounts: 0 units are free, also without a lease; what overflows, or can never be admitted
// together, is refused at once, and takes nothing.
func TestBadAmounts(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(100), Burst: 500 * time.Millisecond, Lease: time.Minute})
	f.create(s, "other", ratelimit.Config{Rate: ratelimit.PerSecond(1e12), Lease: time.Minute})
	l, other := f.open(s, "api"), f.open(s, "other")
	both := ratelimit.All(l, other)
	for what, err := range map[string]error{
		"wait":             l.Wait(f.ctx, 0),
		"wait for both":    both.Wait(f.ctx, 0),
		"wait, ctx ended":  func() error { ctx, end := context.WithCancel(f.ctx); end(); return l.Wait(ctx, 0) }(),
		"reserve and wait": func() error { r, _ := l.Reserve(0); r.Cancel(); return r.Wait(f.ctx) }(),
	} {
		if err != nil {
			t.Errorf("0 units, %s: %v", what, err)
		}
	}
	l.Spent(0)
	if !l.Allow(0) || !both.Allow(0) {
		t.Error("0 units are not free")
	}
	for _, n := range []uint64{51, 1 << 32, math.MaxUint64/1000 + 1, math.MaxUint64/1000 + 10, 1 << 63, math.MaxUint64} {
		_, reserved := l.Reserve(n)
		for what, err := range map[string]error{"wait": l.Wait(f.ctx, n), "reserve": reserved, "wait for both": both.Wait(f.ctx, n)} {
			if !errors.Is(err, protocol.StatusBadRequest) {
				t.Errorf("%s of %d units: %v", what, n, err)
			}
		}
		if l.Allow(n) || both.Allow(n) {
			t.Errorf("%d units are allowed", n)
		}
		if d, err := l.RetryAfter(n); !errors.Is(err, protocol.StatusBadRequest) {
			t.Errorf("retry %d units after %v: %v", n, d, err)
		}
	}
	if s, o := l.Stats(), other.Stats(); s.Allowed != 0 || s.Waiting != 0 || o.Allowed != 0 {
		t.Errorf("%+v %+v", s, o)
	}
	if err := l.Wait(f.ctx, 50); err != nil { // a whole burst is no overflow
		t.Error(err)
	}
	for l.Stats().Rate == 0 { // what is spent without a lease is owed
		if err := l.Wait(f.ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	l.Spent(math.MaxUint64) // the level goes down to ten bursts below zero, and not around
	if s := l.Stats(); s.Burst < 5 || s.Level < -10*s.Burst-1 || s.Level > -10*s.Burst+10 {
		t.Errorf("after all is spent there are %v units, of a burst of %v", s.Level, s.Burst)
	}
	if l.Allow(1) {
		t.Error("a call is allowed after more was spent than there is")
	}
}

// TestBadStatements: a session that presents statements that are not its own, not of this lease or
// nobody's gets nothing by them: both together have no more than the limit, and go on.
func TestBadStatements(t *testing.T) {
	f := newFleet(t)
	a, b := f.session(), f.session()
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: 500 * time.Millisecond})
	la, lb := f.open(a, "api"), f.open(b, "api")
	refresh := func() {
		for a, b := la.Stats().Refreshes, lb.Stats().Refreshes; la.Stats().Refreshes < a+2 || lb.Stats().Refreshes < b+2; {
			if err := errors.Join(la.Wait(f.ctx, 5), lb.Wait(f.ctx, 5)); err != nil {
				t.Fatal(err)
			}
		}
		d, err := ratelimit.Describe(f.ctx, a.Node(), "api", 10)
		if err != nil || d.Resources[0].Leased > 1000 || d.Participants != 2 {
			t.Fatalf("%+v %v", d, err)
		}
	}
	refresh()
	old := ratelimit.Statement(la)
	refresh()
	for _, x := range [][]byte{nil, []byte("anything"), make([]byte, 113), old, ratelimit.Statement(lb)} {
		ratelimit.SetStatement(la, x)
		refresh()
	}
	own := ratelimit.Statement(la)
	own[len(own)/2]++
	ratelimit.SetStatement(la, own)
	refresh()
}

// TestParticipants: two sessions of one program are two participants; two limiters of one session are
// one. A limiter that is closed twice is closed.
func TestParticipants(t *testing.T) {
	f := newFleet(t)
	a := f.session()
	b, err := a.Client().Session(f.ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	f.create(a, "api", ratelimit.Config{Rate: ratelimit.PerSecond(100)})
	one, again, two := f.open(a, "api"), f.open(a, "api"), f.open(b, "api")
	participants := func() uint64 {
		d, err := ratelimit.Describe(f.ctx, a.Node(), "api", 10)
		if err != nil {
			t.Fatal(err)
		}
		return d.Participants
	}
	if n := participants(); n != 2 {
		t.Errorf("%d participants", n)
	}
	for range 2 {
		if err := one.Close(f.ctx); err != nil {
			t.Error(err)
		}
	}
	if one.Allow(1) || !errors.Is(one.Wait(f.ctx, 1), ratelimit.ErrClosed) || one.Context().Err() == nil {
		t.Error("a limiter is used after it was closed")
	}
	if err := again.Wait(f.ctx, 1); err != nil || participants() != 2 {
		t.Errorf("another limiter of the session: %v", err)
	}
	if err := again.Close(f.ctx); err != nil || participants() != 1 {
		t.Errorf("%v; %d participants", err, participants())
	}
	if err := b.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	<-two.Context().Done()
	if err := two.Wait(f.ctx, 1); err == nil || two.Allow(1) {
		t.Errorf("a limiter is used after its session has ended: %v", err)
	}
}

// TestQuotaOfRequests: refreshes count against the node's quota of requests. Limiters beyond it get
// their leases later.
func TestQuotaOfRequests(t *testing.T) {
	f := newFleet(t)
	c := f.session().Client()
	quota := uint64(10)
	if _, err := admin.Nodes(c).Create(f.ctx, "/slow", admin.NodeConfig{MaxRequests: &quota}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(f.ctx, "/slow", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: 500 * time.Millisecond})
	l := f.open(s, "api")
	for range 10 {
		if err := l.Wait(f.ctx, 100); err != nil {
			t.Fatal(err)
		}
	}
}
