package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// kinds is the kinds of the requests that arrived, pings apart.
func (f *fake) kinds() (list []protocol.Kind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.log {
		if s.kind != protocol.KindPing {
			list = append(list, s.kind)
		}
	}
	return list
}

// starts is the starts of sessions that arrived.
func (f *fake) starts() (list []protocol.SessionStart) {
	for _, s := range f.all(protocol.KindSessionStart) {
		list = append(list, decode[protocol.SessionStart](f.t, s.body))
	}
	return list
}

// loseStart has the connection end with the first start that arrives, when all before it is read.
func (f *fake) loseStart() {
	lost := false
	f.on = func(fc *fakeConn, h protocol.Header) bool {
		if h.Kind != protocol.KindSessionStart || lost {
			return false
		}
		lost = true
		synctest.Wait()
		_ = fc.nc.Close()
		return true
	}
}

func startFake(t *testing.T) *fake {
	f := newFake(t)
	f.features = protocol.FeatureStartByPath
	return f
}

// TestStartByPath: a new client starts a session with three requests, of which two go out together.
func TestStartByPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		c := f.open(t)
		s, err := c.Session(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		want := []protocol.Kind{protocol.KindHello, protocol.KindMap, protocol.KindSessionStart}
		if got := f.kinds(); !slices.Equal(got, want) {
			t.Errorf("requests are %v, want %v", got, want)
		}
		if m := f.starts()[0]; m.Node != 0 || m.Path != "/n" {
			t.Errorf("start is %+v", m)
		}
		if n := s.Node(); n.ID() != 7 || n.Path() != "/n" || !n.relaxed || n.grace != 10*time.Second || s.Timeout() != DefaultTimeout {
			t.Errorf("session has node %+v and timeout %v", n, s.Timeout())
		}
		if _, err := s.Acquire(bg, "x"); err != nil {
			t.Error(err)
		}
	})
}

// TestStartAtOldServer: a server of version 0.1 does not know paths in starts.
func TestStartAtOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		if _, err := f.open(t).Session(bg, "/n"); err != nil {
			t.Fatal(err)
		}
		want := []protocol.Kind{protocol.KindHello, protocol.KindMap, protocol.KindNodeDescribe, protocol.KindSessionStart}
		if got := f.kinds(); !slices.Equal(got, want) {
			t.Errorf("requests are %v, want %v", got, want)
		}
		if m := f.starts()[0]; m.Node != 7 || m.Path != "" {
			t.Errorf("start is %+v", m)
		}
	})
}

// TestShortTimeoutNeedsTheNode: a long grace period would raise the timeout, so the node is asked
// for first.
func TestShortTimeoutNeedsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		s, err := f.open(t).Session(bg, "/n", Timeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if m := f.starts(); len(m) != 1 || m[0].Node != 7 || m[0].Path != "" || s.Timeout() != time.Second {
			t.Errorf("starts are %+v", m)
		}
	})
}

// TestStartByPathRefused: what was refused is tried by the node's id, so that errors and retries
// are those of a start by the id.
func TestStartByPathRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			if h.Kind != protocol.KindSessionStart || decode[protocol.SessionStart](t, h.Body).Path == "" {
				return false
			}
			fc.fail(h, protocol.StatusNotFound)
			return true
		}
		s, err := f.open(t).Session(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		if m := f.starts(); len(m) != 2 || m[1].Node != 7 || m[1].Path != "" || s.Node().ID() != 7 {
			t.Errorf("starts are %+v", m)
		}
	})
}

// TestStartByPathUnanswered: a start by the path whose answer is lost is the same start when it is
// sent again by the id, and the session skips an attach epoch as after any such start.
func TestStartByPathUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		f.loseStart()
		s, err := f.open(t).Session(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		m := f.starts()
		if len(m) != 2 || m[0].Path != "/n" || m[1].Node != 7 || !slices.Equal(m[0].CreateID, m[1].CreateID) || m[0].Nonce != m[1].Nonce {
			t.Errorf("starts are %+v", m)
		}
		if s.epoch != 2 {
			t.Errorf("the attach epoch is %d, want 2", s.epoch)
		}
	})
}

// TestStartByPathGivenUp: a session whose start was given up unanswered is started to its end, and
// stopped.
func TestStartByPathGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		var silent bool
		f.on = func(_ *fakeConn, h protocol.Header) bool { return silent && h.Kind != protocol.KindPing }
		c := f.open(t)
		f.set(func() { silent = true })
		ctx, cancel := context.WithTimeout(bg, 300*time.Millisecond)
		defer cancel()
		if _, err := c.Session(ctx, "/n"); err == nil {
			t.Fatal("a start that nobody answered returned a session")
		}
		f.set(func() {
			silent = false
			for fc := range f.conns {
				_ = fc.nc.Close()
			}
		})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		m := f.starts()
		if len(m) < 2 || m[0].Path != "/n" || m[len(m)-1].Node != 7 || !slices.Equal(m[0].CreateID, m[len(m)-1].CreateID) {
			t.Errorf("starts are %+v", m)
		}
		if n := f.count(protocol.KindSessionStop); n != 1 {
			t.Errorf("%d stops were sent, want 1", n)
		}
	})
}

// TestAnnouncementBeforeTheFirstMap: a newer map that is announced while the first one is on its
// way is fetched.
func TestAnnouncementBeforeTheFirstMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			if h.Kind == protocol.KindMap && f.version == 1 {
				fc.answer(h)
				f.version = 2
				fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 2})
				return true
			}
			return false
		}
		c := f.open(t)
		defer c.needMap()() // an idle client takes its time
		synctest.Wait()
		if v := c.routes.Load().version; v != 2 {
			t.Errorf("the client has map %d, want 2", v)
		}
	})
}

// TestAbandonedStart: a session whose start was given up while it was on its way does not live on.
func TestAbandonedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		ctx, cancel := context.WithCancel(context.Background())
		first := true
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionStart && first {
					first = false
					cancel()
					return true
				}
				return false
			}
		})
		if _, err := c.Session(ctx, "/n"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		starts := f.all(protocol.KindSessionStart)
		if len(starts) != 2 || f.count(protocol.KindSessionStop) != 1 {
			t.Fatal(len(starts), f.count(protocol.KindSessionStop))
		}
		a, b := decode[protocol.SessionStart](t, starts[0].body), decode[protocol.SessionStart](t, starts[1].body)
		if string(a.CreateID) != string(b.CreateID) {
			t.Fatal("another create id is another session")
		}
	})
}
