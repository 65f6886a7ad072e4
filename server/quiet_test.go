package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// warnings keeps log lines.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

// has says that a line has all parts.
func (w *warnings) has(parts ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(w.text.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// TestPlannedStopsLogNoWarnings: a new cluster, and instances that are stopped one after the other
// and come back when the others have missed them, while clients work, are nothing to warn about on
// any instance.
func TestPlannedStopsLogNoWarnings(t *testing.T) {
	k := newClusterKit(t, 3)
	var logs warnings
	k.change = func(name string, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, nil)).With("name", name)
	}
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	quiet := func(what string) {
		t.Helper()
		for line := range strings.Lines(logs.take()) {
			if !strings.Contains(line, "level=INFO") {
				t.Errorf("%s is warned about: %s", what, line)
			}
		}
	}
	quiet("the new cluster")
	var addresses []string
	for _, s := range k.run {
		addresses = append(addresses, s.Addr())
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, err := client.Open(ctx, client.Config{Endpoints: addresses, Logger: clusterLog().With("instance", "client")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var load sync.WaitGroup
	for n := range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if l, err := s.Acquire(ctx, fmt.Sprint("job-", n), client.Exclusive()); err == nil {
					_ = l.Release(ctx)
				}
			}
		})
	}
	defer load.Wait()
	defer cancel()
	for _, name := range k.names() {
		if err := shutdown(k.run[name]); err != nil {
			t.Fatalf("stop of %s: %v", name, err)
		}
		k.mu.Lock()
		delete(k.run, name)
		k.mu.Unlock()
		for _, other := range k.names() {
			k.eventually(other+" to miss "+name, func() bool {
				return logs.has(`msg="instance is not reached"`, "name="+other+" ", "address="+k.address(name)+" ")
			})
		}
		k.must(name)
		k.await("three instances that work again", stable(3, 3))
		k.await("a vote of each in the meta shard", voting(3))
		quiet("the stop of " + name)
	}
}

// TestUnreachableInstanceIsWarnedOfUnlessStopped: one of two instances that stay away has stopped
// as planned.
func TestUnreachableInstanceIsWarnedOfUnlessStopped(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	var logs warnings
	k.change = func(name string, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, nil)).With("name", name)
	}
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	warned := func(name string) bool {
		return logs.has(`msg="instance unreachable"`, "name=a ", "address="+k.address(name)+" ")
	}
	if err := shutdown(k.run["c"]); err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	delete(k.run, "c")
	k.mu.Unlock()
	a := k.server("a")
	k.eventually("a to know that c has stopped", func() bool { return a.membership.Stopped(k.address("c")) })
	lost := a.peers.Stats().MessagesDropped.Load()
	k.eventually("many heartbeats for c to be lost", func() bool {
		return a.peers.Stats().MessagesDropped.Load() >= lost+10
	})
	k.kill("b")
	k.eventually("a to warn of b", func() bool { return warned("b") })
	if warned("c") {
		t.Error("a warns of c, which has stopped as planned")
	}
	if a.membership.Stopped(k.address("b")) {
		t.Error("b counts as stopped as planned")
	}
}

// TestFirstStartLogsNoWarnings: the instances of a new cluster start one after the other, each when
// those before it have missed it.
func TestFirstStartLogsNoWarnings(t *testing.T) {
	k := newClusterKit(t, 3)
	var logs warnings
	k.change = func(name string, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, nil)).With("name", name)
	}
	names := []string{"a", "b", "c"}
	ended := make(chan error, len(names))
	for n, name := range names {
		go func() { ended <- k.start(name, names...) }()
		for _, later := range names[n+1:] {
			k.eventually(name+" to miss "+later, func() bool {
				return logs.has(`msg="instance is not reached"`, "name="+name+" ", "address="+k.address(later)+" ")
			})
		}
	}
	for range names {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	for line := range strings.Lines(logs.take()) {
		if !strings.Contains(line, "level=INFO") {
			t.Errorf("the new cluster is warned about: %s", line)
		}
	}
}
