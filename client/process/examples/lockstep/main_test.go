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

// TestMain runs the example in place of the tests when a test asks for it.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_EXAMPLE") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// lines are what all members wrote, whole lines alone.
func lines(t *testing.T, file string) [][]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	var list [][]string
	for l := range strings.Lines(string(b)) {
		list = append(list, strings.Fields(l))
	}
	return list
}

// completed waits for a round that exactly these members completed, and gives its result.
func completed(t *testing.T, file string, names ...string) string {
	t.Helper()
	what := fmt.Sprintf("a complete round of %v", names)
	return await.Seen(t, what, func() (string, bool) {
		size, done, result := map[string]string{}, map[string]int{}, map[string]string{}
		for _, f := range lines(t, file) {
			switch f[3] {
			case "prepare":
				size[f[2]] = f[5]
			case "complete":
				done[f[2]]++
				result[f[2]] = strings.Join(f[4:], " ")
			}
		}
		for epoch, n := range done {
			if n == len(names) && size[epoch] == fmt.Sprint(n) && by(t, file, epoch, names) {
				return result[epoch], true
			}
		}
		return fmt.Sprint(lines(t, file)), false
	})
}

// by reports whether each of these members completed the round.
func by(t *testing.T, file, epoch string, names []string) bool {
	found := map[string]bool{}
	for _, f := range lines(t, file) {
		if f[2] == epoch && f[3] == "complete" {
			found[f[0]] = true
		}
	}
	for _, n := range names {
		if !found[n] {
			return false
		}
	}
	return true
}

// TestLockstep runs the example as processes: three come, the coordinator is killed, another one
// leaves.
func TestLockstep(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	file := filepath.Join(t.TempDir(), "log")
	running := map[string]*exec.Cmd{}
	start := func(name string) {
		t.Helper()
		cmd := exec.Command(os.Args[0], "--name", name, "--log", file, "--session-timeout", "1m")
		cmd.Env = append(os.Environ(), "RUN_EXAMPLE=1", "SIGNALBOX_ENDPOINTS="+srv.Addr())
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[name] = cmd
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	}
	start("a")
	completed(t, file, "a")
	start("b")
	completed(t, file, "a", "b")
	start("c")
	if r := completed(t, file, "a", "b", "c"); r != "changed by a" {
		t.Errorf("the result is %q", r)
	}

	if err := running["a"].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = running["a"].Wait()
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	node, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	status, err := process.NewOperator(node, "lockstep").Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// rather than to wait for its timeout
	if err := admin.OfNode(node).KillSession(t.Context(), status.Coordinator, "its process was killed"); err != nil {
		t.Fatal(err)
	}
	if r := completed(t, file, "b", "c"); r != "changed by b" {
		t.Errorf("the result without a is %q", r)
	}
	if err := running["b"].Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := running["b"].Wait(); err != nil {
		t.Errorf("b ended with %v", err)
	}
	if r := completed(t, file, "c"); r != "changed by c" {
		t.Errorf("the result of c alone is %q", r)
	}

	// Of each epoch, all wrote a step before anybody wrote the next one.
	order := map[string]int{"prepare": 0, "lock": 1, "execute": 2, "unlock": 3, "complete": 4}
	stage, count, size := map[string]int{}, map[string]int{}, map[string]string{}
	for _, f := range lines(t, file) {
		epoch, step := f[2], f[3]
		at, ok := order[step]
		if !ok {
			continue // cancel: from anywhere
		}
		if step == "prepare" {
			size[epoch] = f[5]
		}
		if at < stage[epoch] || at > stage[epoch]+1 || at == stage[epoch]+1 && fmt.Sprint(count[epoch]) != size[epoch] {
			t.Fatalf("epoch %s: %v after %d of %s took step %d", epoch, f, count[epoch], size[epoch], stage[epoch])
		}
		if at > stage[epoch] {
			stage[epoch], count[epoch] = at, 0
		}
		count[epoch]++
	}
}
