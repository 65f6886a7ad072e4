package ratelimit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestAcquireSentAgain: an acquire that comes again, by another connection, is the same one. It has one place while
// it waits, and one grant. With another amount or another leaf it is refused, and changes nothing.
func TestAcquireSentAgain(t *testing.T) {
	x := newWhyWorld(t, protocol.LimitConfig{Unlimited: true}, protocol.LimitConfig{Unlimited: true})
	x.now += 10_000 // all is learned
	var answers []string
	send := func(conn, seq, amount uint64, leaves ...string) error {
		err := x.leases.Acquire(x.now, x.tree, x.version, &Acquire{Session: 1, Epoch: 1, Seq: seq, Leaves: leaves,
			Amount: amount, Wait: true, From: Origin{conn, 1}})
		x.leases.Admit(x.now, x.tree, x.version, func(a *Answer) bool {
			answers = append(answers, fmt.Sprintf("%d: %t until %d", a.To.Conn, a.Granted, a.Until))
			return true
		})
		if err := x.leases.Check(); err != nil {
			t.Fatal(err)
		}
		return err
	}
	must := func(err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(answers, want) {
			t.Errorf("answered %q and %v, want %q", answers, err, want)
		}
		answers = nil
	}
	until := x.now + protocol.MaxLimitWithin
	granted := func(conn int) string { return fmt.Sprintf("%d: true until %d", conn, until) }
	must(send(1, 1, 1_000_000, "api/a"), granted(1))
	must(send(2, 1, 1_000_000, "api/a"), granted(2)) // its answer was lost
	if n := x.leases.grants.Len(); n != 1 {
		t.Errorf("one acquire has %d grants", n)
	}
	must(send(3, 2, 1_000, "api/a")) // the burst is used up
	waiting := x.leases.nodes[0].waiting
	must(send(4, 2, 1_000, "api/a"), "3: false until 0")
	for _, other := range []error{send(5, 1, 1_000, "api/a"), send(5, 2, 2_000, "api/a"), send(5, 2, 1_000, "api/b"),
		send(5, 2, 1_000, "api/a", "api/b"), send(5, 0, 1_000, "api/a")} {
		if other == nil {
			t.Error("a number stands for two acquires")
		}
	}
	if answers != nil || x.leases.nodes[0].waiting != waiting {
		t.Errorf("answered %q, and %d wait, not %d", answers, x.leases.nodes[0].waiting, waiting)
	}
}
