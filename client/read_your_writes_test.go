package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// asked is how the last read of a name was asked for, and where.
func (f *fake) asked() (consistency Consistency, instance uint64) {
	list := f.all(protocol.KindDescribe)
	last := list[len(list)-1]
	return Consistency(decode[protocol.Describe](f.t, last.body).Consistency), last.instance
}

// TestReadsOwnWrites: after a change a RELAXED read is answered from memory only by the instance
// that answered the change. Another one, master or not, may not have applied it, and is asked
// STRICT.
func TestReadsOwnWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		c.replicaSeed = 0
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		relaxed := func(what string, want Consistency, at uint64) {
			t.Helper()
			if _, err := s.Describe(bg, name, ReadConsistency(Relaxed)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got, instance := f.asked(); got != want || at != 0 && instance != at {
				t.Errorf("%s: asked with consistency %d at %d, want %d at %d", what, got, instance, want, at)
			}
			if _, _, err := s.WatchOnce(bg, name, OnData, ReadConsistency(Relaxed)); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got, instance := f.asked(); instance == 2 && want == Strict && got != Strict {
				t.Errorf("%s: a watch asked with consistency %d at %d", what, got, instance)
			}
		}
		update := func() {
			t.Helper()
			if _, err := s.Update(bg, name, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		update()
		relaxed("where it was written", Relaxed, 1)
		f.elect(2, 5) // nobody is connected to it: the client hears nothing yet
		c.learnMaster(c.routes.Load().byShard[2], 2, 2, 5)
		relaxed("at a new leader", Strict, 2)
		update()
		relaxed("at a new leader, which was written to", Strict, 2)
		time.Sleep(protocol.DefaultGracePeriod*time.Millisecond + 2*writeTimeStep)
		update()
		relaxed("a grace period later", Relaxed, 2)
		time.Sleep(protocol.DefaultGracePeriod*time.Millisecond + 2*writeTimeStep)
		relaxed("another one later", Relaxed, 0)

		// The answer to a change that was sent by one map comes when there is a newer one.
		var answer func()
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindUpdate && answer == nil {
					answer = func() { fc.answer(h) }
					return true
				}
				return false
			}
		})
		done := make(chan error)
		go func() {
			_, err := s.Update(bg, name, []byte("y"))
			done <- err
		}()
		synctest.Wait()
		f.set(func() { f.version++ })
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		f.set(func() { answer() })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if w := c.routes.Load().forBucket(0, 1); !w.lastWrite.recent(c.clock.now(), time.Second) {
			t.Error("a change that was answered after the map had changed is forgotten")
		}
	})
}

// TestReadsOwnForcedRelease: a forced release is a change too: a RELAXED read after it goes to the
// instance that carried it out.
func TestReadsOwnForcedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, n := f.openNode(t)
		c.replicaSeed = 1 // of shard 2 it reads at instance 2
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindForceRelease {
					fc.reply(h, &protocol.ForceReleaseReply{Released: 1})
				}
				return h.Kind == protocol.KindForceRelease
			}
		})
		read := func(want uint64) {
			t.Helper()
			if _, err := n.Describe(bg, nameIn(1), ReadConsistency(Relaxed)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, at := f.asked(); at != want {
				t.Errorf("read at instance %d, not %d", at, want)
			}
		}
		read(1) // the connection to the other one is made meanwhile
		read(2)
		if _, err := n.ForceRelease(bg, nameIn(1), 1, 1, "test"); err != nil {
			t.Fatal(err)
		}
		read(1)
		time.Sleep(protocol.DefaultGracePeriod*time.Millisecond + 2*writeTimeStep)
		read(2)
	})
}
