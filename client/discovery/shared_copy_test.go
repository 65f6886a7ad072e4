package discovery

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestCopyIsShared: handles of one service share a copy, which goes on for a while after the last
// Close, and ends then; who comes later gets another one.
func TestCopyIsShared(t *testing.T) {
	t.Parallel()
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

// TestChangeIsShownAtOnce: after a quiet time, a change is in every handle's view, and each handle
// is told, before the watch goes on to anything else: no timer and no goroutine is in between. One
// that follows within the interval comes at its end.
func TestChangeIsShownAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSharedCopy(nil, copyKey{service: "api", hold: defaultHold})
		for range 2 {
			e := &Endpoints{copy: x, caller: caller{panicShare: defaultPanicShare}, changed: make(chan struct{}, 1)}
			x.handles[e] = struct{}{}
		}
		send := func(ev client.Event) { x.step(func(now time.Time) { x.list.event(now, &ev) }) }
		member := func(token uint64, addr string) client.Event {
			return client.Event{Kind: client.EventChanged, Added: []client.Owner{{Token: token, Count: 1, Data: []byte(addr)}}}
		}
		notified := func() (n int) {
			for e := range x.handles {
				select {
				case <-e.Changed():
					n++
				default:
				}
			}
			return n
		}
		shown := func(n, notify int) {
			t.Helper()
			if got := notified(); got != notify {
				t.Errorf("%d handles are notified, want %d", got, notify)
			}
			for e := range x.handles {
				if v := e.View(); len(v.Used) != n {
					t.Errorf("%d endpoints are used, want %d", len(v.Used), n)
				}
			}
		}
		send(member(1, "a:1"))
		send(client.Event{Kind: client.EventSynced})
		shown(1, 2)
		time.Sleep(viewInterval)
		send(member(2, "b:1"))
		shown(2, 2)
		send(client.Event{Kind: client.EventChanged, Removed: []client.Owner{{Token: 1}}})
		shown(2, 0)
		time.Sleep(viewInterval)
		synctest.Wait()
		shown(1, 2)
	})
}
