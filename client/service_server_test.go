package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestService(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	if list, err := n.Service("api").List(ctx); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	var regs []*client.Lease
	for i := range 3 {
		r, err := session(t, c).Service("api").Register(ctx, []byte(fmt.Sprint("host", i)))
		must(t, err)
		regs = append(regs, r)
	}
	next, stop := iter.Pull2(n.Service("api").Watch(ctx))
	defer stop()
	step := func() client.MemberEvent {
		t.Helper()
		ev, err, _ := next()
		must(t, err)
		return ev
	}
	if ev := step(); ev.Kind != client.MemberSnapshot || len(ev.Members) != 3 || string(ev.Members[1].Data) != "host1" {
		t.Fatalf("%+v", ev)
	}
	must(t, regs[0].UpdateData(ctx, []byte("moved")))
	if ev := step(); ev.Kind != client.MemberChanged || string(ev.Member.Data) != "moved" || ev.Member.Token != regs[0].Token() {
		t.Fatalf("%+v", ev)
	}
	must(t, regs[1].Release(ctx))
	if ev := step(); ev.Kind != client.MemberRemoved || string(ev.Member.Data) != "host1" {
		t.Fatalf("%+v", ev)
	}
	if _, err := regs[2].Session().Service("api").Register(ctx, nil); !errors.Is(err, client.ErrAlreadyHeld) {
		t.Fatal(err)
	}
	srv.Unreachable()
	if ev := step(); ev.Kind != client.MemberInterrupted { // long before it is back
		t.Fatalf("%+v", ev)
	}
	srv.Reachable()
	if ev := step(); ev.Kind != client.MemberSynced {
		t.Fatalf("%+v", ev)
	}
	// A service over a semaphore that was created works as well.
	s := session(t, c)
	must(t, s.Create(ctx, "made", client.Max, nil))
	_, err = s.Service("made").Register(ctx, []byte("x"))
	must(t, err)
	if list, err := n.Service("made").List(ctx, client.ReadConsistency(client.Strict)); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
}

// TestServiceRestarts: a watch over members that all restart, with lost links, ends with the exact
// list.
func TestServiceRestarts(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c, watching := dial(t, srv), dial(t, srv)
	n, err := watching.Node(ctx, "/default")
	must(t, err)
	const count = 200
	var mu sync.Mutex
	have := map[uint64]bool{}
	watched, stop := context.WithCancel(ctx)
	finished := async(func() (int, error) {
		for ev, err := range n.Service("fleet").Watch(watched) {
			if err != nil {
				return 0, err
			}
			mu.Lock()
			switch ev.Kind {
			case client.MemberSnapshot:
				for _, m := range ev.Members {
					have[m.Token] = true
				}
			case client.MemberAdded:
				if have[ev.Member.Token] {
					t.Error("added twice")
				}
				have[ev.Member.Token] = true
			case client.MemberRemoved:
				if !have[ev.Member.Token] {
					t.Error("removed, and was never there")
				}
				delete(have, ev.Member.Token)
			}
			mu.Unlock()
		}
		return 0, nil
	})
	want := make([]atomic.Uint64, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			for round := range 2 {
				s, err := c.Session(ctx, "/default")
				if err == nil {
					var r *client.Lease
					if r, err = s.Service("fleet").Register(ctx, []byte(fmt.Sprint(i))); err == nil {
						want[i].Store(r.Token())
					}
				}
				if err == nil && round == 0 {
					err = s.Close(ctx)
				}
				if err != nil {
					t.Error(err)
				}
				if i%50 == 7 {
					srv.DropConnections()
				}
			}
		})
	}
	wg.Wait()
	await.True(t, "the services to be listed", func() bool {
		srv.Advance(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if len(have) != count {
			return false
		}
		for i := range want {
			if !have[want[i].Load()] {
				return false
			}
		}
		return true
	})
	stop()
	if _, err := finished.get(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
