package client

import (
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestWatchNeverGoesBack: a replica that has not applied yet what the watch has told of is not
// believed; a shard that has begun again is, after a while.
func TestWatchNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.set(func() { f.master = map[uint64]uint64{1: 1, 2: 1, 3: 1, 4: 1} })
		c := f.open(t)
		n, err := c.Node(bg, "/n")
		if err != nil {
			t.Fatal(err)
		}
		var indexes []uint64 // of the snapshots to come; the last one is that of all further ones
		opened := 0
		f.set(func() {
			indexes = []uint64{10}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindWatch {
					return false
				}
				m := decode[protocol.Watch](t, h.Body)
				fc.reply(h, &protocol.Empty{})
				opened++
				index := indexes[0]
				if len(indexes) > 1 {
					indexes = indexes[1:]
				}
				fc.send(protocol.KindSnapshot, h.ID, m.Shard, &protocol.Snapshot{
					First: true, Last: true, Index: index,
					Semaphores: []protocol.SnapshotItem{{Name: []byte("x"), Limit: 1, Version: index}},
				})
				return true
			}
		})
		cut := func() {
			for fc := range f.conns {
				for _, r := range f.log {
					if r.kind == protocol.KindWatch {
						fc.send(protocol.KindStreamCut, r.id, 1, &protocol.StreamCut{Status: protocol.StatusUnavailable})
					}
				}
			}
		}
		versions := []uint64{}
		next, stop := iter.Pull2(n.Watch(bg, "x"))
		defer stop()
		until := func() {
			for {
				ev, err, ok := next()
				if !ok || err != nil {
					t.Fatal(err)
				}
				if ev.Kind == EventChanged {
					versions = append(versions, ev.Version)
				}
				if ev.Kind == EventSynced {
					return
				}
			}
		}
		until()
		f.set(func() { indexes = []uint64{9, 8, 11}; cut() })
		until()
		if fmt.Sprint(versions) != "[10 11]" || opened != 4 {
			t.Fatalf("versions %v over %d streams", versions, opened)
		}
		f.set(func() { indexes = []uint64{2}; cut() })
		until()
		if fmt.Sprint(versions) != "[10 11 2]" || opened != 4+maxBehind+1 {
			t.Fatalf("versions %v over %d streams", versions, opened)
		}
	})
}
