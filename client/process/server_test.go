package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// newSession is a session with a connection of its own, that outlives the test's slow moments.
func newSession(t *testing.T, addr string) *client.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustJoin(t *testing.T, s *client.Session, name string, h Handler, o Options) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := Join(ctx, s, name, h, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustLeave(t *testing.T, p *Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Leave(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestServerMembersComeAndGo: five members on a real server join one by one and leave one by one, their handlers fail one time in three, and now and then all connections break.
// After each change all hold the same value, and each member has completed one round for each change that it was there for.
func TestServerMembersComeAndGo(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	var members []*Process
	var handlers []*agreeing
	same := func() {
		t.Helper()
		epoch, value := handlers[0].agreed(t, len(handlers))
		for _, h := range handlers[1:] {
			if e, v := h.agreed(t, len(handlers)); e != epoch || v != value || v != fmt.Sprint(e) {
				t.Fatalf("a member holds %q of %d, another %q of %d", v, e, value, epoch)
			}
		}
	}
	for i := range 5 {
		h := newAgreeing(3)
		h.rnd = rand.New(rand.NewPCG(uint64(i), 3))
		members = append(members, mustJoin(t, newSession(t, srv.Addr()), "queue", h, Options{Synchronous: i%2 == 0, RetryInterval: 2 * time.Millisecond, BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond}))
		handlers = append(handlers, h)
		if i == 2 {
			srv.DropConnections()
		}
		same()
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
		same()
	}
	mustLeave(t, members[0])
	last.check(t)
	if last.completed != 5 {
		t.Errorf("the last member completed %d rounds for 5 changes", last.completed)
	}
}
