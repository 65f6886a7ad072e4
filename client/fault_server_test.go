package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestLostLink: what is held stays held, what waits goes on waiting, and what was taken away
// meanwhile is found out.
func TestLostLink(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	holder, waiter := dial(t, srv), dial(t, srv)
	states := make(chan client.State, 16)
	a := session(t, holder, client.OnState(func(s client.State) { states <- s }))
	b := session(t, waiter)
	kept := acquire(t, a, "kept", client.Exclusive())
	taken := acquire(t, a, "taken", client.CreateLimit(1))
	waiting, place := queue(t, b, "kept", client.Exclusive())

	for range 3 {
		srv.DropConnections()
		await.True(t, "both to be attached", func() bool { return a.State() == client.Attached && b.State() == client.Attached })
	}
	if s := <-states; s != client.Detached {
		t.Fatal("first state change:", s)
	}
	if s := <-states; s != client.Attached {
		t.Fatal("second state change:", s)
	}
	if !kept.Held() || kept.Lost() != nil {
		t.Fatal("lease did not survive:", kept.Lost())
	}

	// The holder's link is away while its semaphore is deleted by force.
	srv.Unreachable()
	await.True(t, "both to be detached", func() bool { return a.State() == client.Detached && b.State() == client.Detached })
	if !taken.Held() {
		t.Fatal("a lost link does not end a lease")
	}
	srv.Reachable()
	if err := b.Delete(ctx, "taken", true); err != nil {
		t.Fatal(err)
	}
	<-taken.Context().Done()
	if !errors.Is(taken.Lost(), client.ErrLeaseLost) || !kept.Held() {
		t.Fatal(taken.Lost(), kept.Lost())
	}

	release(t, kept)
	if l := waiting.must(t); l.Token() != place {
		t.Fatalf("granted as %d, accepted as %d", l.Token(), place)
	}
}

// TestAtMostOnce: every request has its effect once, however often the link is lost: a create that
// was sent twice would find its own semaphore.
func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	var done atomic.Int64
	step := func() {
		if done.Add(1)%100 == 0 {
			srv.DropConnections()
		}
	}
	var wg sync.WaitGroup
	for w := range 8 {
		s := session(t, c)
		wg.Go(func() {
			for i := range 25 {
				name := fmt.Sprintf("once/%d/%d", w, i)
				step()
				if err := s.Create(ctx, name, 2, nil); err != nil {
					t.Error(err)
					return
				}
				step()
				sem, err := s.Node().Describe(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				if v, err := s.Update(ctx, name, []byte("x"), client.IfVersion(sem.Version)); err != nil || v <= sem.Version {
					t.Error(v, err)
				}
				l, err := s.Acquire(ctx, name)
				if err != nil {
					t.Error(err)
					return
				}
				step()
				if err := l.Release(ctx); err != nil {
					t.Error(err)
				}
				step()
				if err := s.Delete(ctx, name, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestRestart: the server is killed and started again on what was durable; the same sessions go on.
func TestRestart(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, other := session(t, c, client.Timeout(30*time.Second)), session(t, c, client.Timeout(30*time.Second))
	l := acquire(t, s, "durable", client.Exclusive(), client.Data("mine"))
	srv.Kill()
	created := async(func() (int, error) { return 0, other.Create(ctx, "while-away", 1, nil) })
	waiting := async(func() (*client.Lease, error) { return other.Acquire(ctx, "durable", client.Exclusive()) })
	srv.Restart()
	created.must(t)
	if !l.Held() {
		t.Fatal("lease did not survive the restart:", l.Lost())
	}
	sem, err := s.Node().Describe(ctx, "durable", client.IncludeOwners(), client.ReadConsistency(client.Strict))
	if err != nil || len(sem.Owners) != 1 || sem.Owners[0].Session != s.ID() || sem.Owners[0].Token != l.Token() ||
		string(sem.Owners[0].Data) != "mine" {
		t.Fatalf("%+v, %v", sem, err)
	}
	release(t, l)
	if next := waiting.must(t); next.Token() <= l.Token() {
		t.Fatal("token went back", next.Token(), l.Token())
	}
}

// watchChanges lets one shard of the server tell another that a session is gone: in a test, that
// happens when its clock ticks.
func watchChanges(srv *servertest.Server) func() {
	return func() { srv.Advance(time.Millisecond) }
}

// TestUnreachable: without a server, the session is over before its timeout, and everything that
// waits on it ends.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	stopped := make(chan error, 1)
	s := session(t, c, client.Timeout(5*time.Second), client.OnStopped(func(err error) { stopped <- err }))
	other := session(t, dial(t, srv))
	l := acquire(t, s, "lost", client.Exclusive())
	blocker := acquire(t, other, "blocked", client.Exclusive())
	waiting, _ := queue(t, s, "blocked", client.Exclusive())
	srv.Pause()
	<-l.Context().Done()
	if err := context.Cause(l.Context()); !errors.Is(err, client.ErrSessionExpired) ||
		!errors.Is(err, client.ErrNotFound) && errors.Is(err, client.ErrReleased) {
		t.Fatal(err)
	}
	if l.Held() || s.Held() || s.State() != client.Expired || !errors.Is(s.Err(), client.ErrSessionExpired) ||
		!errors.Is(l.Lost(), client.ErrSessionExpired) {
		t.Fatal(l.Held(), s.Held(), s.State(), s.Err(), l.Lost())
	}
	if err := <-stopped; !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	if _, err := waiting.get(); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	if _, err := s.Acquire(ctx, "anything", client.Exclusive()); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	// The server's clock has stood still: to it the session lives. The client sends the stop as
	// soon as it can, and what was held is free.
	srv.Resume()
	release(t, blocker)
	freed := async(func() (*client.Lease, error) { return other.Acquire(ctx, "lost", client.Exclusive()) })
	release(t, freed.while(t, watchChanges(srv)))
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestKill: an operator ends a session.
func TestKill(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	c := dial(t, node)
	s := session(t, c, client.Description("victim"), client.Timeout(client.DefaultTimeout))
	l := acquire(t, s, "killed", client.Exclusive())
	var ids []uint64
	for info, err := range admin.OfNode(s.Node()).Sessions(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	if len(ids) != 1 || ids[0] != s.ID() {
		t.Fatal(ids, s.ID())
	}
	info, err := admin.OfNode(s.Node()).DescribeSession(ctx, s.ID())
	if err != nil || info.Description != "victim" || !info.Attached || info.Timeout != client.DefaultTimeout {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := admin.OfNode(s.Node()).KillSession(ctx, s.ID(), "because"); err != nil {
		t.Fatal(err)
	}
	<-l.Context().Done()
	if err := s.Err(); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	if err := admin.OfNode(s.Node()).KillSession(ctx, s.ID(), "again"); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestForceRelease: an operator takes a lease away, whose owner is told at once, or as soon as its
// link is back; the session goes on. A late copy takes nothing.
func TestForceRelease(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	mine, theirs := dial(t, srv), dial(t, srv)
	owner, other := session(t, mine, client.Timeout(time.Minute)), session(t, theirs, client.Timeout(time.Minute))
	n := other.Node()
	force := func(token, want uint64) {
		t.Helper()
		if got, err := admin.OfNode(n).ForceRelease(ctx, "forced", token, token, "its host hangs"); err != nil || got != want {
			t.Fatal(got, err)
		}
	}

	l := acquire(t, owner, "forced", client.Exclusive())
	waiting, _ := queue(t, other, "forced", client.Exclusive())
	force(l.Token(), 1)
	<-l.Context().Done()
	if err := l.Lost(); !errors.Is(err, client.ErrLeaseLost) ||
		!strings.Contains(err.Error(), "operator anonymous: its host hangs") || l.Held() {
		t.Fatal(err, l.Held())
	}
	granted := waiting.must(t)
	if granted.Token() <= l.Token() || owner.State() != client.Attached {
		t.Fatal(granted.Token(), l.Token(), owner.State())
	}
	force(l.Token(), 0)
	if !granted.Held() {
		t.Fatal("a late copy took a newer lease: ", granted.Lost())
	}
	release(t, granted)

	// Its link is away: it believes until it is back.
	l = acquire(t, owner, "forced", client.Exclusive())
	srv.Unreachable()
	detached := func() bool { return owner.State() == client.Detached && other.State() == client.Detached }
	await.True(t, "both to be detached", detached)
	srv.Reachable()
	force(l.Token(), 1)
	<-l.Context().Done()
	if !errors.Is(l.Lost(), client.ErrLeaseLost) {
		t.Fatal(l.Lost())
	}
	again := acquire(t, owner, "forced", client.Exclusive())
	if again.Token() <= l.Token() {
		t.Fatal(again.Token(), l.Token())
	}
	release(t, again)

	for _, bad := range []error{
		func() error { _, err := admin.OfNode(n).ForceRelease(ctx, "forced", 1, 1, " "); return err }(),
		func() error { _, err := admin.OfNode(n).ForceRelease(ctx, "forced", 2, 1, "because"); return err }(),
		admin.OfNode(n).KillSession(ctx, owner.ID(), ""),
	} {
		if !errors.Is(bad, client.ErrBadRequest) {
			t.Error(bad)
		}
	}
	if _, err := admin.OfNode(n).ForceRelease(ctx, "nothing", 1, 1, "because"); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

// TestCloseFrees: a closed session's locks pass on at once; the server's clock never moves.
func TestCloseFrees(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	a, b := session(t, c), session(t, c)
	l := acquire(t, a, "close", client.Exclusive())
	waiting, _ := queue(t, b, "close", client.Exclusive())
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	waiting.while(t, watchChanges(srv))
	if l.Held() || !errors.Is(l.Lost(), client.ErrSessionClosed) || a.State() != client.Expired {
		t.Fatal(l.Held(), l.Lost(), a.State())
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	third := dial(t, srv)
	after := session(t, third)
	waiting, _ = queue(t, after, "close", client.Exclusive())
	cutOff, _ := queue(t, session(t, c), "close", client.Exclusive())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	waiting.while(t, watchChanges(srv))
	if _, err := cutOff.get(); !errors.Is(err, client.ErrClientClosed) {
		t.Errorf("a call in progress returned %v", err)
	}
	if err := b.Err(); !errors.Is(err, client.ErrClientClosed) || !errors.Is(err, client.ErrSessionClosed) {
		t.Errorf("the session ended with %v", err)
	}
	if _, err := c.Session(ctx, "/default"); !errors.Is(err, client.ErrClientClosed) {
		t.Fatal(err)
	}
}

// TestRestore: another process takes a session over, and finds what it held.
func TestRestore(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	old, fresh := dial(t, node), dial(t, node)
	s := session(t, old)
	l := acquire(t, s, "restored", client.CreateLimit(3), client.Count(2))
	saved := s.Save()
	r, err := fresh.Restore(ctx, saved)
	if err != nil {
		t.Fatal(err)
	}
	if r.ID() != s.ID() {
		t.Fatal(r.ID(), s.ID())
	}
	<-s.Context().Done()
	if !errors.Is(s.Err(), client.ErrTakenOver) || l.Held() {
		t.Fatal(s.Err(), l.Held())
	}
	again := acquire(t, r, "restored", client.Count(2))
	if again.Token() != l.Token() {
		t.Fatal(again.Token(), l.Token())
	}
	if _, err := old.Restore(ctx, client.Saved{Node: saved.Node, Session: saved.Session, Key: make([]byte, 16),
		Generation: 5}); !errors.Is(err, client.ErrBadSession) {
		t.Fatal(err)
	}
	if _, err := old.Restore(ctx, client.Saved{Node: saved.Node, Session: 1 << 36,
		Key: make([]byte, 16)}); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreTwice: of two processes that restore one saved state the second is refused, whatever
// has become of the first: it would be given the answers to the first one's requests, and rely on
// what the first was granted.
func TestRestoreTwice(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	for name, heir := range map[string]func(t *testing.T, c *client.Client, s *client.Session, sem string){
		"holds and dies": func(t *testing.T, c *client.Client, s *client.Session, sem string) {
			acquire(t, s, sem)
			c.CloseWithoutRelease()
		},
		"releases and dies": func(t *testing.T, c *client.Client, s *client.Session, sem string) {
			release(t, acquire(t, s, sem, client.Count(5)))
			c.CloseWithoutRelease()
		},
		"writes and dies": func(t *testing.T, c *client.Client, s *client.Session, sem string) {
			_, err := s.Update(ctx, sem, []byte("the first heir's"))
			must(t, err)
			c.CloseWithoutRelease()
		},
		"lives": func(t *testing.T, _ *client.Client, s *client.Session, sem string) { acquire(t, s, sem) },
	} {
		t.Run(name, func(t *testing.T) {
			sem := "units of one that " + name
			old, other := dial(t, node), session(t, dial(t, node))
			must(t, other.Create(ctx, sem, 5, nil))
			saved := session(t, old).Save()
			first := dial(t, node)
			s, err := first.Restore(ctx, saved)
			must(t, err)
			heir(t, first, s, sem)
			second := dial(t, node)
			if r, err := second.Restore(ctx, saved); !errors.Is(err, client.ErrBadSession) {
				t.Fatalf("the second restore of one state: %v, %v", r, err)
			}
			if name == "lives" && (s.Err() != nil || s.State() != client.Attached) {
				t.Fatalf("the first heir: %v, %v", s.State(), s.Err())
			}
			// What the first heir saved is good, and nobody is given what was the first heir's.
			l, err := other.TryAcquire(ctx, sem, client.Count(4))
			must(t, err)
			r, err := second.Restore(ctx, s.Save())
			must(t, err)
			again, err := r.TryAcquire(ctx, sem, client.Count(5))
			if again != nil || name != "releases and dies" && name != "writes and dies" &&
				!errors.Is(err, client.ErrBadRequest) {
				t.Fatalf("5 of 5 while 4 are held: %v, %v", again, err)
			}
			release(t, l)
			version, err := r.Update(ctx, sem, []byte("the second heir's"))
			must(t, err)
			d, err := r.Node().Describe(ctx, sem, client.ReadConsistency(client.Strict))
			if err != nil || string(d.Data) != "the second heir's" || d.Version != version {
				t.Fatalf("%q, version %d, told %d: %v", d.Data, d.Version, version, err)
			}
			must(t, r.Close(ctx))
		})
	}
}

// TestRestoresAtOnce: of many processes that restore one state at a time, one gets it, and keeps
// it.
func TestRestoresAtOnce(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	saved := session(t, dial(t, node)).Save()
	const heirs = 8
	got := make(chan *client.Session, heirs)
	for range heirs {
		c := dial(t, node)
		go func() {
			s, err := c.Restore(ctx, saved)
			if err != nil && !errors.Is(err, client.ErrBadSession) {
				t.Error(err)
			}
			got <- s
		}()
	}
	var heir *client.Session
	for range heirs {
		if s := <-got; s != nil && heir != nil {
			t.Error("two restores of one state succeed")
		} else if s != nil {
			heir = s
		}
	}
	if heir == nil {
		t.Fatal("nobody has the session")
	}
	release(t, acquire(t, heir, "one heir", client.Exclusive()))
	if heir.Err() != nil {
		t.Fatal(heir.Err())
	}
}

// TestOpenAndClose: sessions leave nothing behind in the client.
func TestOpenAndClose(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	release(t, acquire(t, session(t, c), "warm", client.Exclusive()))
	before := runtime.NumGoroutine() + 1 // the connection's writer begins when several callers share it
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 20 {
		wg.Go(func() {
			for range 50 {
				s, err := c.Session(ctx, "/default")
				if err == nil {
					err = s.Close(ctx)
				}
				if err != nil {
					failed.Add(1)
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	await.True(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
