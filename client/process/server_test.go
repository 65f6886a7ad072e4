package process

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// newSession is a session with a connection of its own, that outlives the test's slow moments.
func newSession(t *testing.T, addr string) *client.Session {
	t.Helper()
	return sessionOf(t, addr, func(ctx context.Context, c *client.Client) (*client.Session, error) {
		return c.Session(ctx, "/default", client.Timeout(time.Minute))
	})
}

// restoreSession is the session as another program restores it.
func restoreSession(t *testing.T, addr string, saved client.Saved) *client.Session {
	t.Helper()
	return sessionOf(t, addr, func(ctx context.Context, c *client.Client) (*client.Session, error) {
		return c.Restore(ctx, saved)
	})
}

func sessionOf(
	t *testing.T, addr string, begin func(context.Context, *client.Client) (*client.Session, error),
) *client.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := begin(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustJoin(t *testing.T, s *client.Session, name string, h Handler, o Options) *Membership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := Join(ctx, s, name, h, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLeave(t *testing.T, p *Membership) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Leave(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestServerMembersComeAndGo: five members on a real server join one by one and leave one by one,
// their handlers fail one time in three, and now and then all connections break. After each change
// all hold the same value, and each member has completed one round for each change that it was
// there for.
func TestServerMembersComeAndGo(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	var members []*Membership
	var handlers []*agreeingHandler
	for i := range 5 {
		h := newAgreeing(3)
		h.rnd = rand.New(rand.NewPCG(uint64(i), 3))
		members = append(members, mustJoin(t, newSession(t, srv.Addr()), "queue", h, Options{Synchronous: i%2 == 0,
			RetryInterval: 2 * time.Millisecond, BackoffMin: 5 * time.Millisecond,
			BackoffMax: 20 * time.Millisecond}))
		handlers = append(handlers, h)
		if i == 2 {
			srv.DropConnections()
		}
		holdTheSame(t, handlers)
	}
	last := handlers[4]
	for len(members) > 1 {
		if len(members) == 3 {
			srv.DropConnections()
		}
		mustLeave(t, members[0])
		if !errors.Is(members[0].Err(), ErrLeft) {
			t.Errorf("membership is over by %v", members[0].Err())
		}
		handlers[0].check(t)
		members, handlers = members[1:], handlers[1:]
		holdTheSame(t, handlers)
	}
	mustLeave(t, members[0])
	last.check(t)
	if last.completed != 5 {
		t.Errorf("the last member completed %d rounds for 5 changes", last.completed)
	}
}

// TestOperatorOnServer: an operator sees two members and their rounds, forces a round, alters the
// options and evicts one; a watch tells all of it in order.
func TestOperatorOnServer(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	a, b := newSession(t, srv.Addr()), newSession(t, srv.Addr())
	o := NewOperator(newSession(t, srv.Addr()).Node(), "queue")
	if _, err := o.Describe(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("describe of nothing: %v", err)
	}
	if err := o.Force(ctx, ""); !errors.Is(err, client.ErrNotFound) {
		t.Fatalf("force of nothing: %v", err)
	}
	next, stop := iter.Pull2(o.Watch(ctx))
	defer stop()
	event := func() WatchEvent {
		t.Helper()
		n, err, ok := next()
		if err != nil || !ok {
			t.Fatalf("the watch ended: %v", err)
		}
		return n
	}
	if n := event(); !n.Absent {
		t.Fatalf("%+v", n)
	}
	until := func(what string, f func(*Change) bool) {
		t.Helper()
		for {
			switch n := event(); {
			case n.Change != nil && f(n.Change):
				return
			case n.Status != nil:
				t.Fatalf("the watch began again while it waited for %s", what)
			}
		}
	}
	ended := func(c *Change) bool { return c.Kind == ChangeEnded && c.Outcome == OutcomeCompleted }
	quiet := func(epoch uint64, members int) *Status {
		t.Helper()
		return await.Seen(t, "a complete round of all members", func() (*Status, bool) {
			s, err := o.Describe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return s, s.Phase == Completed && s.Epoch > epoch && len(s.Members) == members
		})
	}
	p := mustJoin(t, a, "queue", newAgreeing(0), Options{Data: []byte("host-a"), Debounce: time.Millisecond})
	until("the first round", ended)
	q := mustJoin(t, b, "queue", newAgreeing(0), Options{Data: []byte("host-b"), Key: "b"})
	until("the second member", func(c *Change) bool { return c.Kind == ChangeJoined && c.Session == b.ID() && c.Text == "b" })
	until("the second round", ended)
	s := quiet(0, 2)
	if s.Coordinator != a.ID() || string(s.Members[0].Data) != "host-a" || s.Members[1].Key != "b" ||
		s.Members[1].State != MemberCompleted || s.Tally.Completed != 2 ||
		s.Options.Debounce != time.Millisecond || s.Options.BackoffMax != 5*time.Second || len(s.Lagging()) != 0 || len(s.History) < 2 ||
		s.History[len(s.History)-1].Outcome != OutcomeCompleted || s.History[len(s.History)-1].Size != 2 ||
		time.Since(s.Started) > time.Hour {
		t.Errorf("%+v", s)
	}
	var names []string
	for info, err := range List(ctx, a.Node(), "qu") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprint(info.Name, info.Members, info.Coordinator == a.ID()))
	}
	if !slices.Equal(names, []string{"queue2 true"}) {
		t.Errorf("listed %q", names)
	}
	if err := o.Force(ctx, "new hosts"); err != nil {
		t.Fatal(err)
	}
	until("the forced round", func(c *Change) bool { return c.Kind == ChangeStarted && c.Epoch > s.Epoch })
	s = quiet(s.Epoch, 2)
	if err := o.Alter(ctx, Options{Election: LowestID, RoundTimeout: time.Hour}); err != nil {
		t.Fatal(err)
	}
	until("other options", func(c *Change) bool { return c.Kind == ChangeAltered })
	if err := o.Evict(ctx, b.ID(), "sick"); err != nil {
		t.Fatal(err)
	}
	until("the eviction", func(c *Change) bool { return c.Kind == ChangeLeft && c.Session == b.ID() })
	wait(t, "the end of the evicted one", q.Done())
	if !errors.Is(q.Err(), ErrEvicted) {
		t.Errorf("membership is over by %v", q.Err())
	}
	if err := o.Evict(ctx, b.ID(), ""); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("evicted twice: %v", err)
	}
	if s = quiet(s.Epoch, 1); s.Options.Election != LowestID || s.Options.RoundTimeout != time.Hour || s.Options.Debounce != 0 {
		t.Errorf("options %+v", s.Options)
	}
	mustLeave(t, p)
}
