package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestConfigIsSetAfterDelete: the versions of a configuration that was deleted begin again. A
// watcher that missed the delete gets the new value all the same, which has the version of the old
// one.
func TestConfigIsSetAfterDelete(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	s := session(t, dial(t, srv))
	cfg := s.Config("flags")
	_, err := cfg.Set(ctx, []byte("old"))
	must(t, err)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var got []string
	seen := make(chan string)
	for v, err := range cfg.Watch(watching) {
		must(t, err)
		got = append(got, fmt.Sprintf("%q, version %d", v.Data, v.Version))
		if len(got) == 1 {
			// A stream of the same connection that began later gets the same changes later.
			go func() {
				defer close(seen)
				for ev, err := range s.Node().Watch(watching, client.ConfigPrefix+"flags") {
					if err != nil {
						return
					}
					select {
					case seen <- string(ev.Data):
					case <-watching.Done():
						return
					}
				}
			}()
			<-seen
			must(t, cfg.Delete(ctx))
			_, err = cfg.Set(ctx, []byte("new"))
			must(t, err)
			for data := range seen {
				if strings.HasSuffix(data, "new") {
					break
				}
			}
		}
		if string(v.Data) == "new" {
			break
		}
	}
	if last := got[len(got)-1]; last != `"new", version 1` {
		t.Errorf("the watcher got %s", strings.Join(got, "; "))
	}
	stop()
	for range seen {
	}
}

// TestQuotaRefusesRecipes: what a recipe writes is refused by a quota of its node at once, with the
// quota's name, however the recipe goes about writing it.
func TestQuotaRefusesRecipes(t *testing.T) {
	srv := servertest.Start(t, servertest.Shards(1))
	ctx := testContext(t)
	c := dial(t, srv)
	names, size := uint64(1), uint64(20_000)
	for path, quota := range map[string]admin.NodeConfig{
		"/names": {MaxSemaphores: &names}, "/bytes": {MaxBytes: &size},
	} {
		_, err := admin.Nodes(c).Create(ctx, path, quota)
		must(t, err)
		s, err := c.Session(ctx, path)
		must(t, err)
		_, err = s.Config("flags").Set(ctx, []byte("on"))
		must(t, err)
		for i := 0; err == nil; i++ {
			if i > 1000 {
				t.Fatalf("%s: %d semaphores, and no end", path, i)
			}
			err = s.Create(ctx, fmt.Sprint("full-", i), 1, nil)
		}
		if !errors.Is(err, client.PreconditionFailed) {
			t.Fatalf("%s: %v", path, err)
		}
		tries := map[string]func() error{
			"set":      func() error { _, err := s.Config("another-flag").Set(ctx, []byte("on")); return err },
			"register": func() error { _, err := s.Service("another-service").Register(ctx, nil); return err },
			"lock":     func() error { _, err := s.Mutex("another-lock").Lock(ctx); return err },
			"campaign": func() error { _, err := s.Election("another-boss").Campaign(ctx); return err },
			"acquire":  func() error { _, err := s.Acquire(ctx, "another-semaphore", client.CreateLimit(2)); return err },
		}
		if path == "/bytes" {
			tries["set again"] = func() error {
				_, err := s.Config("flags").Set(ctx, make([]byte, size), client.IfVersion(1))
				return err
			}
		}
		for what, try := range tries {
			if err := try(); !errors.Is(err, client.PreconditionFailed) || !strings.Contains(err.Error(), "quota max_") {
				t.Errorf("%s in %s: %v", what, path, err)
			}
		}
	}
}
