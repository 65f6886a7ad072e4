package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestLocksOfManyProcesses: processes that lock overlapping names all get theirs, alone, also when
// one of them is killed while it holds some. With SIGNALBOX_LONG there are 50, and five are killed
// in the middle.
func TestLocksOfManyProcesses(t *testing.T) {
	t.Parallel()
	const names = 16
	processes, victims := 10, 1
	if os.Getenv("SIGNALBOX_LONG") != "" {
		processes, victims = 50, 5
	}
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
		return append(append([]string{"lock"}, mine...), append([]string{"--hold-while-waiting", "3s", "--"}, command...)...)
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
