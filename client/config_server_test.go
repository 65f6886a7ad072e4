package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestConfigIsSetAfterDelete: the versions of a configuration that was deleted go on. A watcher that
// missed the delete gets the new value all the same.
func TestConfigIsSetAfterDelete(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t) // versions begin at 1
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
	if last := got[len(got)-1]; last != `"new", version 2` {
		t.Errorf("the watcher got %s", strings.Join(got, "; "))
	}
	stop()
	for range seen {
	}
}

// TestQuotaRefusesRecipes: what a recipe writes is refused by a quota of its node at once, with the
// quota's name, however the recipe goes about writing it.
func TestQuotaRefusesRecipes(t *testing.T) {
	t.Parallel()
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
		if !errors.Is(err, client.ErrPreconditionFailed) {
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
			if err := try(); !errors.Is(err, client.ErrPreconditionFailed) ||
				!strings.Contains(err.Error(), "quota max_") {
				t.Errorf("%s in %s: %v", what, path, err)
			}
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t) // versions begin at 1
	ctx := testContext(t)
	s, err := dial(t, srv).Session(ctx, "/default", client.Description("the author"))
	must(t, err)
	cfg := s.Config("flags")
	if _, err := cfg.Get(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(cfg.Watch(ctx))
	defer stop()
	step := func(want string, version uint64) {
		t.Helper()
		v, err, _ := next()
		must(t, err)
		if string(v.Data) != want || v.Version != version || v.Exists != (version > 0) {
			t.Fatalf("%+v, want %q %d", v, want, version)
		}
	}
	step("", 0)
	if _, err := cfg.Set(ctx, []byte("x"), client.IfVersion(1)); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Fatal(err)
	}
	set := func(data string, want uint64, opts ...client.WriteOption) {
		t.Helper()
		v, err := cfg.Set(ctx, []byte(data), opts...)
		if err != nil || v != want {
			t.Fatal(v, err)
		}
	}
	set("a", 1, client.IfVersion(0))
	step("a", 1)
	set("b", 2)
	step("b", 2)
	set("c", 3, client.IfVersion(2))
	step("c", 3)
	for _, v := range []uint64{0, 2} {
		if _, err := cfg.Set(ctx, []byte("d"), client.IfVersion(v)); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Fatal(v, err)
		}
	}
	if v, err := cfg.Get(ctx); err != nil || string(v.Data) != "c" || v.Version != 3 {
		t.Fatal(v, err)
	}
	// Its history names who set it. An old value comes back as a new version.
	if v, err := cfg.Rollback(ctx, 1); err != nil || v != 4 {
		t.Fatal(v, err)
	}
	values, err := cfg.History(ctx)
	if err != nil || len(values) != 4 || string(values[0].Data) != string(values[3].Data) || values[0].Author != "the author" {
		t.Fatal(values, err)
	}
	step(string(values[0].Data), 4)
	if _, err := cfg.Rollback(ctx, 7); !errors.Is(err, client.ErrNotFound) ||
		!strings.Contains(err.Error(), "version 7 is not") {
		t.Fatal(err)
	}
	must(t, cfg.Delete(ctx))
	step("", 0)
	if err := cfg.Delete(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	// A version never repeats, so a writer that read a deleted value replaces no later one.
	set("again", 5, client.IfVersion(0))
	step("again", 5)
	for v := range uint64(5) {
		if _, err := cfg.Set(ctx, []byte("lost"), client.IfVersion(v)); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Fatal(v, err)
		}
	}
	set("and again", 6, client.IfVersion(5))
}

// TestConfigHistory: many sessions set one configuration. No value is lost, and what is told of the
// past is the end of what was set.
func TestConfigHistory(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t) // versions begin at 1
	ctx := testContext(t)
	c := dial(t, srv)
	const writers, each = 4, 6
	var mu sync.Mutex
	received := map[uint64]string{}
	var all sync.WaitGroup
	for w := range writers {
		s := session(t, c)
		all.Go(func() {
			for i := range each {
				data := fmt.Sprintf("writer %d, value %d", w, i)
				v, err := s.Config("flags").Set(ctx, []byte(data))
				mu.Lock()
				if received[v] != "" || err != nil {
					t.Errorf("version %d was %q and is %q, %v", v, received[v], data, err)
				}
				received[v] = data
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s := session(t, c)
	check := func(cfg client.ConfigReader, newest uint64, want int) {
		t.Helper()
		list, err := cfg.History(ctx)
		if err != nil || len(list) != want {
			t.Fatalf("%d values, %v; want %d", len(list), err, want)
		}
		for i, v := range list {
			if v.Version != newest-uint64(i) || !v.Exists || v.Time.IsZero() ||
				received[v.Version] != "" && string(v.Data) != received[v.Version] {
				t.Errorf("value %d is version %d, %q, set at %s", i, v.Version, v.Data, v.Time)
			}
		}
	}
	check(s.Config("flags").ConfigReader, writers*each, 11)

	// The bounds are bytes, too: what is too long to be kept is not, and the present value is never
	// cut.
	clear(received)
	large := s.Config("large")
	for i, size := range []int{10, 30 << 10, 30 << 10, client.MaxConfigLen, 20} {
		if _, err := large.Set(ctx, append(bytes.Repeat([]byte("x"), size-1), byte(i))); err != nil {
			t.Fatal(err)
		}
		if v, err := large.Get(ctx); err != nil || len(v.Data) != size || v.Version != uint64(i+1) {
			t.Fatalf("%d bytes of version %d, %v", len(v.Data), v.Version, err)
		}
		check(large.ConfigReader, uint64(i+1), []int{1, 2, 3, 1, 1}[i])
	}
	if _, err := large.Set(ctx, make([]byte, client.MaxConfigLen+1)); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("a longer one: %v", err)
	}
	flags := fmt.Sprintf("flags %d", writers*each)
	for _, list := range []struct {
		prefix string
		opts   []client.ReadOption
		want   []string
	}{
		{"", nil, []string{flags, "large 5"}},
		{"la", nil, []string{"large 5"}},
		{"", []client.ReadOption{client.MaxItems(1)}, []string{flags}},
		{"", []client.ReadOption{client.After("flags"), client.MaxItems(1)}, []string{"large 5"}},
		{"", []client.ReadOption{client.After("large")}, nil},
	} {
		var names []string
		for info, err := range s.Node().Configs(ctx, list.prefix, list.opts...) {
			must(t, err)
			names = append(names, fmt.Sprintf("%s %d", info.Name, info.Version))
		}
		if !slices.Equal(names, list.want) {
			t.Errorf("configurations %q: %q, want %q", list.prefix, names, list.want)
		}
	}
	if _, err := s.Config("").Set(ctx, nil); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("without a name: %v", err)
	}
}
