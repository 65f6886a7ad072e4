package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestBarrier(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	const n = 4
	arrive := func(s *client.Session, key string) outcome[[]recipes.BarrierMember] {
		return async(func() ([]recipes.BarrierMember, error) {
			return recipes.NewBarrier(s, "start", n).Wait(ctx, key, []byte("at "+key))
		})
	}
	node, err := c.Node(ctx, "/default")
	must(t, err)
	waiting := func(want int) {
		t.Helper()
		await.True(t, fmt.Sprintf("%d parties to wait", want), func() bool {
			sem, err := node.Describe(ctx, "start")
			return err == nil && sem.NumOwners == uint64(want)
		})
	}
	var sessions []*client.Session
	for range n + 1 {
		sessions = append(sessions, session(t, c))
	}
	var all []outcome[[]recipes.BarrierMember]
	for i := range n - 1 {
		all = append(all, arrive(sessions[i], fmt.Sprint("p", i)))
		waiting(i + 1)
	}

	// A party dies and is not counted; its successor with the same key is, once, beside one that waits.
	must(t, sessions[0].Close(ctx))
	if _, err := all[0].get(); !errors.Is(err, client.ErrSessionClosed) {
		t.Fatal("the session ended:", err)
	}
	waiting(n - 2)
	sessions[0] = session(t, c)
	all[0] = arrive(sessions[0], "p0")
	waiting(n - 1)
	double := session(t, c)
	second := arrive(double, "p1") // the same key from another session: the earlier one counts no more
	waiting(n)

	// A party that gives up leaves. The last one opens it.
	short, cancel := context.WithCancel(ctx)
	left := async(func() (int, error) {
		_, err := recipes.NewBarrier(session(t, c), "start", n).Wait(short, "p9", nil)
		return 0, err
	})
	cancel()
	if _, err := left.get(); !errors.Is(err, context.Canceled) {
		t.Fatal("gave up:", err)
	}
	waiting(n)
	all = append(all, arrive(sessions[n-1], fmt.Sprint("p", n-1)))
	want := []string{"p2", "p0", "p1", "p3"}
	check := func(members []recipes.BarrierMember) {
		t.Helper()
		var keys []string
		for _, m := range members {
			if keys = append(keys, m.Key); string(m.Payload) != "at "+m.Key {
				t.Errorf("payload of %s is %q", m.Key, m.Payload)
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("met %v, want %v", keys, want)
		}
	}
	for i, w := range all {
		if i != 1 {
			check(w.must(t))
		}
	}
	check(second.must(t))

	// The one that was superseded waits for the next meeting, as one too many does.
	waiting(1)
	want = []string{"p1", "p5", "p6", "p7"}
	next := []outcome[[]recipes.BarrierMember]{all[1]}
	for i, s := range []*client.Session{sessions[2], sessions[3], double} {
		next = append(next, arrive(s, fmt.Sprint("p", 5+i)))
		if i < 2 {
			waiting(2 + i)
		}
	}
	for _, w := range next {
		check(w.must(t))
	}

	s := sessions[0]
	for _, wait := range []func() ([]recipes.BarrierMember, error){
		func() ([]recipes.BarrierMember, error) { return recipes.NewBarrier(s, "x", 0).Wait(ctx, "k", nil) },
		func() ([]recipes.BarrierMember, error) { return recipes.NewBarrier(s, "x", 1001).Wait(ctx, "k", nil) },
		func() ([]recipes.BarrierMember, error) { return recipes.NewBarrier(s, "x", 1).Wait(ctx, "", nil) },
		func() ([]recipes.BarrierMember, error) { return recipes.NewBarrier(s, "x", 1).Wait(ctx, "\xff", nil) },
		func() ([]recipes.BarrierMember, error) {
			return recipes.NewBarrier(s, "x", 1).Wait(ctx, "k", make([]byte, 1025))
		},
		func() ([]recipes.BarrierMember, error) {
			return recipes.NewBarrier(s, "x", 1000).Wait(ctx, "k", make([]byte, 1024))
		},
	} {
		if _, err := wait(); !errors.Is(err, client.ErrBadRequest) {
			t.Error(err)
		}
	}
	if _, err := recipes.NewBarrier(s, "start", n+1).Wait(ctx, "k", nil); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("another number:", err)
	}
	must(t, s.Create(ctx, "used", client.Max, []byte("by others")))
	if _, err := recipes.NewBarrier(s, "used", 1).Wait(ctx, "k", nil); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("no barrier:", err)
	}

	// Its semaphore is deleted, or gets another use, while a party waits.
	lost := arrive(s, "p0")
	waiting(1)
	must(t, sessions[1].Delete(ctx, "start", true))
	if _, err := lost.get(); !errors.Is(err, client.ErrLeaseLost) {
		t.Error("deleted:", err)
	}
	lost = arrive(s, "p0")
	waiting(1)
	_, err = sessions[1].Update(ctx, "start", []byte("by others"))
	must(t, err)
	if _, err := lost.get(); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Error("another use:", err)
	}
}

// TestBarrierRounds: parties meet again and again, one too many of them each time, and sessions end in
// between. All that return from one meeting return the same, and nobody returns twice from it.
func TestBarrierRounds(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	const n, rounds = 3, 15
	type meeting struct {
		members string
		passed  map[string]int
	}
	var mu sync.Mutex
	var meetings []meeting
	total, enough := 0, make(chan struct{})
	var wg sync.WaitGroup
	stop, cancel := context.WithCancel(ctx)
	for i := range n + 1 {
		key := fmt.Sprint("k", i)
		wg.Go(func() {
			s := session(t, c)
			for round := 0; stop.Err() == nil; round++ {
				payload := fmt.Sprint(key, "-", round) // each party tells another thing each time
				members, err := recipes.NewBarrier(s, "rounds", n).Wait(stop, key, []byte(payload))
				if err != nil {
					if stop.Err() == nil {
						t.Error(err)
						cancel()
					}
					return
				}
				mu.Lock()
				id := fmt.Sprint(members)
				at := slices.IndexFunc(meetings, func(m meeting) bool { return m.members == id })
				if at < 0 {
					at = len(meetings)
					meetings = append(meetings, meeting{id, map[string]int{}})
				}
				meetings[at].passed[key]++
				if total++; total == n*rounds {
					close(enough)
				}
				mu.Unlock()
				if (round+i)%4 == 3 {
					must(t, s.Close(ctx))
					s = session(t, c)
				}
			}
		})
	}
	select {
	case <-enough:
	case <-stop.Done():
	}
	cancel()
	wg.Wait()
	for _, m := range meetings[:rounds-1] {
		for key, times := range maps.All(m.passed) {
			if times != 1 || len(m.passed) > n {
				t.Errorf("meeting %s: %s passed %d times, %d keys in all", m.members, key, times, len(m.passed))
			}
		}
	}
}
