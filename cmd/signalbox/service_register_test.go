package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestOnceWait: a wait that begins again with another session does not last longer than it was to.
func TestOnceWait(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	for _, x := range []struct{ length, passed, want time.Duration }{
		{time.Minute, 0, time.Minute},
		{time.Minute, 20 * time.Second, 40 * time.Second},
		{time.Minute, time.Hour, 0},
		{0, time.Second, 0},
		{client.Forever, time.Hour, client.Forever},
	} {
		w := onceWait{length: x.length}
		if got := w.left(begin); got != x.length {
			t.Errorf("a wait of %v begins with %v", x.length, got)
		}
		if got := w.left(begin.Add(x.passed)); got != x.want {
			t.Errorf("a wait of %v that begins again after %v lasts %v, want %v", x.length, x.passed, got, x.want)
		}
	}
}

// TestRegisterWhileAway: a command starts while the cluster is away, is registered when the cluster is
// there, and drains at SIGTERM. What another try would not mend ends it before the command starts.
func TestRegisterWhileAway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.New(client.Config{Endpoints: []string{srv.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	register := func(args ...string) *running {
		return start(t, env, "signalbox", append([]string{"service", "register", "api", "--addr", "10.0.0.1:80", "--drain", "0"}, args...)...)
	}
	says := func(p *running, text string) {
		t.Helper()
		await.True(t, text, func() bool { return strings.Contains(p.output.String(), text) })
	}
	srv.Unreachable()
	ends := register("--", "sh", "-c", "exit 6")
	if code := ends.code(); code != 6 || !strings.Contains(ends.output.String(), "the cluster is away") {
		t.Errorf("exit code %d: %s", code, ends.output.String())
	}
	p := register("--", "sh", "-c", `echo "started [$SIGNALBOX_TOKEN] [$SIGNALBOX_SESSION] $SIGNALBOX_LEASES"; exec sleep 1000`)
	says(p, "started [] [] []")
	alone := register("-o", "jsonl")
	says(alone, "the cluster is away")
	srv.Reachable()
	n, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	members := func(want int) {
		t.Helper()
		await.True(t, fmt.Sprint(want, " members"), func() bool {
			list, err := n.Service("api").List(t.Context(), client.ReadConsistency(client.Strict))
			return err == nil && len(list) == want
		})
	}
	members(2)
	says(p, `registered in "api", with token`)
	says(alone, `"state":"registered"`)
	for _, x := range []*running{p, alone} {
		if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-x.ended
	}
	members(0)

	for _, x := range []struct{ flag, value, want string }{
		{"--node", "/none", "not found"},
		{"--cluster", "other", "it is cluster"},
	} {
		wrong := register(x.flag, x.value, "--", "echo", "never")
		if code := wrong.code(); code == 0 || strings.Contains(wrong.output.String(), "never") || !strings.Contains(wrong.output.String(), x.want) {
			t.Errorf("%s: exit code %d: %s", x.flag, code, wrong.output.String())
		}
	}
}

// TestWatchFileWhileAway: a watch starts while the cluster is away. It leaves the file as it is,
// writes it when the cluster is there, and says why nothing is read if that is for another reason.
func TestWatchFileWhileAway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	env := []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	watch := func(path string, args ...string) *running {
		return start(t, env, "signalbox", append([]string{"service", "watch", "api", "--file", path, "--format", "addr", "--timeout", "1s"}, args...)...)
	}
	srv.Unreachable()
	p, lost := watch(path), watch(path+"2", "--node", "/none")
	says := func(p *running, text string) {
		t.Helper()
		await.True(t, text, func() bool { return strings.Contains(p.output.String(), text) })
	}
	has := func(want string) {
		t.Helper()
		await.True(t, want, func() bool { text, _ := os.ReadFile(path); return string(text) == want })
	}
	says(p, "the cluster is away (")
	says(lost, "the cluster is away (")
	has("old\n")
	srv.Reachable()
	says(lost, "not found")
	member := start(t, env, "signalbox", "service", "register", "api", "--addr", "10.0.0.1:80", "--drain", "0")
	says(member, "registered")
	has("10.0.0.1:80\n")

	srv.Unreachable()
	says(p, "the cluster is away; the file stays as it is")
	srv.Reachable()
	says(p, "the list is live again")
	has("10.0.0.1:80\n")

	if wrong := watch(path, "--node", "/none"); wrong.code() == 0 || !strings.Contains(wrong.output.String(), "not found") {
		t.Errorf("a node that does not exist: %s", wrong.output.String())
	}
}
