package discovery

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestCopyIsShared: handles of one service share a copy, which goes on for a while after the last
// Close, and ends then; who comes later gets another one.
func TestCopyIsShared(t *testing.T) {
	srv := servertest.Start(t)
	c, err := client.Dial(t.Context(), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	open := func(opts ...WatchOption) *Endpoints {
		t.Helper()
		e, err := Watch(c, "/default", "api", opts...)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	a, b, other := open(), open(InZone("SAS")), open(Hold(time.Second))
	if a.copy != b.copy || a.copy == other.copy {
		t.Error("which handles share a copy")
	}
	first := a.copy
	a.Close()
	first.end() // as the timer would, late
	b.Close()
	if again := open(); again.copy != first {
		t.Error("the copy does not linger")
	} else {
		again.Close()
	}
	first.end()
	last := open()
	defer last.Close()
	if last.copy == first {
		t.Error("the copy has not ended")
	}
	if err := last.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
