package gateway

import (
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestMemory: beyond the bound the stream with the most ends, and as many as are needed. One that
// was told to end, or has left, does not count any more, whatever it gives back later.
func TestMemory(t *testing.T) {
	var shed atomic.Uint64
	m := newMemory(100, &shed)
	ended := ""
	join := func(name string) *share {
		return m.join(func(err error) {
			if protocol.StatusOf(err) != protocol.StatusOverloaded {
				t.Error(err)
			}
			ended += name
		})
	}
	want := func(names string, total int64) {
		t.Helper()
		if ended != names || m.total != total || int(shed.Load()) != len(names) {
			t.Fatalf("%q ended, %d in the metrics, and %d bytes are kept; want %q and %d", ended, shed.Load(), m.total, names, total)
		}
	}
	a, b, c := join("a"), join("b"), join("c")
	a.add(40)
	b.add(50)
	c.add(10)
	want("", 100)
	c.add(1)
	want("b", 51)
	b.add(1000)
	b.add(-1050)
	want("b", 51)
	c.add(100) // a need not end
	want("bc", 40)
	a.add(-10)
	d := join("d")
	d.add(70)
	want("bc", 100)
	d.leave()
	d.add(-70)
	want("bc", 30)
	a.add(-30)
	a.leave()
	want("bc", 0)
	if len(m.streams) != 0 {
		t.Errorf("%d streams are counted", len(m.streams))
	}
}
