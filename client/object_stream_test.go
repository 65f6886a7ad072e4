package client

import (
	"iter"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/client/internal/rpc"
	"github.com/signalbox-dev/signalbox/protocol"
)

// indexedEvent is an event at a place in the log of a shard.
type indexedEvent struct{ shard, index uint64 }

// LogIndex implements rpc.Indexed.
func (e indexedEvent) LogIndex() (shard, index uint64) { return e.shard, e.index }

// TestObjectStreamNeverGoesBack: a stream is opened again at a replica that has not applied what it
// delivered, until one has, unless the shard has begun again. Another shard has a log of its own.
func TestObjectStreamNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.set(func() { f.master = map[uint64]uint64{1: 1, 2: 1, 3: 1, 4: 1} })
		c, n := f.openNode(t)
		var begin []indexedEvent // of the openings to come; the last one is that of all further ones
		opened := 0
		var id uint64 // of the last
		var on *fakeConn
		send := func(e indexedEvent) {
			on.send(protocol.KindProcessState, id, e.shard,
				&protocol.ProcessState{Status: protocol.ProcessStatus{Index: e.index}})
		}
		f.set(func() {
			begin = []indexedEvent{{1, 10}}
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindProcessWatch {
					return false
				}
				opened++
				on, id = fc, h.ID
				fc.reply(h, &protocol.Empty{})
				send(begin[0])
				if len(begin) > 1 {
					begin = begin[1:]
				}
				return true
			}
		})
		decoder := func() rpc.Decoder {
			return func(h protocol.Header) (any, rpc.Step, error) {
				var m protocol.ProcessState
				err := m.DecodeBody(h.Body)
				return indexedEvent{h.Arg, m.Status.Index}, rpc.Append, err
			}
		}
		o := newObject(nil, n, "process", protocol.ProcessBucket)
		req := &protocol.ProcessWatch{Node: n.id, Name: []byte("process")}
		next, stop := iter.Pull2(o.Events(bg, protocol.KindProcessWatch, req, decoder))
		defer stop()
		expect := func(e indexedEvent, openings int) {
			t.Helper()
			got, err, ok := next()
			if !ok || err != nil || got != e || opened != openings {
				t.Fatalf("%v, %v over %d openings, want %v over %d", got, err, opened, e, openings)
			}
			if read := c.readIndex(e.shard).Load(); read != e.index {
				t.Fatalf("after %v a list may be read at index %d", e, read)
			}
		}
		again := func(list ...indexedEvent) {
			f.set(func() {
				begin = slices.Clone(list)
				on.send(protocol.KindStreamCut, id, 1, &protocol.StreamCut{Status: protocol.StatusUnavailable})
			})
		}
		expect(indexedEvent{1, 10}, 1)
		f.set(func() { send(indexedEvent{1, 12}) })
		expect(indexedEvent{1, 12}, 1)
		again(indexedEvent{1, 9}, indexedEvent{1, 11}, indexedEvent{1, 12})
		expect(indexedEvent{1, 12}, 4)
		again(indexedEvent{2, 3}) // its bucket moved
		expect(indexedEvent{2, 3}, 5)
		again(indexedEvent{2, 2})
		got, err, _ := next()
		if err != nil || got != (indexedEvent{2, 2}) || opened < 5+maxBehind+1 {
			t.Fatalf("%v, %v over %d openings: a shard that began again", got, err, opened)
		}
	})
}
