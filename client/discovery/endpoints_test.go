package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func watch(t *testing.T, c *client.Client, node string, opts ...discovery.WatchOption) *discovery.Endpoints {
	t.Helper()
	e, err := discovery.Watch(c, node, "api", opts...)
	must(t, err)
	t.Cleanup(e.Close)
	return e
}

func used(v *discovery.View) string {
	var list []string
	for _, e := range v.Used {
		list = append(list, e.Addr)
	}
	return strings.Join(list, " ")
}

// until waits for a view.
func until(t *testing.T, e *discovery.Endpoints, ok func(v *discovery.View) bool) *discovery.View {
	t.Helper()
	for over := time.After(await.Limit); ; {
		if v := e.View(); ok(v) {
			return v
		}
		select {
		case <-e.Changed():
		case <-over:
			t.Fatalf("waited in vain for a view; it is %+v", e.View())
		}
	}
}

func register(t *testing.T, srv *servertest.Server, m discovery.Member) *discovery.Registration {
	t.Helper()
	s, err := dial(t, srv).Session(t.Context(), "/default")
	must(t, err)
	r, err := discovery.Register(t.Context(), s, "api", m)
	must(t, err)
	return r
}

// TestEndpointsFollow: members come and go, the cluster goes away and returns, and the handles of a
// client see it, each by its own rules.
func TestEndpointsFollow(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	e := watch(t, c, "/default")
	near := watch(t, c, "/default", discovery.InZone("SAS"), discovery.Subset(2))
	if v := e.View(); v.Known || v.Live || v.All != nil {
		t.Fatalf("%+v", v)
	}
	must(t, e.Wait(t.Context()))
	if v := e.View(); !v.Known || !v.Live || len(v.All) != 0 {
		t.Fatalf("%+v", v)
	}
	a := register(t, srv, discovery.Endpoint{Addr: "10.0.0.1:80", Zone: "VLA"})
	for i := 2; i <= 4; i++ {
		register(t, srv, discovery.Endpoint{Addr: fmt.Sprintf("10.0.0.%d:80", i), Zone: "SAS", Meta: map[string]string{"version": "7"}})
	}
	register(t, srv, discovery.Data("no address"))
	v := until(t, e, func(v *discovery.View) bool { return len(v.All) == 4 && v.Ignored == 1 })
	if used(v) != "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80 10.0.0.4:80" || v.All[1].Meta["version"] != "7" || v.All[0].Token != a.Token() {
		t.Errorf("%+v", v)
	}
	if v := until(t, near, func(v *discovery.View) bool { return len(v.Used) == 2 }); v.Used[0].Zone != "SAS" || v.Used[1].Zone != "SAS" {
		t.Errorf("%+v", v)
	}
	if s := e.Stats(); s != near.Stats() || s.Interruptions != 0 {
		t.Errorf("%+v, %+v", s, near.Stats())
	}

	srv.Unreachable()
	stale := until(t, e, func(v *discovery.View) bool { return !v.Live })
	if used(stale) != used(v) || stale.Since.IsZero() || !stale.Known || e.Err() != nil {
		t.Errorf("%+v, %v", stale, e.Err())
	}
	srv.Reachable()
	until(t, e, func(v *discovery.View) bool { return v.Live && len(v.All) == 4 })
	must(t, a.Drain(t.Context(), 0))
	v = until(t, e, func(v *discovery.View) bool { return len(v.All) == 3 })
	if used(v) != "10.0.0.2:80 10.0.0.3:80 10.0.0.4:80" || e.View() != v || stale.Used[0].Addr != "10.0.0.1:80" {
		t.Errorf("%+v", v)
	}
	if s := e.Stats(); s.Interruptions != 1 {
		t.Errorf("%+v", s)
	}

	e.Close()
	e.Close()
	if err := e.Wait(t.Context()); !errors.Is(err, discovery.ErrClosed) {
		t.Error(err)
	}
	c.CloseWithoutRelease()
	until(t, near, func(v *discovery.View) bool { return !v.Live && len(v.All) == 3 })
	if err := near.Err(); !errors.Is(err, client.ErrClientClosed) {
		t.Error(err)
	}
	unknown := watch(t, c, "/default")
	if err := unknown.Wait(t.Context()); !errors.Is(err, client.ErrClientClosed) {
		t.Error(err)
	}
}

// TestNodeComesLater: a node that does not exist is said, and tried again.
func TestNodeComesLater(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	e := watch(t, c, "/later")
	if err := e.Wait(t.Context()); !errors.Is(err, client.ErrNotFound) || !errors.Is(e.Err(), client.ErrNotFound) {
		t.Fatal(err)
	}
	create := func() {
		_, err := admin.Nodes(c).Create(t.Context(), "/later", admin.NodeConfig{})
		must(t, err)
	}
	create()
	until(t, e, func(v *discovery.View) bool { return v.Known })
	must(t, e.Wait(t.Context()))
	s, err := c.Session(t.Context(), "/later")
	must(t, err)
	_, err = discovery.Register(t.Context(), s, "api", discovery.Endpoint{Addr: "10.0.0.1:80"})
	must(t, err)
	until(t, e, func(v *discovery.View) bool { return len(v.All) == 1 })
	deleteNode(t, c, "/later")
	if v := until(t, e, func(*discovery.View) bool { return errors.Is(e.Err(), client.ErrNotFound) }); len(v.All) != 1 || v.Live {
		t.Errorf("%+v", v) // a list that was known stays
	}
	create()
	until(t, e, func(v *discovery.View) bool { return v.Live && len(v.All) == 1 })
	if e.Stats().Held != 1 || e.Err() != nil {
		t.Errorf("%+v, %v", e.Stats(), e.Err())
	}
}

// TestNothingIsKnown: with an unreachable cluster, Wait ends with its context, and says so.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c := dial(t, srv)
	srv.Unreachable()
	e := watch(t, c, "/default")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := e.Wait(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `nothing is known of service "api" in /default yet`) {
		t.Error(err)
	}
	for _, o := range []discovery.WatchOption{discovery.Subset(-1), discovery.PanicShare(101), discovery.Hold(-1), discovery.Hold(6 * time.Minute)} {
		if _, err := discovery.Watch(c, "/default", "api", o); err == nil {
			t.Error("an option out of range")
		}
	}
	if _, err := discovery.Watch(c, "/default", ""); err == nil {
		t.Error("a service without a name")
	}
}
