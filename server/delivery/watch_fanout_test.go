package delivery

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestSplitFrame: frames have all changes, in order, and each has as many as fit.
func TestSplitFrame(t *testing.T) {
	t.Parallel()
	whole := func(n int) []int { return slices.Repeat([]int{maxDelta}, n) }
	for _, c := range []struct {
		name    string
		changes []int // their sizes
		want    []int // changes in each frame
	}{
		{"one", []int{1}, []int{1}},
		{"one above the bound", []int{maxDelta + 1}, []int{1}},
		{"each a frame", whole(3), []int{1, 1, 1}},
		{"just within the bound", []int{maxDelta - 1, 1}, []int{2}},
		{"just above the bound", []int{maxDelta - 1, 2}, []int{1, 1}},
		{"a large one between", []int{1, 2 * maxDelta, 1}, []int{1, 1, 1}},
		{"many", slices.Repeat([]int{437}, 600), []int{599, 1}},
		{"very many", slices.Repeat([]int{437}, 1800), []int{599, 599, 599, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var counts, all []int
			for rest := c.changes; len(rest) > 0; {
				var frame []int
				frame, rest = splitFrame(rest, func(size *int) int { return *size })
				counts, all = append(counts, len(frame)), append(all, frame...)
			}
			if !slices.Equal(counts, c.want) || !slices.Equal(all, c.changes) {
				t.Errorf("frames of %v changes, %d in all, want %v of %d", counts, len(all), c.want, len(c.changes))
			}
		})
	}
}

// newFanout is a hub with semaphores of these names, and with a client of each kind of stream: one
// gets the frames of its target, one the union of two targets, and one is between two pages.
func newFanout(t *testing.T, names ...string) *model {
	t.Helper()
	w := newModel(WatchOptions{Window: 10 * time.Millisecond})
	w.store[1] = make(map[string]semaphore)
	for _, name := range append(names, "later") {
		w.store[1][name] = semaphore{limit: 1, owners: make(map[uint64]string)}
	}
	for _, s := range []struct {
		conn, id uint64
		name     string
		prefix   bool
		room     int // of its page
	}{
		{1, 1, names[0], true, 100},
		{1, 2, "", true, 100},
		{2, 1, "", true, 100},
		{3, 1, "", true, len(names)},
	} {
		m := protocol.Watch{Shard: testShard, Node: 1, Name: []byte(s.name), Prefix: s.prefix}
		if err := w.hub.Open(s.conn, s.id, &m, noQuota); err != nil {
			t.Fatal(err)
		}
		w.conn(s.conn).views[s.id] = &streamView{node: 1, key: s.name, prefix: s.prefix}
		w.hub.Page(s.conn, w, s.room)
	}
	return w
}

// TestDeltaIsSplit: a delta that takes several frames loses nothing.
func TestDeltaIsSplit(t *testing.T) {
	t.Parallel()
	w := newFanout(t, "a")
	owner := func(i uint64) shard.SemaphoreChange {
		return shard.SemaphoreChange{Node: 1, Name: []byte("a"), SemaphoreChange: protocol.SemaphoreChange{
			Kind:  protocol.ChangeOwnerAdded,
			Owner: protocol.Owner{OrderID: i, Data: bytes.Repeat([]byte("x"), 350+int(i)%50)},
		}}
	}
	w.change(owner(0)) // at once: what follows is merged
	const owners = 1500
	for i := uint64(1); i < owners; i++ {
		w.change(owner(i))
	}
	w.readAll(t)
	if got, most := w.hub.Stats().Deltas, uint64(2+owners*(changeCost+400)/maxDelta); got < 3 || got > most {
		t.Errorf("%d frames, want 3 to %d", got, most)
	}
}

// TestRefusedSlice: whichever slice of a flush a connection refuses, its streams restart from a
// snapshot.
func TestRefusedSlice(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	for conn := uint64(1); conn <= 3; conn++ {
		for taken := range len(names) + 1 {
			t.Run(fmt.Sprintf("connection %d takes %d", conn, taken), func(t *testing.T) {
				w := newFanout(t, names...)
				c := w.conns[conn]
				c.soft = len(c.queue) + taken
				var changes []shard.SemaphoreChange
				for _, name := range names {
					changes = append(changes, shard.SemaphoreChange{Node: 1, Name: []byte(name),
						SemaphoreChange: protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: 2,
							Data: bytes.Repeat([]byte(name), blockSize)}}) // a slice each
				}
				w.change(changes...)
				c.soft = 0
				if got, want := w.hub.Stats().FellBehind, taken < len(names); got != 0 != want {
					t.Errorf("fell behind %d times, want %v", got, want)
				}
				w.readAll(t)
			})
		}
	}
}
