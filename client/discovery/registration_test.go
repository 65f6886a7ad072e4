package discovery_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// seen waits until the only member has data that contains what is wanted. It calls first, if any,
// when it has the data that the member has now.
func seen(t *testing.T, n *client.Node, want string, first func()) {
	t.Helper()
	data := ""
	for ev, err := range n.Service("api").Watch(t.Context()) {
		must(t, err)
		switch ev.Kind {
		case client.MemberSnapshot:
			for _, m := range ev.Members {
				data = string(m.Data)
			}
		case client.MemberAdded, client.MemberChanged:
			data = string(ev.Member.Data)
		}
		if strings.Contains(data, want) {
			return
		}
		if first != nil && data != "" {
			first()
			first = nil
		}
	}
}

// TestCheckedMember: a member is registered as its first check finds it, stays while its check
// fails, and is ready again after a success. An update keeps what the check finds.
func TestCheckedMember(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	n := openNode(t, srv, "/default")
	s, err := c.Session(t.Context(), "/default")
	must(t, err)
	var well atomic.Bool
	states := make(chan string, 2)
	r, err := discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: "10.0.0.1:80"},
		discovery.OnState(func(state discovery.State, why string) { states <- string(state) + " " + why }),
		discovery.CheckInterval(time.Second), discovery.ReadyCheck(func(context.Context) error {
			if well.Load() {
				return nil
			}
			return errors.New("no disk")
		}))
	must(t, err)
	if got := members(t, n); got != `{"addr":"10.0.0.1:80","state":"failing","why":"no disk"}` || r.State() != discovery.Failing {
		t.Fatal(got)
	}
	must(t, r.Update(t.Context(), discovery.Endpoint{Addr: "10.0.0.1:81"}))
	if got := members(t, n); got != `{"addr":"10.0.0.1:81","state":"failing","why":"no disk"}` {
		t.Fatal(got)
	}
	if err := r.Update(t.Context(), discovery.Endpoint{Addr: "10.0.0.1"}); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Error(err)
	}
	if got := <-states; got != "failing no disk" {
		t.Errorf("reported state %q", got)
	}
	well.Store(true)
	seen(t, n, `{"addr":"10.0.0.1:81"}`, nil)
	if got := <-states; got != "ready " {
		t.Errorf("reported state %q", got)
	}
	if r.Token() == 0 || r.Session() != s {
		t.Error(r.Token(), r.Session())
	}
	must(t, r.Drain(t.Context(), 0))
	if got := members(t, n); got != "" || r.Err() != nil {
		t.Error(got, r.Err())
	}
	<-r.Done()
	if err := r.Update(t.Context(), discovery.Endpoint{Addr: "10.0.0.1:82"}); !errors.Is(err, client.ErrReleased) {
		t.Errorf("an update by a member that has left: %v", err)
	}
}

// TestWrongOptions: each is refused before anything is registered.
func TestWrongOptions(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	c := dial(t, srv)
	s, err := c.Session(t.Context(), "/default")
	must(t, err)
	check := discovery.ReadyCheck(func(context.Context) error { return nil })
	e := discovery.Endpoint{Addr: "a:1"}
	for _, x := range []struct {
		want string
		m    discovery.Member
		opts []discovery.Option
	}{
		{"give it an Endpoint", discovery.Data("a:1"), []discovery.Option{check}},
		{"addr is missing", discovery.Endpoint{}, nil},
		{"where a server listens", discovery.Endpoint{Addr: "0.0.0.0:80"}, nil},
		{"its host is no IPv4 address", discovery.Endpoint{Addr: "999.1.1.1:80"}, nil},
		{"interval is 999ms", e, []discovery.Option{check, discovery.CheckInterval(999 * time.Millisecond)}},
		{"interval is 6m0s", e, []discovery.Option{check, discovery.CheckInterval(6 * time.Minute)}},
		{"timeout is 0s", e, []discovery.Option{check, discovery.CheckTimeout(0)}},
		{"timeout is 6s", e, []discovery.Option{check, discovery.CheckTimeout(6 * time.Second)}},
		{"grace of a drain is 11m0s", e, []discovery.Option{discovery.DrainGrace(11 * time.Minute)}},
	} {
		if _, err := discovery.Register(t.Context(), s, "api", x.m, x.opts...); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.want, err)
		}
		if err := discovery.Serve(t.Context(), c, "/default", "api", x.m, x.opts...); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: Serve: %v", x.want, err)
		}
	}
	r, err := discovery.Register(t.Context(), s, "api", e)
	must(t, err)
	if err := r.Drain(t.Context(), -1); err == nil || r.Err() != nil {
		t.Error(err, r.Err())
	}
}

// TestServeDrains: when its context ends, a member drains for its grace, and leaves.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	n := openNode(t, srv, "/default")
	c := dial(t, srv)
	ctx, stop := context.WithCancel(t.Context())
	over, registered := make(chan error, 1), make(chan *discovery.Registration, 1)
	go func() {
		over <- discovery.Serve(ctx, c, "/default", "api", discovery.Endpoint{Addr: "10.0.0.1:80", Weight: 7},
			discovery.DrainGrace(3*time.Second), // time for the watch on a slow machine
			discovery.OnRegistration(func(r *discovery.Registration, _ error) { registered <- r }))
	}()
	r := <-registered
	seen(t, n, `"state":"draining","weight":7,"why":"the program stops"`, stop)
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := members(t, n); got != "" || r.Err() != nil {
		t.Error(got, r.Err())
	}
}

// TestDrainWhileAway: the grace runs, and the error says that the member leaves later, as it does.
func TestDrainWhileAway(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	s, err := dial(t, srv).Session(t.Context(), "/default")
	must(t, err)
	r, err := discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: "10.0.0.1:80"})
	must(t, err)
	srv.Unreachable()
	began := time.Now()
	err = r.Drain(t.Context(), 50*time.Millisecond)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "in the background") || time.Since(began) < 50*time.Millisecond {
		t.Error(err)
	}
	<-r.Done()
	srv.Reachable()
	n := openNode(t, srv, "/default")
	for range n.Service("api").Watch(t.Context()) {
		if members(t, n) == "" {
			break
		}
	}
}

// TestRequestDrain: somebody else drains a member, and takes it back.
func TestRequestDrain(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	n := openNode(t, srv, "/default")
	c := dial(t, srv)
	s, err := c.Session(t.Context(), "/default")
	must(t, err)
	operator, err := c.Session(t.Context(), "/default")
	must(t, err)
	r, err := discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: "10.0.0.1:80"})
	must(t, err)
	request := func(session uint64, why string) error {
		return discovery.RequestDrain(t.Context(), operator, "api", session, why)
	}
	for _, id := range []uint64{operator.ID(), 0} {
		if err := request(id, "by a test"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("of no member: %v", err)
		}
	}
	if err := request(s.ID(), ""); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("without a reason: %v", err)
	}
	if err := discovery.CancelDrain(t.Context(), operator, "api", s.ID()); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("taken back before: %v", err)
	}
	must(t, request(s.ID(), "by alice@ops"))
	seen(t, n, `{"addr":"10.0.0.1:80","state":"draining","why":"by alice@ops"}`, nil)
	must(t, discovery.CancelDrain(t.Context(), operator, "api", s.ID()))
	seen(t, n, `{"addr":"10.0.0.1:80"}`, nil)

	// What has ended goes with the next change.
	must(t, request(s.ID(), "by alice@ops"))
	must(t, r.Drain(t.Context(), 0))
	_, err = discovery.Register(t.Context(), operator, "api", discovery.Endpoint{Addr: "10.0.0.2:80"})
	must(t, err)
	must(t, request(operator.ID(), "by bob@ops"))
	v, err := operator.Config(discovery.DrainPrefix + "api").Get(t.Context())
	must(t, err)
	if text := string(v.Data); strings.Contains(text, "alice") || !strings.Contains(text, "bob") {
		t.Error(text)
	}
	seen(t, n, `"why":"by bob@ops"`, nil)
}
