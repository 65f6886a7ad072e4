package discovery

import (
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// slowMember is an Endpoint whose next write waits, between the look at the state and the request.
type slowMember struct {
	Endpoint
	waits         *atomic.Bool
	encoded       *atomic.Int64
	writing, goOn chan struct{}
}

func (m slowMember) encode(s *status) ([]byte, error) {
	defer m.encoded.Add(1)
	if m.waits.CompareAndSwap(true, false) {
		m.writing <- struct{}{}
		<-m.goOn
	}
	return m.Endpoint.encode(s)
}

// TestStateChangesWhileWritten: a state that changes back while it is being written is written
// again, and so is what an update says meanwhile.
func TestStateChangesWhileWritten(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	m := slowMember{Endpoint{Addr: "10.0.0.1:80"}, new(atomic.Bool), new(atomic.Int64), make(chan struct{}), make(chan struct{})}
	r, err := Register(t.Context(), s, "api", m)
	if err != nil {
		t.Fatal(err)
	}
	n, err := c.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	shows := func(what string, want func(*Endpoint) bool) {
		t.Helper()
		await.True(t, what, func() bool {
			list, err := n.Service("api").List(t.Context(), client.ReadConsistency(client.Strict))
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			e, err := ParseEndpoint(list[0].Data)
			return err == nil && want(e)
		})
	}
	for range 3 {
		m.waits.Store(true)
		r.observe(func(s *status) { s.drained = "by a test" })
		<-m.writing
		r.observe(func(s *status) { s.drained = "" })
		before := m.encoded.Load()
		m.goOn <- struct{}{}
		await.True(t, "the second state to be written", func() bool { return m.encoded.Load() == before+2 })
		shows("the state to be ready again", func(e *Endpoint) bool { return e.state() == Ready })
	}
	m.waits.Store(true)
	r.observe(func(s *status) { s.drained = "by a test" })
	<-m.writing
	updated := make(chan error, 1)
	go func() { updated <- r.Update(t.Context(), Endpoint{Addr: "10.0.0.1:80", Weight: 7}) }()
	await.True(t, "the update to be asked for", func() bool {
		_, is := r.present.get().(Endpoint)
		return is
	})
	m.goOn <- struct{}{}
	if err := <-updated; err != nil {
		t.Fatal(err)
	}
	shows("state and weight", func(e *Endpoint) bool { return e.state() == Draining && e.Weight == 7 })
}
