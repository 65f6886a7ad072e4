package console

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// waiters puts sessions that want two units into the queue of a semaphore, so many at once, until
// the test ends.
func (s *site) waiters(name string, n, atOnce int, opts ...client.AcquireOption) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	s.t.Cleanup(func() { cancel(); waiting.Wait() })
	accepted, free := make(chan struct{}, n), make(chan struct{}, atOnce)
	for range n {
		free <- struct{}{}
		waiting.Go(func() {
			x, err := s.program().Session(ctx, "/default")
			if err != nil {
				s.t.Error(err)
				return
			}
			_, _ = x.Acquire(ctx, name, append([]client.AcquireOption{
				client.Count(2), client.OnQueued(func(uint64) { <-free; accepted <- struct{}{} }),
			}, opts...)...)
		})
	}
	for range n {
		<-accepted
	}
}

// holder is a session that has one of two units of each of some new semaphores.
func (s *site) holder(names ...string) *client.Session {
	s.t.Helper()
	x := s.session()
	for _, name := range names {
		err := x.Create(s.t.Context(), name, 2, nil)
		if err == nil {
			_, err = x.Acquire(s.t.Context(), name)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return x
}

// TestSemaphoresInOrder: those with the most waiters, and those that were waited for longest.
func TestSemaphoresInOrder(t *testing.T) {
	s := openSite(t, nil)
	s.holder("a/1", "a/2", "b/3")
	if err := s.session().Create(t.Context(), "free", 2, nil); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"b/3", 1}, {"a/2", 3}, {"a/1", 2}} {
		s.waiters(x.name, x.n, 1)
		s.server.Advance(time.Second)
	}
	order := func(query string) string {
		var names []string
		for _, part := range strings.Split(s.get("/semaphores?node=/default&"+query).body, `<tr data-key="`)[1:] {
			key, _, _ := strings.Cut(part, `"`)
			name, err := decodeName(key)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		return strings.Join(names, " ")
	}
	for query, want := range map[string]string{
		"": "a/1 a/2 b/3 free", "order=waiters": "a/2 a/1 b/3", "order=age": "b/3 a/2 a/1",
		"order=age&prefix=a": "a/2 a/1", "order=waiters&prefix=x": "",
	} {
		if got := order(query); got != want {
			t.Errorf("%q lists %q, want %q", query, got, want)
		}
	}
	s.get("/semaphores?node=/default&order=waiters").wants(t, 200, `aria-current="true">most waiters`, `name="order" value="waiters"`)
	s.get("/semaphores?node=/default&order=waiters&prefix=x").wants(t, 200, "Nobody waits for a semaphore whose name begins with “x”.")
}

// TestNeverGranted: a waiter that wants more than the limit is named, and who waits in vain behind
// it.
func TestNeverGranted(t *testing.T) {
	s := openSite(t, nil)
	holder := s.holder("slots")
	s.waiters("slots", 2, 1)
	if page := s.get(semaphoreURL("/default", "slots")); strings.Contains(page.body, "never be granted") {
		t.Error("waiters that want no more than the limit are shown as stuck")
	}
	if err := holder.Resize(t.Context(), "slots", 1); err != nil {
		t.Fatal(err)
	}
	s.get(semaphoreURL("/default", "slots")).wants(t, 200,
		"wants 2 of a limit of 1. It can never be granted, and nobody behind it, unless the limit is raised or it leaves the queue.")
}

// TestPagesOfAQueue: each page of a queue says why its waiters wait, and leads to the last of them,
// also when it is loaded again after grants to waiters ahead of it.
func TestPagesOfAQueue(t *testing.T) {
	s := openSite(t, nil)
	holder := s.session()
	if err := holder.Create(t.Context(), "slots", 3, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Acquire(t.Context(), "slots", client.Count(2)); err != nil {
		t.Fatal(err)
	}
	s.waiters("slots", 120, 10)
	s.waiters("slots", 1, 1, client.Count(3))
	s.waiters("slots", 129, 10)
	if err := holder.Resize(t.Context(), "slots", 2); err != nil {
		t.Fatal(err)
	}
	second := s.get(semaphoreURL("/default", "slots")).next("queue")
	page := s.get(second)
	page.wants(t, 200, "101 to 200 of 250", "It is behind 100 waiters.", "It is behind 119 waiters.",
		"It wants 3 of a limit of 2")
	if n := strings.Count(page.body, "It is behind a waiter that is never granted."); n != 79 {
		t.Errorf("%d waiters of the page are said to be behind the one that is never granted, want 79", n)
	}
	last := s.get(page.next("queue"))
	last.wants(t, 200, "201 to 250 of 250")
	if path := last.next("queue"); path != "" {
		t.Errorf("the last page leads to %s", path)
	}

	// 60 waiters ahead are granted.
	if err := holder.Resize(t.Context(), "slots", 2+60*2); err != nil {
		t.Fatal(err)
	}
	page = s.get(second)
	page.wants(t, 200, "41 to 140 of 190", "It is behind 40 waiters.")
	s.get(page.next("queue")).wants(t, 200, "141 to 190 of 190", "It is behind 189 waiters.")
}

// TestPagesOfOwners: a full page of owners leads to another one only if there is one.
func TestPagesOfOwners(t *testing.T) {
	s := openSite(t, nil)
	if err := s.session().Create(t.Context(), "slots", 2*pageSize, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 * pageSize {
		if _, err := s.session().Acquire(t.Context(), "slots"); err != nil {
			t.Fatal(err)
		}
	}
	last := s.get(s.get(semaphoreURL("/default", "slots")).next("owners"))
	last.wants(t, 200, "100 of 200", "First page")
	if rows, path := strings.Count(last.body, "<tr data-key="), last.next("owners"); rows != pageSize || path != "" {
		t.Errorf("the last page has %d rows, and leads to %q", rows, path)
	}
}

// TestLongQueue: a queue of thousands of waiters, in full 100,000, is shown a page at a time, in its order; a live view of
// it is a page, too.
func TestLongQueue(t *testing.T) {
	n := 2_000
	if form.Is(form.Full) && !form.Race {
		n = 100_000 // the pages are the same, and the sessions take a minute
	}
	s := openSite(t, nil)
	s.holder("slots")
	s.waiters("slots", n, 1000)
	count := group(uint64(n))
	page := s.get(semaphoreURL("/default", "slots"))
	page.wants(t, 200, fmt.Sprintf("1 of 2 units held by 1 owner; 1 free; %s waiters", count), "1 to 100 of "+count,
		"It is next. It wants 2, and 1 is free.", "It is behind 99 waiters.")
	if len(page.body) > 150_000 {
		t.Errorf("the page has %d bytes", len(page.body))
	}
	s.get(page.next("queue")).wants(t, 200, "101 to 200 of "+count, "It is behind 100 waiters.", "First page")
	x := s.open(semaphoreURL("/default", "slots"))
	x.until("a page of the queue", func(name string, u update) bool {
		keys, ok := keysOf(u, "queue")
		return name == "view" && ok && len(keys) == pageSize
	})
}
