package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestLocksOfManyProcesses: processes that lock overlapping names all get theirs, alone, also when
// one of them is killed while it holds some. In form long there are 50, and five are killed
// in the middle.
func TestLocksOfManyProcesses(t *testing.T) {
	t.Parallel()
	const names = 16
	processes, victims := form.Of(10, 50), form.Of(1, 5)
	srv := servertest.Start(t, servertest.RealTime())
	folder := t.TempDir()
	// The session of one that is killed ends soon, and that of no other one does on a slow machine.
	env := func(timeout string) []string {
		return []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "SIGNALBOX_SESSION_TIMEOUT=" + timeout}
	}
	// A folder that exists has another holder.
	const work = `cd "$0" || exit 9
want=$1; shift
[ "$(echo "$SIGNALBOX_LEASES" | grep -o '"name"' | wc -l)" -eq "$want" ] || exit 8
for name; do mkdir "$name" || exit 7; done
for name; do rmdir "$name" || exit 6; done`
	lock := func(mine []string, command ...string) []string {
		return append(append([]string{"lock"}, mine...), append([]string{"--"}, command...)...)
	}
	began := func(i int) string { return filepath.Join(folder, fmt.Sprintf("began-%d", i)) }
	toKill := make([]*running, victims)
	startVictim := func(i int, timeout string, mine ...string) {
		toKill[i] = start(t, env(timeout), "signalbox", lock(mine, "sh", "-c", "touch "+began(i)+"; exec sleep 1000")...)
	}

	startVictim(0, "2s", "n3", "n7", "n11")
	await.True(t, "the first process that is killed to work", func() bool { _, err := os.Stat(began(0)); return err == nil })
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() (mine []string) {
		for _, n := range r.Perm(names)[:2+r.IntN(5)] {
			mine = append(mine, fmt.Sprintf("n%d", n))
		}
		return mine
	}
	var all []*running
	for i := range processes {
		if k := i * victims / processes; toKill[k] == nil {
			startVictim(k, "10s", draw()...)
		}
		mine := draw()
		all = append(all, start(t, env("2m"), "signalbox",
			lock(mine, append([]string{"sh", "-c", work, folder, strconv.Itoa(len(mine))}, mine...)...)...))
	}
	for _, p := range toKill { // the others have their names by now, or some of them, or wait
		_ = p.cmd.Process.Kill()
	}
	for i, p := range all {
		if code := p.code(); code != 0 {
			t.Errorf("process %d: exit code %d:\n%s", i, code, p.output.String())
		}
	}
	if left, err := filepath.Glob(filepath.Join(folder, "n*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLockOfManyWaitsInTurn: a command that holds one lock keeps its place in the queue of the next
// one however long that takes, with three others ahead of it and a minute gone by.
func TestLockOfManyWaitsInTurn(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := t.Context()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	var ahead []*client.Session
	leases := make(chan *client.Lease, 3)
	describe := func(name string) *client.Semaphore {
		sem, err := ahead[0].Node().Describe(ctx, name, client.IncludeOwners(), client.IncludeWaiters())
		if err != nil {
			t.Fatal(err)
		}
		return sem
	}
	for i := range 3 {
		s, err := c.Session(ctx, "/default", client.Timeout(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		ahead = append(ahead, s)
		go func() {
			if l, err := s.Acquire(ctx, "b", client.Exclusive()); err == nil {
				leases <- l
			}
		}()
		await.True(t, "another one to hold b, or to wait for it", func() bool {
			sem, err := s.Node().Describe(ctx, "b")
			return err == nil && sem.NumOwners+sem.NumWaiters == uint64(i)+1
		})
	}
	p := start(t, []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "SIGNALBOX_SESSION_TIMEOUT=10m"},
		"signalbox", "lock", "a", "b", "--", "sh", "-c", `echo "$SIGNALBOX_LEASES"`)
	await.True(t, "the command to wait for b", func() bool { return describe("b").NumWaiters == 3 })
	place := describe("b").Waiters[2].Place
	srv.Advance(time.Minute)
	if a, b := describe("a"), describe("b"); a.NumOwners != 1 || b.NumWaiters != 3 || b.Waiters[2].Place != place {
		t.Errorf("after a minute a has %d owners; b has the waiters %+v", a.NumOwners, b.Waiters)
	}
	for range ahead {
		if err := (<-leases).Release(ctx); err != nil {
			t.Error(err)
		}
	}
	if code, want := p.code(), fmt.Sprintf(`"name":"b","token":%d,`, place); code != 0 || !strings.Contains(p.output.String(), want) {
		t.Errorf("exit code %d, and no %s in %s", code, want, p.output.String())
	}
}
