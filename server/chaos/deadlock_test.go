package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// namesOverShards are names of semaphores, each in a shard of its own. It creates them.
func (c *cluster) namesOverShards(n int) (names []string) {
	c.t.Helper()
	out, err := c.command("node", "describe", nodePath, "-o", "json")
	var node struct {
		ID uint64 `json:"id"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &node)
	}
	if err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	shards := uint32(len(c.awaitReady("before names are chosen", c.names()...).Shards))
	taken := map[uint32]bool{}
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprintf("name-%d", i)
		place := protocol.Bucket(node.ID, []byte(name), protocol.DefaultBuckets) / (protocol.DefaultBuckets / shards)
		if taken[place] {
			continue
		}
		taken[place] = true
		names = append(names, name)
		if _, err := c.command("sem", "create", name, "--limit", "1", "--node", nodePath); err != nil {
			c.t.Fatal(err)
		}
	}
	await.True(c.t, "each semaphore to be in a shard of its own", func() bool {
		var s protocol.ClusterShards
		out, err := c.command("cluster", "shards", "--tier", "default", "-o", "json")
		if err != nil || json.Unmarshal([]byte(out), &s) != nil {
			return false
		}
		alone := 0
		for _, x := range s.Shards {
			if x.Semaphores != nil && *x.Semaphores == 1 {
				alone++
			}
		}
		return alone == n
	})
	return names
}

// TestDeadlockOverShards: of three processes that wait for each other, over three shards, one is told so
// and leaves the queue. The other two get what they wait for.
func TestDeadlockOverShards(t *testing.T) {
	form.SkipUntil(t, form.Long, "the same story in one server is a script of cmd/signalbox")
	t.Parallel()
	const n = 3
	c := newCluster(t)
	c.startThree()
	c.makeNode()
	names, dir := c.namesOverShards(n), t.TempDir()
	with := func(i int, args ...string) []string {
		return append(args, "--session-file", filepath.Join(dir, fmt.Sprint(i)), "--node", nodePath)
	}
	must := func(out string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for i, name := range names {
		must(c.command(with(i, "sem", "acquire", name, "--session-timeout", "10m")...))
	}
	type end struct {
		of  int
		err error
	}
	ends, began := make(chan end, n), time.Now()
	for i := range names {
		began = time.Now()
		go func() {
			_, err := c.command(with(i, "sem", "acquire", names[(i+1)%n], "--fail-on-deadlock")...)
			ends <- end{i, err}
		}()
	}
	next := func() end {
		t.Helper()
		select {
		case e := <-ends:
			return e
		case <-time.After(waitLimit):
			t.Fatal("all processes wait")
			panic("unreachable")
		}
	}
	e := next()
	exit, failed := errors.AsType[*exec.ExitError](e.err)
	if !failed || exit.ExitCode() != 3 || !strings.Contains(e.err.Error(), "deadlock: 3 sessions wait for each other") {
		t.Fatalf("process %d ends with %v", e.of, e.err)
	}
	t.Logf("named %v after the last of them was started", time.Since(began).Round(100*time.Millisecond))
	must(c.command(with(e.of, "sem", "release", names[e.of])...))
	for last := e.of; last != (e.of+1)%n; {
		got := next()
		if want := (last + n - 1) % n; got.err != nil || got.of != want {
			t.Fatalf("process %d ends with %v, and %d was to go on", got.of, got.err, want)
		}
		must(c.command(with(got.of, "sem", "release", names[last])...))
		must(c.command(with(got.of, "sem", "release", names[got.of])...))
		last = got.of
	}
}
