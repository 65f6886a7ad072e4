package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// WatcherGroup counts what the watchers of a process see, for the test that started the process.
type WatcherGroup struct {
	mu     sync.Mutex
	since  int64 // changes made before it do not count: ns since 1970
	stats  WatcherStats
	delays *hdrhistogram.Histogram // us
}

// WatcherStats is what the watchers of a process have seen.
type WatcherStats struct {
	Begun   int                    // watchers that have, or once had, the whole list
	Current int                    // watchers that have seen a change made since the last reset
	Last    int64                  // when one of these two numbers grew last: ns since 1970
	Delays  *hdrhistogram.Snapshot // of changes made since the last reset, us
	Failed  string                 // newest error
}

// newDelays returns a histogram of delays up to ten minutes, in us.
func newDelays() *hdrhistogram.Histogram { return hdrhistogram.New(1, 600e6, 2) }

// RunWatchers runs count watchers until in ends, and answers each line of it with WatcherStats as a
// line of JSON; the line "reset" first forgets the changes seen so far. watch follows the service
// until ctx ends; after an error it is called again.
func RunWatchers(
	ctx context.Context, count int, in io.Reader, out io.Writer, watch func(ctx context.Context, w *Watcher) error,
) error {
	g := &WatcherGroup{delays: newDelays()}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range count {
		all.Go(func() {
			w := &Watcher{group: g}
			for ctx.Err() == nil {
				if err := watch(ctx, w); err != nil && ctx.Err() == nil {
					g.failed(err)
					_ = pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := json.NewEncoder(out).Encode(g.answer(lines.Text() == "reset")); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (g *WatcherGroup) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Failed = err.Error()
}

func (g *WatcherGroup) answer(reset bool) WatcherStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	if reset {
		g.since, g.stats.Current, g.delays = time.Now().UnixNano(), 0, newDelays()
	}
	s := g.stats
	s.Delays = g.delays.Export()
	return s
}

// Watcher is one watcher of a group. One goroutine at a time uses it.
type Watcher struct {
	group *WatcherGroup
	begun bool
	since int64 // the group's, when this watcher last counted as current
}

// Begun notes that the watcher has the whole list.
func (w *Watcher) Begun() {
	g := w.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.begun {
		w.begun = true
		g.stats.Begun++
		g.stats.Last = time.Now().UnixNano()
	}
}

// Changed notes a member that was added or changed, by its data.
func (w *Watcher) Changed(data []byte) {
	made, ok := madeAt(data)
	g := w.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !ok || g.since == 0 || made < g.since {
		return
	}
	now := time.Now().UnixNano()
	_ = g.delays.RecordValue(max(1, (now-made)/1000))
	if w.since != g.since {
		w.since = g.since
		g.stats.Current++
		g.stats.Last = now
	}
}

// madeAtKey stands before the time, in ns since 1970, at which a member's data was made.
const madeAtKey = `"at":"`

// madeAt returns when a member's data was made, in ns since 1970.
func madeAt(data []byte) (int64, bool) {
	_, rest, ok := strings.Cut(string(data), madeAtKey)
	text, _, ended := strings.Cut(rest, `"`)
	at, err := strconv.ParseInt(text, 10, 64)
	return at, ok && ended && err == nil
}
