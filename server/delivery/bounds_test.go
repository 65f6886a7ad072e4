package delivery

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard"
)

// countingSender counts what it is sent.
type countingSender struct {
	frames, bytes, pages atomic.Int64
}

func (s *countingSender) Send(conn uint64, frames []byte, droppable bool) bool {
	s.frames.Add(1)
	s.bytes.Add(int64(len(frames)))
	return true
}

func (s *countingSender) SendPage(conn uint64, head, shared []byte) {
	s.Send(conn, append(head, shared...), false)
}

func (s *countingSender) PagesDue(shard, conn uint64) { s.pages.Add(1) }

// emptyPages is a shard without semaphores.
type emptyPages struct{}

func (emptyPages) StreamSnapshot(_ uint64, _ []byte, _ bool, _ []byte, _ int, out *protocol.Snapshot) ([]byte, error) {
	return nil, nil
}

func (emptyPages) StreamPosition(uint64, []byte) (index, epoch uint64, err error) { return 0, 0, nil }

func ownerChange(name string) []shard.SemaphoreChange {
	return []shard.SemaphoreChange{{Node: 1, Name: []byte(name), SemaphoreChange: protocol.SemaphoreChange{
		Kind:  protocol.ChangeOwnerChanged,
		Owner: protocol.Owner{OrderID: 7, Session: 1 << 36, Count: 1, Data: []byte("10.0.0.1:8080"), Description: "api@host1"},
	}}}
}

// watchers opens a live stream, with this watch id, on each of the first n connections.
func watchers(tb testing.TB, h *WatchHub, n int, id uint64, w protocol.Watch) {
	for conn := range uint64(n) {
		if err := h.Open(conn+1, id, &w, noQuota); err != nil {
			tb.Fatal(err)
		}
		if h.Page(conn+1, emptyPages{}, 1) {
			tb.Fatal("a second page of nothing")
		}
	}
}

// TestCosts: nobody watching costs nothing, whether the hub is empty or watches something else; a
// watched change costs the same few allocations for ten watchers and for a thousand.
func TestCosts(t *testing.T) {
	batch := ownerChange("svc/api")
	h := NewWatchHub(1, new(countingSender), WatchOptions{Window: -1})
	unwatched := func() { h.Changed(1, batch) }
	if n := testing.AllocsPerRun(100, unwatched); n != 0 && !form.Race {
		t.Errorf("an empty hub allocates %v times per change", n)
	}
	watchers(t, h, 1, 1, protocol.Watch{Shard: 1, Node: 1, Name: []byte("svc/apis")})
	watchers(t, h, 1, 2, protocol.Watch{Shard: 1, Node: 2, Prefix: true})
	for i := range 100 { // neighbours in the trie
		if err := h.Open(1, uint64(10+i),
			&protocol.Watch{Shard: 1, Node: 1, Name: fmt.Appendf(nil, "svc/api/%d", i), Prefix: true},
			noQuota); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, unwatched); n != 0 && !form.Race {
		t.Errorf("a change that nobody watches allocates %v times", n)
	}
	for _, n := range []int{10, 1000} {
		out := new(countingSender)
		h := NewWatchHub(1, out, WatchOptions{Window: -1})
		watchers(t, h, n, 3, protocol.Watch{Shard: 1, Node: 1, Name: []byte("svc/"), Prefix: true})
		out.frames.Store(0)
		got := testing.AllocsPerRun(100, func() { h.Changed(1, batch) })
		if got > 3 && !form.Race {
			t.Errorf("a change with %d watchers allocates %v times", n, got)
		}
		if sent := out.frames.Load(); sent != int64(101*n) {
			t.Errorf("%d frames for %d watchers", sent, n)
		}
	}
}

// many is how many watchers are paced.
const many = 5001

// TestManyWatchersArePaced: a service of which members restart all the time, each leaving and joining
// again, sends thousands of watchers at most seven frames in any second, and the last change within
// the longest window.
func TestManyWatchersArePaced(t *testing.T) {
	var now time.Duration
	out := new(countingSender)
	h := NewWatchHub(1, out, WatchOptions{Now: func() time.Duration { return now }, Wake: func(time.Duration) {}})
	watchers(t, h, many, 1, protocol.Watch{Shard: 1, Node: 1, Name: []byte("a")})
	out.frames.Store(0)
	var flushes []time.Duration
	for index := uint64(1); now < 20*time.Second; now += time.Millisecond {
		h.Flush(now)
		if ms := now.Milliseconds() % 118; ms == 0 || ms == 3 {
			h.Changed(index, ownerChange("a"))
			index++
		}
		if out.frames.Swap(0) > 0 {
			flushes = append(flushes, now)
		}
	}
	for i := range flushes {
		if i > 0 && flushes[i]-flushes[i-1] > 160*time.Millisecond {
			t.Errorf("changes wait from %v to %v", flushes[i-1], flushes[i])
		}
		if i > 7 && flushes[i]-flushes[i-7] < time.Second {
			t.Errorf("eight frames from %v to %v", flushes[i-7], flushes[i])
		}
	}
	if len(flushes) < 120 {
		t.Errorf("%d frames in 20 s", len(flushes))
	}
}

// TestFanOutIsAwaited: while a delta is still being written to thousands of connections, their next one
// waits, merges, and goes out when that is done. Few watchers of another name do not wait for it.
func TestFanOutIsAwaited(t *testing.T) {
	var now time.Duration
	out := new(countingSender)
	clock := func() time.Duration { return now }
	pace := fanout.New(clock)
	writer := pace.Writer()
	h := NewWatchHub(1, out, WatchOptions{Now: clock, Pace: pace})
	watchers(t, h, many, 1, protocol.Watch{Shard: 1, Node: 1, Name: []byte("a")})
	watchers(t, h, 1, 2, protocol.Watch{Shard: 1, Node: 1, Name: []byte("b")})
	step := func(want int64, names ...string) {
		t.Helper()
		out.frames.Store(0)
		for _, name := range names {
			h.Changed(uint64(now), ownerChange(name))
		}
		h.Flush(now)
		if n := out.frames.Load(); n != want {
			t.Errorf("at %v %d frames were sent, want %d", now, n, want)
		}
		now += 200 * time.Millisecond
	}
	now = 200 * time.Millisecond
	step(many, "a")
	writer.Begin()
	step(1, "a", "b")
	step(1, "a", "b")
	step(0)
	writer.End()
	step(many)
	step(many, "a")
}

// TestWindowCountsConnections: what lengthens a window is how many connections a flush wrote to,
// not how many streams they have.
func TestWindowCountsConnections(t *testing.T) {
	h := NewWatchHub(1, new(countingSender), WatchOptions{Window: -1})
	for id := range uint64(10) {
		watchers(t, h, 3, 1+id, protocol.Watch{Shard: 1, Node: 1, Name: []byte("a")})
	}
	exact := &h.nodes[1].names["a"].exact
	h.Changed(1, ownerChange("a"))
	if exact.connCount != 3 {
		t.Errorf("%d streams on three connections reach %d connections", len(exact.streams), exact.connCount)
	}
}

// TestFlusher: a window ends by itself, on one goroutine that sleeps otherwise.
func TestFlusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() time.Duration { return time.Since(start) }
		out := new(countingSender)
		var rounds atomic.Int64
		p := NewFlusher(now, func() { rounds.Add(1) })
		defer p.Close()
		hubs := make([]*WatchHub, 3)
		for i := range hubs {
			hubs[i] = NewWatchHub(1, out, WatchOptions{Now: now, Wake: p.Wake})
			p.Add(hubs[i])
			watchers(t, hubs[i], 1, 1, protocol.Watch{Shard: 1, Node: 1, Name: []byte("a")})
		}
		out.frames.Store(0)
		synctest.Wait()
		rounds.Store(0)
		for _, h := range hubs {
			h.Changed(1, ownerChange("a")) // at once
			h.Changed(2, ownerChange("a")) // gathered
		}
		synctest.Wait()
		if n := out.frames.Load(); n != 3 {
			t.Fatalf("%d frames before the window ended", n)
		}
		time.Sleep(2500*time.Microsecond - 1)
		synctest.Wait()
		if n := out.frames.Load(); n != 3 {
			t.Fatalf("%d frames just before the window ended", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n, r := out.frames.Load(), rounds.Load(); n != 6 || r != 1 {
			t.Fatalf("%d frames in %d rounds, want 6 in 1: windows end together", n, r)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if r := rounds.Load(); r != 1 {
			t.Fatalf("%d rounds while nothing happened", r)
		}
	})
}

// TestRaces has every method called at once, as a server does, for the race detector.
func TestRaces(t *testing.T) {
	out := new(countingSender)
	start := time.Now()
	now := func() time.Duration { return time.Since(start) }
	p := NewFlusher(now, nil)
	defer p.Close()
	h := NewWatchHub(1, out, WatchOptions{Now: now, Wake: p.Wake, Window: time.Millisecond})
	p.Add(h)
	var machine sync.Mutex // stands for the shard's
	var wg sync.WaitGroup
	for conn := uint64(1); conn <= 4; conn++ {
		wg.Go(func() {
			for i := range uint64(200) {
				w := protocol.Watch{Shard: 1, Node: i % 2, Name: []byte("a"), Prefix: i%3 == 0}
				if err := h.Open(conn, i, &w, noQuota); err != nil {
					t.Error(err)
				}
				machine.Lock()
				h.Page(conn, emptyPages{}, 1)
				if err := h.OneShot(conn, i%5, i%2, []byte("ab"), protocol.WatchData, i, noQuota); err != nil {
					t.Error(err)
				}
				machine.Unlock()
				switch i % 10 {
				case 3:
					h.Close(conn, i)
				case 7:
					h.SessionEnded(i % 5)
				case 8:
					h.connClosed(conn)
				}
			}
			h.connClosed(conn)
		})
	}
	for i := range uint64(400) {
		machine.Lock()
		h.Changed(i, ownerChange("ab"))
		if i%50 == 0 {
			h.nodeDropped(1)
			h.InvalidateOneShots()
			h.snapshotInstalled()
		}
		machine.Unlock()
	}
	wg.Wait()
	if s := h.Stats(); s.Streams != 0 || s.OneShots != 0 {
		t.Fatalf("left over: %+v", s)
	}
	if q := h.opt.Quota.open; len(q) != 0 {
		t.Fatalf("%d nodes still have watchers", len(q))
	}
}

// Benchmarks of one change: to nobody, and to many watchers on connections of their own.
func BenchmarkChanged(b *testing.B) {
	for _, n := range []int{0, 1, 5_000, 20_000} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			h := NewWatchHub(1, new(countingSender), WatchOptions{Window: -1})
			watchers(b, h, 1, 1, protocol.Watch{Shard: 1, Node: 1, Name: []byte("other")})
			watchers(b, h, n, 3, protocol.Watch{Shard: 1, Node: 1, Name: []byte("svc/"), Prefix: true})
			batch := ownerChange("svc/api")
			b.ReportAllocs()
			for b.Loop() {
				h.Changed(1, batch)
			}
		})
	}
	for _, n := range []int{5_000, 20_000} {
		b.Run(fmt.Sprintf("oneshots=%d", n), func(b *testing.B) {
			h := NewWatchHub(1, new(countingSender), WatchOptions{})
			batch := ownerChange("svc/api")
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				for conn := range uint64(n) {
					if err := h.OneShot(conn, conn+1, 1, batch[0].Name, protocol.WatchOwners, 1, noQuota); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				h.Changed(1, batch)
			}
		})
	}
}
