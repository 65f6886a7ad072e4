package client

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/dial"
	"github.com/signalbox-dev/signalbox/protocol"
)

// connectedToTwo is a client with a connection to each of two instances.
func connectedToTwo(t *testing.T) (*fake, *Client) {
	t.Helper()
	f := newFake(t)
	f.master[2] = 2
	c := f.open(t)
	for b := range uint32(2) {
		if _, err := f.sessionIn(t, c, b).Update(bg, nameIn(b), nil); err != nil {
			t.Fatal(err)
		}
	}
	return f, c
}

// announceMap has an instance tell of a map. It is called under set.
func (f *fake) announceMap(instance, version uint64) {
	for fc := range f.conns {
		if fc.instance == instance {
			fc.send(protocol.KindMapChanged, 0, 0, &protocol.MapChanged{Version: version})
		}
	}
}

// TestMapFromAnnouncer: the map is fetched from the instance that told of it. Another one, that was
// heard of later, may not have it, and never get it.
func TestMapFromAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
		synctest.Wait()
		cn, _, err := c.connToBucket(bg, 0, 1)
		if err != nil || cn.instance != 2 {
			t.Fatal(cn, err)
		}
		defer c.needMap()()
		cn.lastHeard.Store(math.MaxInt64) // it is the one to ask if nobody told of anything
		f.set(func() {
			f.version = 2
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindMap || fc.instance == 1 {
					return false
				}
				old := f.mapReply()
				old.Version = 1
				fc.reply(h, old)
				return true
			}
			f.announceMap(1, 2)
		})
		synctest.Wait()
		if v := c.routes.Load().version; v != 2 {
			t.Errorf("the map is of version %d", v)
		}
	})
}

// TestMapsWithoutNeed: a planned change makes many maps, of which each client is told at the same
// moment. A client that needs none fetches the last of them, some time later. One that waits for
// something, watches, or finds a bucket elsewhere, fetches the next one at once.
func TestMapsWithoutNeed(t *testing.T) {
	for _, x := range []struct {
		need string
		do   func(t *testing.T, f *fake, s *Session) // what the client does meanwhile
	}{
		{"a call waits", func(t *testing.T, f *fake, s *Session) {
			go func() { _, _ = s.Acquire(bg, nameIn(0)) }()
			synctest.Wait()
		}},
		{"a watch", func(t *testing.T, f *fake, s *Session) {
			ctx, cancel := context.WithCancel(bg)
			t.Cleanup(cancel)
			go func() {
				for range s.Node().Watch(ctx, nameIn(0)) {
				}
			}()
			synctest.Wait()
		}},
		{"", nil},
	} {
		t.Run(x.need, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind == protocol.KindAcquire {
						fc.reply(h, &protocol.AcquireReply{State: protocol.Accepted, OrderID: 1})
					}
					return h.Kind == protocol.KindAcquire
				}
				f.master[2] = 2
				c := f.open(t)
				s := f.sessionIn(t, c, 0)
				if x.do != nil {
					x.do(t, f, s)
				}
				before := f.count(protocol.KindMap)
				version := func(v uint64) {
					f.set(func() {
						f.version = v
						f.announceMap(1, v)
					})
					synctest.Wait()
				}
				for v := range uint64(10) {
					version(v + 2)
				}
				if got := f.count(protocol.KindMap) - before; x.need != "" {
					if got != 10 {
						t.Errorf("%d of 10 maps were fetched", got)
					}
					return
				} else if got != 0 {
					t.Errorf("%d maps were fetched without need", got)
				}
				began := time.Now()
				<-c.mapChanged()
				if got := f.count(protocol.KindMap) - before; got != 1 || c.routes.Load().version != 11 ||
					time.Since(began) > s.Timeout() {
					t.Errorf("after %s, %d fetches: version %d", time.Since(began), got, c.routes.Load().version)
				}
				version(12)
				done := c.needMap()
				synctest.Wait()
				if v := c.routes.Load().version; v != 12 {
					t.Errorf("a call needs the map, and has version %d", v)
				}
				done()
				version(13)
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				s.Node().WatchFunc(ctx, nameIn(0), func(Event, error) {})
				synctest.Wait()
				if v := c.routes.Load().version; v != 13 {
					t.Errorf("a watch begins, and the map has version %d", v)
				}
				cancel()
				synctest.Wait()
				f.set(func() {
					for fc := range f.conns {
						if fc.instance == 2 {
							_ = fc.nc.Close()
						}
					}
				})
				version(14)
				_, _, _ = c.connToBucket(bg, 0, 1) // the map may come before the connection, and end the wait
				synctest.Wait()
				if v := c.routes.Load().version; v != 14 {
					t.Errorf("a call waits for a connection, and the map has version %d", v)
				}
			})
		})
	}
}

// TestMapFromAnother: an instance that ends answers nothing any more. The map comes from another
// one then, long before the connection is given up.
func TestMapFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
		defer c.needMap()()
		began := time.Now()
		f.set(func() {
			f.version = 2
			f.on = func(fc *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindMap && fc.instance == 1 }
			f.announceMap(1, 2)
		})
		<-c.mapChanged()
		if v := c.routes.Load().version; v != 2 {
			t.Errorf("the map is of version %d", v)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it came after %s", took)
		}
	})
}

// TestOldMapDoesNotCount: the instance that told of a map is slow, and another one, which is asked
// too then, has only the old map. The newer one counts.
func TestOldMapDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
		defer c.needMap()()
		f.set(func() {
			old := f.mapReply()
			f.version = 2
			now := f.mapReply()
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch {
				case h.Kind != protocol.KindMap:
					return false
				case fc.instance == 2:
					fc.reply(h, old)
				default:
					time.AfterFunc(300*time.Millisecond, func() { fc.reply(h, now) })
				}
				return true
			}
			f.announceMap(1, 2)
		})
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if v := c.routes.Load().version; v != 2 {
			t.Errorf("the map is of version %d", v)
		}
	})
}

// TestAnnouncementBesideFirstMap: a map is announced before there is any, and the goroutine that
// would fetch it is held up until the first map has come. It fetches the announced one then: the
// first map leaves that to it.
func TestAnnouncementBesideFirstMap(t *testing.T) {
	f := newFake(t)
	first, err := newRouteTable(f.mapReply())
	if err != nil {
		t.Fatal(err)
	}
	f.version = 2
	c := newClient(Config{Endpoints: []string{"1"}, Dial: f.dial, Logger: discard(), clock: bubbleClock{}})
	t.Cleanup(func() {
		c.CloseWithoutRelease()
		f.drop()
	})
	cn, err := c.connect(bg, dial.Target{Address: "1", Dial: "1"}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.adopt(cn, "1")
	cl := c.cluster
	defer cl.needMap()()

	cl.closeMu.Lock() // no goroutine starts
	announced := make(chan struct{})
	go func() {
		c.fetchAnnouncedMap(2, cn)
		close(announced)
	}()
	for noted := false; !noted; runtime.Gosched() {
		cl.mu.Lock()
		noted = cl.fetchingAnnounced
		cl.mu.Unlock()
	}
	cl.mu.Lock()
	cl.closeMu.Unlock()
	<-announced
	awaitLocked(t, "fetchAnnouncedMap")
	cl.routes.Store(first)
	newer := cl.newMap
	cl.mu.Unlock()
	select {
	case <-newer:
	case <-time.After(10 * time.Second):
	}
	if v := cl.routes.Load().version; v != 2 {
		t.Errorf("the client has map %d, want 2", v)
	}
}

// awaitLocked waits until a goroutine of a function waits for a mutex.
func awaitLocked(t *testing.T, function string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	for began := time.Now(); time.Since(began) < 10*time.Second; runtime.Gosched() {
		for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if state, _, _ := strings.Cut(g, "\n"); strings.Contains(state, "sync.Mutex.Lock") && strings.Contains(g, function) {
				return
			}
		}
	}
	t.Fatalf("no goroutine of %s waits for a mutex", function)
}

// TestLateMapOfHello: a map that does not come with the answer to the hello is asked for again, and
// whichever answer comes counts.
func TestLateMapOfHello(t *testing.T) {
	for name, answered := range map[string]int{"the first": 0, "the second": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				var asked []protocol.Header
				f.on = func(fc *fakeConn, h protocol.Header) bool {
					if h.Kind != protocol.KindMap {
						return false
					}
					if asked = append(asked, h); len(asked) == 2 {
						fc.answer(asked[answered])
					}
					return true
				}
				ctx, cancel := brief()
				defer cancel()
				defer f.drop()
				c, err := Open(ctx, Config{Endpoints: []string{"1"}, Dial: f.dial, clock: bubbleClock{}})
				if err != nil {
					t.Fatal(err)
				}
				defer c.CloseWithoutRelease()
				if v := c.routes.Load().version; v != 1 {
					t.Errorf("the client has map %d", v)
				}
			})
		})
	}
}
