package server

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// warnings keeps the log lines from WARN on.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *warnings) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.text.Reset()
	return w.text.String()
}

// TestPlannedStopsLogNoWarnings: a new cluster, and instances that are stopped one after the other
// and come back while clients work, are nothing to warn about on any instance.
func TestPlannedStopsLogNoWarnings(t *testing.T) {
	k := newClusterKit(t, 3)
	var logs warnings
	k.change = func(name string, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelWarn})).With("name", name)
	}
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	k.await("a vote of each in the meta shard", voting(3))
	quiet := func(what, except string) {
		t.Helper()
		for line := range strings.Lines(logs.take()) {
			if except == "" || !strings.Contains(line, except) {
				t.Errorf("%s is warned about: %s", what, line)
			}
		}
	}
	quiet("the new cluster", "instance unreachable") // which is so of those that start last
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
		if err := k.run[name].Shutdown(context.Background()); err != nil {
			t.Fatalf("stop of %s: %v", name, err)
		}
		k.mu.Lock()
		delete(k.run, name)
		k.mu.Unlock()
		k.must(name)
		k.await("three instances that work again", stable(3, 3))
		k.await("a vote of each in the meta shard", voting(3))
		quiet("the stop of "+name, "")
	}
}
