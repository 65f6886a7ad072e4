package client

import (
	"iter"
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

// TestReadsAfterWatches: a RELAXED read after a step of a watch is not older than that step. Where
// a change may have been missed, it is not older than the notice of that either.
func TestReadsAfterWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		c.replicaSeed = 0 // of shard 2 it reads at instance 1
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		var watch func(kind protocol.Kind, m protocol.Message) // sends an event of the stream
		var shot func(owners bool)                             // fires the one-shot watch
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				switch h.Kind {
				case protocol.KindWatch:
					fc.reply(h, &protocol.Empty{})
					watch = func(kind protocol.Kind, m protocol.Message) {
						id := h.ID
						if kind == protocol.KindDelta {
							id = 0
						}
						fc.send(kind, id, 2, m)
					}
					watch(protocol.KindSnapshot, &protocol.Snapshot{First: true, Last: true, Index: 10})
					return true
				case protocol.KindDescribe:
					if m := decode[protocol.Describe](t, h.Body); m.WatchID != 0 {
						shot = func(owners bool) {
							fc.send(protocol.KindWatchFired, 0, 2, &protocol.WatchFired{WatchID: m.WatchID, OwnersChanged: owners})
						}
					}
				}
				return false
			}
		})
		read := func() protocol.Describe {
			t.Helper()
			if _, err := s.Describe(bg, name, ReadConsistency(Relaxed)); err != nil {
				t.Fatal(err)
			}
			list := f.all(protocol.KindDescribe)
			return decode[protocol.Describe](t, list[len(list)-1].body)
		}

		next, stop := iter.Pull2(s.Watch(bg, name))
		defer stop()
		if ev, err, _ := next(); err != nil || ev.Kind != EventSynced {
			t.Fatal(ev, err)
		}
		if got := read().MinIndex; got != 10 {
			t.Errorf("after a snapshot read at 10 it asks for index %d", got)
		}
		f.set(func() {
			watch(protocol.KindDelta, &protocol.Delta{Node: 7, Name: []byte(name), Index: 11,
				Changes: []protocol.SemaphoreChange{{Kind: protocol.ChangeCreated, Limit: 1, Version: 1}}})
		})
		if ev, err, _ := next(); err != nil || ev.Kind != EventChanged {
			t.Fatal(ev, err)
		}
		if got := read().MinIndex; got != 11 {
			t.Errorf("after a change at 11 it asks for index %d", got)
		}

		for _, owners := range []bool{true, false} {
			_, fired, err := s.WatchOnce(bg, name, OnOwners)
			if err != nil {
				t.Fatal(err)
			}
			f.set(func() { shot(owners) })
			if got := <-fired; got.OwnersChanged != owners {
				t.Fatal(got)
			}
			want := protocol.Strict
			if owners {
				want = protocol.Relaxed // that instance has applied the change
			}
			if got := read().Consistency; got != want {
				t.Errorf("owners changed: %v; it asks with consistency %d, want %d", owners, got, want)
			}
			if w := c.routes.Load().byShard[2]; !w.lastWrite.recent(c.clock.now(), 0) {
				t.Errorf("owners changed: %v; any replica may be asked", owners)
			}
			time.Sleep(protocol.DefaultGracePeriod*time.Millisecond + 2*writeTimeStep)
		}
	})
}

// TestReadsAfterMovedWatch: the bucket of a one-shot watch has moved when a change may have been
// missed. A RELAXED read that follows is STRICT at the shard that owns the bucket by then.
func TestReadsAfterMovedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		s := f.sessionIn(t, c, 0)
		name := nameIn(1)
		_, fired, err := s.WatchOnce(bg, name, OnData)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.version, f.moved = 2, map[uint64]uint64{1: 3} })
		if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
			t.Fatal(err)
		}
		shot := decode[protocol.Describe](t, f.all(protocol.KindDescribe)[0].body).WatchID
		f.set(func() { f.attachedAt[s.id].send(protocol.KindWatchFired, 0, 2, &protocol.WatchFired{WatchID: shot}) })
		if got := <-fired; got != (WatchResult{}) {
			t.Fatal(got)
		}
		if _, err := s.Describe(bg, name, ReadConsistency(Relaxed)); err != nil {
			t.Fatal(err)
		}
		if got, _ := f.asked(); got != Strict {
			t.Errorf("read at the owner with consistency %d, want %d", got, Strict)
		}
	})
}

// TestFirstWriteIsRecent: a change counts from the first moment of the client's clock on.
func TestFirstWriteIsRecent(t *testing.T) {
	var w lastWrite
	w.record(1, 1)
	if !w.recent(2, 0) {
		t.Error("the first change is forgotten")
	}
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
