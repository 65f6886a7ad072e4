package shard

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHandedOff: the leader is told of a lock that went to a waiter, as long as the next one that
// asks has to wait.
func TestHandedOff(t *testing.T) {
	x := newBenchMachine(4)
	name := []byte("lock")
	step := func(commands func()) HandedOff {
		x.begin()
		commands()
		x.commit()
		return x.out.HandedOff
	}
	check := func(what string, on HandedOff, owner int) {
		t.Helper()
		if owner < 0 && on.Name != nil || owner >= 0 && (on.Node != 1 || string(on.Name) != "lock" || on.Owner != x.sessions[owner]) {
			t.Errorf("%s: handed off %+v", what, on)
		}
	}
	check("acquires", step(func() {
		x.create(0, name, 1)
		x.acquire(0, name, false)
		x.acquire(1, name, false)
		x.acquire(2, name, false)
	}), -1)
	check("a release with two waiters", step(func() { x.release(0, name) }), 1)
	check("nothing", step(func() {}), -1)
	check("a release with one waiter", step(func() { x.release(1, name) }), 2)
	check("a release without one", step(func() { x.release(2, name) }), -1)

	check("a release, and the next owner's in the same batch", step(func() {
		x.acquire(0, name, false)
		x.acquire(1, name, false)
		x.release(0, name)
		x.release(1, name)
	}), -1)
	check("a release, and a higher limit in the same batch", step(func() {
		x.acquire(0, name, false)
		x.acquire(1, name, false)
		x.release(0, name)
		m := protocol.Resize{Head: x.head(0), Name: name, Limit: 2}
		x.body = protocol.AppendBody(x.body[:0], &m)
		x.command(CmdResize)
	}), -1)

	two := []byte("two")
	step(func() {
		x.create(0, two, 2)
		m := protocol.Acquire{Head: x.head(0), Name: two, Count: 2, Timeout: protocol.Forever}
		x.body = m.AppendBody(x.body[:0])
		x.command(CmdAcquire)
		x.acquire(1, two, false)
	})
	check("a release of two units with one waiter for one", step(func() { x.release(0, two) }), -1)
	step(func() {
		x.release(1, two)
		m := protocol.Acquire{Head: x.head(0), Name: two, Count: 2, Timeout: protocol.Forever}
		x.body = m.AppendBody(x.body[:0])
		x.command(CmdAcquire)
		x.acquire(1, two, false)
		x.acquire(2, two, false)
		x.acquire(3, two, false)
	})
	check("a release to two owners", step(func() { x.release(0, two) }), -1)
}
