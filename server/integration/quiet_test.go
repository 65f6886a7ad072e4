package integration

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// loggedCluster is a kit for three instances, and what they log from level INFO on. A slow machine
// has time for a drain, and for heartbeats.
func loggedCluster(t *testing.T) (*clusterKit, *logLines) {
	k, logs := newClusterKit(t, 3), new(logLines)
	k.change = func(name string, c *server.Config) {
		c.Logger = slog.New(slog.NewTextHandler(logs, nil)).With("name", name)
		c.ShutdownTimeout, c.OfflineAfter = time.Minute, time.Minute
	}
	return k, logs
}

// awaitMiss waits until an instance has logged that it does not reach another.
func awaitMiss(k *clusterKit, logs *logLines, name, other string) {
	k.t.Helper()
	k.eventually(name+" to miss "+other, func() bool {
		return logs.has(`msg="instance is not reached"`, "name="+name+" ", "address="+k.address(other)+" ")
	})
}

// TestPlannedStopsLogNoWarnings: a new cluster, and instances that are stopped one after the other
// and come back when the others have missed them, while clients work, are nothing to warn about on
// any instance.
func TestPlannedStopsLogNoWarnings(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances stop and start in turn") // alone, as what is late is warned about
	k, logs := loggedCluster(t)
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	quiet := func(what string) {
		t.Helper()
		for _, line := range logs.takeWarnings() {
			t.Errorf("%s is warned about: %s", what, line)
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
			awaitMiss(k, logs, other, name)
		}
		k.must(name)
		k.await("three instances that work again", stable(3, 3))
		k.await("a vote of each in the meta shard", voting(3))
		quiet("the stop of " + name)
	}
}

// TestFirstStartLogsNoWarnings: the instances of a new cluster start one after the other, each when
// those before it have missed it.
func TestFirstStartLogsNoWarnings(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances start in turn")
	k, logs := loggedCluster(t)
	names := []string{"a", "b", "c"}
	ended := make(chan error, len(names))
	for n, name := range names {
		go func() { ended <- k.start(name, names...) }()
		for _, later := range names[n+1:] {
			awaitMiss(k, logs, name, later)
		}
	}
	for range names {
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	for _, line := range logs.takeWarnings() {
		t.Errorf("the new cluster is warned about: %s", line)
	}
}
