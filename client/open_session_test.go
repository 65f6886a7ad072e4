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

// openSession is OpenSession at the fake's instances.
func (f *fake) openSession(ctx context.Context, path string, endpoints ...string) (*Session, error) {
	s, err := OpenSession(ctx, Config{Endpoints: endpoints, Dial: f.dial, clock: bubbleClock{}}, path)
	f.t.Cleanup(func() {
		if err == nil {
			s.Client().CloseWithoutRelease()
		}
		f.drop()
	})
	return s, err
}

// TestOpenSession: the start goes out with the hello, and the session is as any other.
func TestOpenSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		s, err := f.openSession(bg, "/n", "1")
		if err != nil {
			t.Fatal(err)
		}
		want := []protocol.Kind{protocol.KindHello, protocol.KindMap, protocol.KindSessionStart}
		if got := f.kinds(); !slices.Equal(got, want) {
			t.Errorf("requests are %v, want %v", got, want)
		}
		if r := f.all(protocol.KindSessionStart)[0]; r.arg != protocol.HomeOfCreateID || f.starts()[0].Path != "/n" {
			t.Errorf("start is %+v", r)
		}
		if n := s.Node(); n.ID() != 7 || n.Path() != "/n" || !n.relaxed || n.grace != 10*time.Second || s.epoch != 1 {
			t.Errorf("session has node %+v and epoch %d", n, s.epoch)
		}
		if l, err := s.Acquire(bg, "x"); err != nil {
			t.Error(err)
		} else if err := l.Release(bg); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // longer than the timeout
		if !s.Held() || s.State() != Attached {
			t.Errorf("a minute later the session is %v", s.State())
		}
		if other, err := s.Client().Session(bg, "/n"); err != nil || other.ID() == s.ID() {
			t.Errorf("another session of the client: %v", err)
		}
		if err := s.Client().Close(); err != nil || !errors.Is(s.Err(), ErrSessionClosed) || f.count(protocol.KindSessionStop) != 2 {
			t.Errorf("close: %v; the session ended with %v", err, s.Err())
		}
	})
}

// TestOpenSessionElsewhere: where the hello's start is refused, the session starts as any other.
func TestOpenSessionElsewhere(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(f *fake)
	}{
		{"another instance has the home", func(f *fake) { f.master = map[uint64]uint64{1: 2, 2: 2, 3: 2, 4: 2} }},
		{"an old server", func(f *fake) { f.features = 0 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startFake(t)
				x.change(f)
				s, err := f.openSession(bg, "/n", "1")
				if err != nil {
					t.Fatal(err)
				}
				// If the map says so first, no refusal is waited for: then it is the same start.
				m := f.starts()
				same := len(m) == 2 && slices.Equal(m[0].CreateID, m[1].CreateID)
				if len(m) != 2 || f.sessions != 1 || same != (s.epoch == 2) || same && f.features == 0 {
					t.Errorf("starts are %+v, the attach epoch is %d", m, s.epoch)
				}
			})
		})
	}
}

// TestOpenSessionUnanswered: a start whose answer is lost with the connection is the same start
// when it is sent again.
func TestOpenSessionUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		f.loseStart()
		s, err := f.openSession(bg, "/n", "1")
		if err != nil {
			t.Fatal(err)
		}
		if m := f.starts(); len(m) != 2 || m[1].Node != 7 || !slices.Equal(m[0].CreateID, m[1].CreateID) || s.epoch != 2 {
			t.Errorf("starts are %+v, the attach epoch is %d", m, s.epoch)
		}
	})
}

// TestOpenSessionFailsOver: a start that an instance does not answer, since it leads the home no
// more, is the same start at the one that does, whether the map says so or an announcement.
func TestOpenSessionFailsOver(t *testing.T) {
	for _, announced := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := startFake(t)
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if !announced && h.Kind == protocol.KindMap {
					f.master = map[uint64]uint64{1: 2, 2: 2, 3: 2, 4: 2}
				}
				return fc.instance == 1 && h.Kind == protocol.KindSessionStart
			}
			if announced {
				time.AfterFunc(time.Second, func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					for shard := range f.master {
						f.master[shard] = 2
						for fc := range f.conns {
							fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: 1, Shard: shard, Master: 2, Term: 3})
						}
					}
				})
			}
			ctx, cancel := context.WithTimeout(bg, 8*time.Second)
			defer cancel()
			s, err := f.openSession(ctx, "/n", "1", "2")
			if err != nil {
				t.Fatal(err)
			}
			m := f.starts()
			if len(m) != 2 || !slices.Equal(m[0].CreateID, m[1].CreateID) || s.attachment.cn.instance != 2 || s.epoch != 2 {
				t.Errorf("starts are %+v, the attach epoch is %d", m, s.epoch)
			}
		})
	}
}

// TestOpenSessionHangs: a server that says nothing any more after its hello is given up as soon as
// with any other request, and the start is the same one when it is sent again.
func TestOpenSessionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		var hung *fakeConn
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			if hung == nil {
				hung = fc
			}
			return fc == hung && h.Kind != protocol.KindHello && h.Kind != protocol.KindMap
		}
		began := time.Now()
		s, err := f.openSession(bg, "/n", "1")
		if err != nil {
			t.Fatal(err)
		}
		if m := f.starts(); len(m) != 2 || !slices.Equal(m[0].CreateID, m[1].CreateID) || s.epoch != 2 {
			t.Errorf("starts are %+v, the attach epoch is %d", m, s.epoch)
		}
		if took := time.Since(began); took > minSilence+hungTimeout+time.Second {
			t.Errorf("the session started after %s", took)
		}
	})
}

// TestOpenSessionNextEndpoint: an endpoint that breaks off before it answers is left for the next
// one, which gets a start of its own.
func TestOpenSessionNextEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			if fc.instance == 2 && h.Kind == protocol.KindSessionStart {
				_ = fc.nc.Close()
			}
			return fc.instance == 2
		}
		s, err := f.openSession(bg, "/n", "2", "1")
		if err != nil {
			t.Fatal(err)
		}
		if m := f.starts(); len(m) != 2 || slices.Equal(m[0].CreateID, m[1].CreateID) || s.attachment.cn.instance != 1 {
			t.Errorf("starts are %+v", m)
		}
	})
}

// TestOpenSessionFails: the errors are those of Open and Session, and nothing is left running.
func TestOpenSessionFails(t *testing.T) {
	refuse := func(kind protocol.Kind, status protocol.Status) func(*fake) {
		return func(f *fake) {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == kind {
					fc.fail(h, status)
				}
				return h.Kind == kind
			}
		}
	}
	for _, x := range []struct {
		name   string
		path   string
		change func(f *fake)
		want   error
	}{
		{"credentials", "/n", refuse(protocol.KindHello, protocol.StatusUnauthenticated), protocol.StatusUnauthenticated},
		{"no such node", "/n", func(f *fake) {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionStart || h.Kind == protocol.KindNodeDescribe {
					fc.fail(h, protocol.StatusNotFound)
					return true
				}
				return false
			}
		}, protocol.StatusNotFound},
		{"no answer to the start", "/n", func(f *fake) {
			f.on = func(_ *fakeConn, h protocol.Header) bool {
				return h.Kind != protocol.KindHello && h.Kind != protocol.KindMap
			}
		}, context.DeadlineExceeded},
		{"no answer at all", "/n", func(f *fake) { f.on = func(*fakeConn, protocol.Header) bool { return true } },
			context.DeadlineExceeded},
		{"nobody listens", "/n", func(f *fake) { f.refuse = true }, ErrUnreachable},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // it fails if a goroutine is left
				f := startFake(t)
				x.change(f)
				ctx, cancel := context.WithTimeout(bg, 3*time.Second)
				defer cancel()
				if s, err := f.openSession(ctx, x.path, "1"); s != nil || !errors.Is(err, x.want) {
					t.Errorf("got %v, %v, want %v", s, err, x.want)
				}
				if n := len(f.starts()); n > 1 {
					t.Errorf("%d starts were sent: what was refused once would be again", n)
				}
			})
		})
	}
	for _, cfg := range []Config{{}, {Endpoints: []string{"1"}}} {
		if _, err := OpenSession(bg, cfg, "/n", Timeout(time.Millisecond)); !errors.Is(err, protocol.StatusBadRequest) {
			t.Errorf("a timeout of 1 ms: %v", err)
		}
	}
	if _, err := OpenSession(bg, Config{}, "/n"); err == nil {
		t.Error("no endpoint, no error")
	}
}

// TestOpenSessionNeedsTheNode: a start that needs the node's settings, and one on what is no path,
// does not go with the hello.
func TestOpenSessionNeedsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startFake(t)
		s, err := OpenSession(bg, Config{Endpoints: []string{"1"}, Dial: f.dial, clock: bubbleClock{}}, "/n", Timeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Client().CloseWithoutRelease()
		if m := f.starts(); len(m) != 1 || m[0].Node != 7 || s.Timeout() != time.Second {
			t.Errorf("starts are %+v", m)
		}
	})
}
