package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestLocksOfManyProcesses: processes that lock overlapping names all get theirs, alone, also when
// one of them is killed while it holds some. With SIGNALBOX_LONG there are 50.
func TestLocksOfManyProcesses(t *testing.T) {
	t.Parallel()
	const names = 16
	processes := 10
	if os.Getenv("SIGNALBOX_LONG") != "" {
		processes = 50
	}
	srv := servertest.Start(t, servertest.RealTime())
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "SIGNALBOX_SESSION_TIMEOUT=2s"}
	folder := t.TempDir()
	// A folder that exists has another holder.
	const work = `cd "$0" || exit 9
want=$1; shift
[ "$(echo "$SIGNALBOX_LEASES" | grep -o '"name"' | wc -l)" -eq "$want" ] || exit 8
for name; do mkdir "$name" || exit 7; done
for name; do rmdir "$name" || exit 6; done`
	lock := func(mine []string, command ...string) []string {
		return append(append([]string{"lock"}, mine...), append([]string{"--hold-while-waiting", "3s", "--"}, command...)...)
	}

	began := filepath.Join(folder, "began")
	victim := start(t, env, "signalbox", lock([]string{"n3", "n7", "n11"}, "sh", "-c", "touch "+began+"; exec sleep 1000")...)
	await.True(t, "the first process works", func() bool { _, err := os.Stat(began); return err == nil })

	r := rand.New(rand.NewPCG(1, 2))
	var all []*running
	for range processes {
		var mine []string
		for _, n := range r.Perm(names)[:2+r.IntN(5)] {
			mine = append(mine, fmt.Sprintf("n%d", n))
		}
		all = append(all, start(t, env, "signalbox", lock(mine, append([]string{"sh", "-c", work, folder, strconv.Itoa(len(mine))}, mine...)...)...))
	}
	victim.signal(syscall.SIGKILL)
	for i, p := range all {
		if code := p.code(); code != 0 {
			t.Errorf("process %d: exit code %d:\n%s", i, code, p.output.String())
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
