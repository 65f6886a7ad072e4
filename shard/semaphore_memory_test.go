package shard

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestNewSemaphore: names of all lengths, each in the memory of its record if it is not long.
func TestNewSemaphore(t *testing.T) {
	for n := range 200 {
		name := bytes.Repeat([]byte{byte(n), 'x'}, n)[:n]
		s := newSemaphore(name)
		if !bytes.Equal(s.name, name) || cap(s.name) != n || s.semaphoreExtras != &noExtras {
			t.Fatalf("a name of %d bytes became %q", n, s.name)
		}
		if form.Race {
			continue
		}
		want := 1.0
		if n > 72 {
			want = 2
		}
		if got := testing.AllocsPerRun(10, func() { newSemaphore(name) }); got > want {
			t.Errorf("a name of %d bytes costs %v allocations, want %v", n, got, want)
		}
	}
}

// TestOwnParts: what one session or semaphore does changes nothing of what those without a part of
// their own share.
func TestOwnParts(t *testing.T) {
	x := newBenchMachine(3)
	x.begin()
	x.create(0, []byte("a"), 1)
	x.create(0, []byte("b"), 1)
	x.acquire(0, []byte("a"), false)
	x.acquire(1, []byte("a"), false)
	x.commit()
	find := func(name string) *semaphore {
		return x.m.semaphores.lookup(x.m.activeBucket(1, []byte(name)), 1, []byte(name))
	}
	if s := find("a"); s.semaphoreExtras == &noExtras || s.waiters.n != 1 || !s.owners.first.session.hasReferences() {
		t.Error("a semaphore with a waiter has no queue")
	}
	if s := find("b"); s.semaphoreExtras != &noExtras || s.waiters.n != 0 {
		t.Error("a semaphore that nobody asked for has extras")
	}
	for i, id := range x.sessions {
		if p := x.m.sessions.get(id); (p.sessionUse == &unused) != (i == 2) || i == 2 && p.low != 1 {
			t.Errorf("session %d: own use %v, low %d", i, p.sessionUse != &unused, p.low)
		}
	}
	if err := x.m.Check(); err != nil {
		t.Error(err)
	}
}
