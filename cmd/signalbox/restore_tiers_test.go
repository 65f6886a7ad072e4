package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestKilledRestoreOfATier: a cluster with data in two tiers is lost, and restored by real
// processes. The restore of the second tier is killed in the middle. Nothing of the tier is served,
// or backed up, until another restore has gone on from there.
func TestKilledRestoreOfATier(t *testing.T) {
	form.SkipUntil(t, form.Full, "a restore that is killed at each step")
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	instance := func(tier, data string, more ...string) (flags []string, listen, raft string) {
		listen, raft = freeAddress(), freeAddress()
		return append([]string{"--tier", tier, "--data", in(data), "--listen", listen, "--raft", raft}, more...), listen, raft
	}
	with := func(flags []string, command ...string) []string { return append(command, flags...) }
	dial := func(address string) *client.Client {
		t.Helper()
		c, err := client.Dial(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseWithoutRelease)
		return c
	}

	hot, address, raft := instance("hot", "hot")
	env := []string{"SIGNALBOX_ENDPOINTS=" + address, "SIGNALBOX_TIMEOUT=1m"}
	one := start(t, nil, "signalbox", with(hot, "serve", "--admin", "off", "--tiers", "hot,cold:vote=false", "--shards", "4")...)
	expect(t, 0, env, "signalbox", "node", "create", "/archive", "--tier", "cold")
	cold, _, _ := instance("cold", "cold", "--peer", raft, "--join-token-file", in("hot/join-token"))
	two := start(t, nil, "signalbox", with(cold, "serve", "--admin", "off")...)
	c := dial(address)
	data := map[string][]byte{
		"/default": []byte("little"),
		"/archive": bytes.Repeat([]byte("some time to restore it"), 10_000), // to kill the restore in
	}
	var saved []client.Saved
	tokens := map[string]uint64{}
	for _, node := range []string{"/default", "/archive"} {
		s, err := c.Session(ctx, node, client.Timeout(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 24 {
			name := fmt.Sprint("seat", i)
			if err := s.Create(ctx, name, 2, data[node]); err != nil {
				t.Fatal(err)
			}
			l, err := s.Acquire(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			tokens[node+name] = l.Token()
		}
		saved = append(saved, s.Save())
	}
	out := expect(t, 0, env, "signalbox", "cluster", "backup", in("both"))
	if want := "; it has data in the tiers hot, cold, which are restored one by one"; !strings.Contains(out, want) {
		t.Errorf("want %q in %s", want, out)
	}
	c.CloseWithoutRelease()
	for _, r := range []*running{one, two} {
		r.signal(syscall.SIGKILL)
		r.code()
	}

	hot, address, raft = instance("hot", "hot2")
	env[0] = "SIGNALBOX_ENDPOINTS=" + address
	out = expect(t, 0, nil, "signalbox", with(hot, "cluster", "restore", in("both"), "--shards", "1")...)
	for _, want := range []string{"tier hot of ", ": 1 session, 24 semaphores; start it with:\n  signalbox serve --existing ",
		"\nthen restore cold from the same file, each with --tier and --peer"} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in %s", want, out)
		}
	}
	start(t, nil, "signalbox", with(hot, "serve", "--admin", "off")...)
	expect(t, 0, env, "signalbox", "sem", "ls")
	out = expect(t, 1, env, "signalbox", "cluster", "backup", in("half"))
	if !strings.Contains(out, "tier cold of the cluster is still to be restored from the backup with digest ") {
		t.Errorf("a backup of half a cluster: %s", out)
	}

	cold, _, _ = instance("cold", "cold2", "--peer", raft, "--join-token-file", in("hot2/join-token"))
	restore := with(cold, "cluster", "restore", in("both"))
	killed := exec.Command("signalbox", append(restore, "--log-level", "debug")...)
	log, stderr, err := packetPipe() // it writes a line once those before are read, and so cannot end first
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	killed.Stderr = stderr
	err = killed.Start()
	stderr.Close()
	if err != nil {
		t.Fatal(err)
	}
	begun := false
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if !begun && strings.Contains(lines.Text(), "buckets restored") { // a quarter of them
			begun = true
			_ = killed.Process.Kill()
		}
	}
	if err := killed.Wait(); err == nil || !begun {
		t.Fatalf("the restore was not killed: %v", err)
	}
	out = expect(t, 1, env, "signalbox", "cluster", "status", "-o", "jsonl")
	if !strings.Contains(out, `"bootstrapped":false,"to_be_restored":"`) {
		t.Errorf("the tier counts as restored: %s", out)
	}
	out = expect(t, 1, env, "signalbox", "lock", "x", "--node", "/archive", "--timeout", "10s", "--", "true")
	if !strings.Contains(out, "the cluster map has no shard for tier 1 yet") {
		t.Errorf("a lock of the second tier: %s", out)
	}

	out = expect(t, 0, nil, "signalbox", restore...)
	if !strings.Contains(out, ": 1 session, 24 semaphores; ") || strings.Contains(out, "then restore") {
		t.Errorf("the end of the restore: %s", out)
	}
	start(t, nil, "signalbox", with(cold, "serve", "--admin", "off")...)
	c = dial(address)
	for i, node := range []string{"/default", "/archive"} {
		s, err := c.Restore(ctx, saved[i])
		if err != nil {
			t.Fatal(err)
		}
		other, err := c.Session(ctx, node)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 24 {
			name := fmt.Sprint("seat", i)
			token := tokens[node+name]
			l, err := s.Acquire(ctx, name)
			if err != nil || l.Token() != token {
				t.Fatalf("%s of %s is not held under token %d: %v, %v", name, node, token, l, err)
			}
			if d, err := s.Node().Describe(ctx, name); err != nil || !bytes.Equal(d.Data, data[node]) {
				t.Fatalf("%s of %s has other data: %v", name, node, err)
			}
			if l, err = other.Acquire(ctx, name); err != nil || l.Token() < token+1<<32 {
				t.Fatalf("%s of %s gave no token far above %d: %v, %v", name, node, token, l, err)
			}
		}
	}
}
