package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

const partitions = 9

// TestMain runs the example in place of the tests when a test asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_EXAMPLE") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// queue reads what was written to each partition: number, worker, token a line.
func queue(t *testing.T, dir string) (list [partitions][][3]string) {
	t.Helper()
	for p := range list {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(p)))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for l := range strings.Lines(string(b[:bytes.LastIndexByte(b, '\n')+1])) {
			f := strings.Fields(l)
			list[p] = append(list[p], [3]string{f[0], f[1], f[2]})
		}
	}
	return list
}

// spread waits until the partitions are with workers in these numbers, by who writes from now on.
func spread(t *testing.T, dir string, want map[string][2]int) {
	t.Helper()
	was := queue(t, dir)
	await.Seen(t, fmt.Sprintf("partitions to be with %v", want), func() (map[string]int, bool) {
		counts, fresh := map[string]int{}, true
		now := queue(t, dir)
		for p, l := range now {
			if len(l) == len(was[p]) {
				fresh = false
				continue
			}
			counts[l[len(l)-1][1]]++
		}
		ok := fresh && len(counts) == len(want)
		for name, x := range want {
			ok = ok && counts[name] >= x[0] && counts[name] <= x[1]
		}
		return counts, ok
	})
}

// TestWorkers runs the example as processes. In the end each partition has its numbers from 1 on
// without one missing or twice, with tokens that never fall.
func TestWorkers(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	dir := t.TempDir()
	running := map[string]*exec.Cmd{}
	start := func(name string, flags ...string) {
		t.Helper()
		cmd := exec.Command(os.Args[0], append([]string{"--name", name, "--queue", dir, "--session-timeout", "1m",
			"--return", "10m"}, flags...)...)
		cmd.Env = append(os.Environ(), "RUN_EXAMPLE=1", "SIGNALBOX_ENDPOINTS="+srv.Addr())
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[name] = cmd
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	stop := func(name string) {
		t.Helper()
		if err := running[name].Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := running[name].Wait(); err != nil {
			t.Errorf("%s ended with %v", name, err)
		}
	}
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	node, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	workers := process.NewOperator(node, "workers")
	status := func() *process.Status {
		t.Helper()
		s, err := workers.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	kill := func(name string) {
		t.Helper()
		if err := running[name].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = running[name].Wait()
		for _, m := range status().Members {
			if string(m.Data) == name {
				// rather than to wait for its timeout
				if err := admin.OfNode(node).KillSession(t.Context(), m.Session, "its process was killed"); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	start("a")
	spread(t, dir, map[string][2]int{"a": {9, 9}})
	start("b")
	spread(t, dir, map[string][2]int{"a": {4, 5}, "b": {4, 5}})
	start("c", "--key", "c")
	spread(t, dir, map[string][2]int{"a": {3, 3}, "b": {3, 3}, "c": {3, 3}})
	kill("a") // it coordinates
	spread(t, dir, map[string][2]int{"b": {4, 5}, "c": {4, 5}})
	start("d")
	spread(t, dir, map[string][2]int{"b": {3, 3}, "c": {3, 3}, "d": {3, 3}})
	stop("b")
	spread(t, dir, map[string][2]int{"c": {4, 5}, "d": {4, 5}})

	// One with a key comes back within the time that it has: the others go on as they are, without
	// a round.
	before := quiet(t, status)
	kill("c")
	start("c", "--key", "c")
	spread(t, dir, map[string][2]int{"c": {4, 5}, "d": {4, 5}})
	if after := quiet(t, status); after.Epoch != before.Epoch || after.Tally.Returned != before.Tally.Returned+1 {
		t.Errorf("epoch %d after %d, %d returned after %d", after.Epoch, before.Epoch, after.Tally.Returned, before.Tally.Returned)
	}
	stop("c")
	spread(t, dir, map[string][2]int{"d": {9, 9}})
	stop("d")
	for p, l := range queue(t, dir) {
		var last uint64
		for i, line := range l {
			var token uint64
			if _, err := fmt.Sscan(line[2], &token); err != nil {
				t.Fatal(err)
			}
			if line[0] != fmt.Sprint(i+1) || token < last {
				t.Fatalf("partition %d has %v as line %d, after token %d", p, line, i+1, last)
			}
			last = token
		}
	}
}

// quiet waits until all members have completed the round.
func quiet(t *testing.T, status func() *process.Status) *process.Status {
	t.Helper()
	return await.Seen(t, "a complete round", func() (*process.Status, bool) {
		s := status()
		return s, s.Phase == process.Completed && len(s.Lagging()) == 0
	})
}
