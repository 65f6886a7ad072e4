package discovery

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// refusedMember is too large. Its write waits until the test goes on.
type refusedMember struct {
	Data
	encoded       atomic.Int64
	writing, goOn chan struct{}
}

func (m *refusedMember) encode(*status) ([]byte, error) {
	if m.encoded.Add(1) == 2 {
		m.writing <- struct{}{}
		<-m.goOn
	}
	return make([]byte, 1<<20+1), nil
}

// noticedMember says when Update looks at it.
type noticedMember struct {
	Data
	noticed chan struct{}
}

func (m noticedMember) encode(s *status) ([]byte, error) {
	select {
	case m.noticed <- struct{}{}:
	default:
	}
	return m.Data.encode(s)
}

// TestRefusedUpdate: an update that is refused beside another one takes nothing back but itself.
func TestRefusedUpdate(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	s, err := c.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Register(t.Context(), s, "api", Data("first"))
	if err != nil {
		t.Fatal(err)
	}
	refused := &refusedMember{writing: make(chan struct{}), goOn: make(chan struct{})}
	other := noticedMember{Data("second"), make(chan struct{}, 1)}
	results := make(chan error, 2)
	go func() { results <- r.Update(t.Context(), refused) }()
	<-refused.writing
	go func() { results <- r.Update(t.Context(), other) }()
	<-other.noticed
	for range 100 {
		runtime.Gosched() // the other update begins, as far as it may
	}
	close(refused.goOn)
	if err := errors.Join(<-results, <-results); !errors.Is(err, client.ErrBadRequest) {
		t.Error(err)
	}
	list, err := s.Node().Service("api").List(t.Context(), client.ReadConsistency(client.Strict))
	if err != nil || len(list) != 1 || string(list[0].Data) != "second" {
		t.Errorf("members %v, %v", list, err)
	}
}
