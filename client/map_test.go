package client

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

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

// TestMapFromAnother: an instance that ends answers nothing any more. The map comes from another
// one then, long before the connection is given up.
func TestMapFromAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, c := connectedToTwo(t)
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
