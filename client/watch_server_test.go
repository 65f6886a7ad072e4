package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestWatchName tells one semaphore's life as a story, to an iterator and to a function.
func TestWatchName(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	next, stop := iter.Pull2(s.Node().Watch(ctx, "story"))
	defer stop()
	called, dropped := make(chan string, 1000), false
	s.Node().WatchFunc(ctx, "story", func(ev client.Event, err error) {
		if err != nil {
			called <- err.Error()
			return
		}
		// It may use its client.
		if _, err := s.Node().Describe(ctx, "story"); err != nil && !errors.Is(err, client.ErrNotFound) {
			called <- err.Error()
			return
		}
		called <- eventText(ev)
	})
	step := func(want string) client.Event {
		t.Helper()
		if !dropped { // later the two may be told in other steps
			if got := <-called; got != want {
				t.Fatalf("the function got %q, want %q", got, want)
			}
		}
		ev, err, _ := next()
		if err != nil {
			t.Fatal(err)
		}
		if got := eventText(ev); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		return ev
	}
	step("synced")
	must(t, s.Create(ctx, "story", 5, []byte("a")))
	step("changed story: created data=a v1 limit=5")
	_, err := s.Update(ctx, "story", []byte("b"))
	must(t, err)
	step("changed story: data=b v2")
	must(t, s.Resize(ctx, "story", 7))
	step("changed story: limit=7")
	l := acquire(t, s, "story", client.Count(3), client.Data("me"))
	step(fmt.Sprintf("changed story: +%d(3,me)", l.Token()))
	must(t, l.Reduce(ctx, 2))
	step(fmt.Sprintf("changed story: ~%d(2,me)", l.Token()))

	dropped = true
	srv.DropConnections()
	must(t, l.UpdateData(ctx, []byte("you")))
	if ev := step("interrupted"); ev.Name != "" {
		t.Fatal(ev)
	}
	// The change may come with the snapshot or behind it.
	for got := ""; got != fmt.Sprintf("changed story: ~%d(2,you)", l.Token()); {
		ev, err, _ := next()
		must(t, err)
		if got = eventText(ev); got == "interrupted" || got == "synced" {
			got = ""
		}
	}
	must(t, s.Delete(ctx, "story", true))
	for got := ""; got != "deleted story"; {
		got = <-called
		if !strings.HasPrefix(got, "changed story: ") && got != "deleted story" && got != "synced" && got != "interrupted" {
			t.Fatal("the function got", got)
		}
	}
	for got := ""; got != "deleted story"; {
		ev, err, _ := next()
		must(t, err)
		if got = eventText(ev); got != "deleted story" && got != "synced" && got != "interrupted" {
			t.Fatal(got)
		}
	}
}

// TestThousandsOfFunctions: watches by function follow everything over lost links without a
// goroutine for each, and end with their context.
func TestThousandsOfFunctions(t *testing.T) {
	srv := servertest.Start(t)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	s := session(t, dial(t, srv))
	watching := dial(t, srv)
	n, err := watching.Node(ctx, "/default")
	must(t, err)
	const names, each = 20, 50 // a connection carries a thousand streams
	name := func(i int) string { return fmt.Sprintf("name/%d", i) }
	for i := range names {
		must(t, s.Create(ctx, name(i), 1, []byte("0")))
	}
	before := runtime.NumGoroutine()
	var mu sync.Mutex
	seen := make([]string, names*each)
	synced, ended := 0, 0
	events := make(chan struct{}, 1)
	for i := range seen {
		n.WatchFunc(ctx, name(i%names), func(ev client.Event, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, context.Canceled):
				ended++
			case err != nil:
				t.Error(err)
			case ev.Kind == client.EventChanged:
				seen[i] = string(ev.Data)
			case ev.Kind == client.EventSynced:
				synced++
			}
			select {
			case events <- struct{}{}:
			default:
			}
		})
	}
	until := func(what string, so func() bool) {
		t.Helper()
		for {
			mu.Lock()
			done := so()
			mu.Unlock()
			if done {
				return
			}
			select {
			case <-events:
			case <-t.Context().Done():
				t.Fatal(what)
			case <-time.After(await.Limit):
				t.Fatalf("%s: %d synced, %d ended, %q", what, synced, ended, seen)
			}
		}
	}
	until("all are synced", func() bool { return synced >= len(seen) })
	// Those that opened the streams are ending.
	for more := len(seen); more > len(seen)/4; more = runtime.NumGoroutine() - before {
		runtime.Gosched()
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines for %d watches", more, len(seen))
		}
	}
	for round := range 3 {
		if round == 1 {
			srv.DropConnections()
		}
		for i := range names {
			_, err := s.Update(ctx, name(i), fmt.Appendf(nil, "%d", round+1))
			must(t, err)
		}
	}
	until("all have seen the last value", func() bool { return !slices.ContainsFunc(seen, func(s string) bool { return s != "3" }) })
	cancel()
	until("all have ended", func() bool { return ended == len(seen) })
}

func eventText(ev client.Event) string {
	switch ev.Kind {
	case client.EventSynced:
		return "synced"
	case client.EventInterrupted:
		return "interrupted"
	case client.EventDeleted:
		return "deleted " + ev.Name
	}
	text := "changed " + ev.Name + ":"
	if ev.Created {
		text += " created"
	}
	if ev.DataChanged {
		text += fmt.Sprintf(" data=%s v%d", ev.Data, ev.Version)
	}
	if ev.LimitChanged {
		text += fmt.Sprintf(" limit=%d", ev.Limit)
	}
	for _, x := range []struct {
		sign   string
		owners []client.Owner
	}{{"+", ev.Added}, {"~", ev.Updated}, {"-", ev.Removed}} {
		for _, o := range x.owners {
			text += fmt.Sprintf(" %s%d(%d,%s)", x.sign, o.Token, o.Count, o.Data)
		}
	}
	return text
}

// TestWatchPrefix: over all shards, with lost links in between, the watch ends with exactly what is
// there.
func TestWatchPrefix(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c, watching := dial(t, srv), dial(t, srv)
	n, err := watching.Node(ctx, "/default")
	must(t, err)
	const writers, rounds = 4, 30
	for i := range 20 {
		must(t, session(t, c).Create(ctx, fmt.Sprintf("early/%d", i), 1, nil))
	}
	var mu sync.Mutex
	state := map[string]string{}
	synced := make(chan struct{})
	watched, stop := context.WithCancel(ctx)
	finished := async(func() (int, error) {
		first := true
		for ev, err := range n.Watch(watched, "", client.Prefix()) {
			if err != nil {
				return 0, err
			}
			mu.Lock()
			switch {
			case ev.Kind == client.EventSynced && first:
				first = false
				close(synced)
			case ev.Kind == client.EventDeleted:
				if _, known := state[ev.Name]; !known {
					t.Errorf("%s is gone, and was never there", ev.Name)
				}
				delete(state, ev.Name)
			case ev.Kind == client.EventChanged:
				if _, known := state[ev.Name]; known == ev.Created {
					t.Errorf("%s: created %v, known %v", ev.Name, ev.Created, known)
				}
				state[ev.Name] = string(ev.Data)
			}
			mu.Unlock()
		}
		return 0, errors.New("the watch ended without an error")
	})
	<-synced
	mu.Lock()
	if len(state) != 20 {
		t.Fatal("snapshot:", state)
	}
	mu.Unlock()
	var wg sync.WaitGroup
	for w := range writers {
		s := session(t, c)
		wg.Go(func() {
			for r := range rounds {
				name := fmt.Sprintf("late/%d/%d", w, r%7)
				err := s.Create(ctx, name, 1, []byte(fmt.Sprint(r)))
				if errors.Is(err, client.ErrAlreadyExists) {
					if r%3 == 0 {
						err = s.Delete(ctx, name, false)
					} else {
						_, err = s.Update(ctx, name, []byte(fmt.Sprint(r)))
					}
				}
				if err != nil {
					t.Error(err)
				}
				if w == 0 && r%10 == 9 {
					srv.DropConnections()
				}
			}
		})
	}
	wg.Wait()
	want := map[string]string{}
	for sem, err := range n.List(ctx, "", client.ReadConsistency(client.Strict)) {
		must(t, err)
		full, err := n.Describe(ctx, sem.Name)
		must(t, err)
		want[sem.Name] = string(full.Data)
	}
	checked, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := map[string]string{}
	for ev, err := range n.Watch(checked, "", client.Prefix()) {
		must(t, err)
		if ev.Kind == client.EventSynced {
			break
		}
		fresh[ev.Name] = string(ev.Data)
	}
	if fmt.Sprint(fresh) != fmt.Sprint(want) {
		t.Fatalf("fresh watch:\n%v\nlist:\n%v", fresh, want)
	}
	await.True(t, "the watch to have what the list has", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(state, want)
	})
	stop()
	if _, err := finished.get(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// TestSlowConsumer: what nobody takes is told as one.
func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	s := session(t, dial(t, node))
	must(t, s.Create(ctx, "slow", 100, nil))
	next, stop := iter.Pull2(s.Node().Watch(ctx, "slow"))
	defer stop()
	for {
		ev, err, _ := next()
		must(t, err)
		if ev.Kind == client.EventSynced {
			break
		}
	}
	var version uint64
	for i := range 200 {
		var err error
		version, err = s.Update(ctx, "slow", []byte(fmt.Sprint(i)))
		must(t, err)
		release(t, acquire(t, s, "slow"))
	}
	l := acquire(t, s, "slow")
	events := 0
	var last client.Event
	delivered := map[uint64]bool{}
	for last.Version != version || !slices.ContainsFunc(last.Added, func(o client.Owner) bool { return o.Token == l.Token() }) {
		ev, err, _ := next()
		must(t, err)
		for _, o := range ev.Added {
			delivered[o.Token] = true
		}
		for _, o := range ev.Removed {
			if !delivered[o.Token] {
				t.Fatalf("told that an owner is gone that was never told to be there: %+v", ev)
			}
		}
		if ev.Version < last.Version {
			t.Fatal("version went back")
		}
		last = ev
		events++
	}
	if events > 20 {
		t.Fatalf("%d events for what one or two could tell", events)
	}
}

// TestWatchOfDroppedNode ends with an error that says so.
func TestWatchOfDroppedNode(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	_, err := admin.Nodes(c).Create(ctx, "/gone", admin.NodeConfig{})
	must(t, err)
	s, err := c.Session(ctx, "/gone")
	must(t, err)
	stopped := false
	for ev, err := range s.Node().Watch(ctx, "x", client.Prefix()) {
		if err != nil {
			if !errors.Is(err, client.ErrNotFound) {
				t.Fatal(err)
			}
			stopped = true
			break
		}
		if ev.Kind == client.EventSynced {
			deleteNode(t, c, "/gone")
		}
	}
	if !stopped {
		t.Fatal("the watch ended without an error")
	}
	<-s.Context().Done()
	if !errors.Is(s.Err(), client.ErrSessionExpired) {
		t.Fatal(s.Err())
	}
}

// TestRecipesOfDroppedNode: a service without members is empty, and one of a node that is gone is
// an error, also when there is another node under its path.
func TestRecipesOfDroppedNode(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	_, err := admin.Nodes(c).Create(ctx, "/gone", admin.NodeConfig{})
	must(t, err)
	n, err := c.Node(ctx, "/gone")
	must(t, err)
	read := func() (list, leader error) {
		_, list = n.Service("api").List(ctx)
		_, leader = n.Election("api").Leader(ctx)
		return list, leader
	}
	if list, leader := read(); list != nil || leader != nil {
		t.Fatal(list, leader)
	}
	deleteNode(t, c, "/gone")
	if list, leader := read(); !errors.Is(list, client.ErrNotFound) || !errors.Is(leader, client.ErrNotFound) {
		t.Error(list, leader)
	}
	_, err = admin.Nodes(c).Create(ctx, "/gone", admin.NodeConfig{})
	must(t, err)
	if list, leader := read(); !errors.Is(list, client.ErrNotFound) || !errors.Is(leader, client.ErrNotFound) {
		t.Error(list, leader)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
