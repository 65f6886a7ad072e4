package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// WatcherGroup counts what the watchers of a process see, for the test that started the process.
type WatcherGroup struct {
	since atomic.Int64 // changes made before this time, in ns since 1970, do not count

	live, lost, snapshots, resumed, bytes, mostFrames, lastLive atomic.Int64
	at                                                          []atomic.Int64 // connected ones, by instance

	mu     sync.Mutex
	delays *hdrhistogram.Histogram // us
	failed string                  // the newest error
}

// NewWatcherGroup is one for watchers of so many servers.
func NewWatcherGroup(servers int) *WatcherGroup {
	return &WatcherGroup{at: make([]atomic.Int64, servers), delays: rawDelays()}
}

// rawStats is what the watchers of a process have seen: since the last such question, apart from
// Live, LastLive and At.
type rawStats struct {
	Live, Lost, Snapshots, Resumed, Bytes int64
	MostFrames                            int64   // deltas of one watcher in one second, at most
	LastLive                              int64   // when one became live last, ns since 1970
	At                                    []int64 // connected ones, by instance
	Delays                                *hdrhistogram.Snapshot
	Failed                                string
}

// rawDelays is a histogram of delays up to ten minutes, in us.
func rawDelays() *hdrhistogram.Histogram { return hdrhistogram.New(1, 600e6, 2) }

// Answer answers the test's questions until its input ends. Each line is a question, whose answer is
// a line: stats, or "reset", which forgets what was before.
func (g *WatcherGroup) Answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == "reset" {
			g.since.Store(time.Now().UnixNano())
			g.stats()
		}
		if err := json.NewEncoder(out).Encode(g.stats()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (g *WatcherGroup) stats() rawStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := rawStats{
		Live: g.live.Load(), LastLive: g.lastLive.Load(), Lost: g.lost.Swap(0), Snapshots: g.snapshots.Swap(0),
		Resumed: g.resumed.Swap(0), Bytes: g.bytes.Swap(0), MostFrames: g.mostFrames.Swap(0),
		Delays: g.delays.Export(), Failed: g.failed,
	}
	for i := range g.at {
		s.At = append(s.At, g.at[i].Load())
	}
	g.delays, g.failed = rawDelays(), ""
	return s
}

// Watcher is one watcher of a group. One goroutine at a time uses it.
type Watcher struct {
	*WatcherGroup
	following bool
	second    int64 // of the frames that are counted
	frames    int64
}

// Run watches the service until ctx ends, at one of so many servers. After the end of a connection
// it goes to another one, with the pauses of the SDK. watch reports whether it followed the service.
func (w *Watcher) Run(
	ctx context.Context, server, servers int, watch func(ctx context.Context, server int) (followed bool, err error),
) {
	server %= servers
	for failures := 0; ctx.Err() == nil; failures++ {
		followed, err := watch(ctx, server)
		if ctx.Err() != nil {
			return
		}
		w.Failed(err)
		if servers > 1 {
			server = (server + 1 + rand.IntN(servers-1)) % servers
		}
		if followed {
			failures = 0
		}
		_ = pause(ctx, time.Duration(rand.Int64N(int64(50*time.Millisecond<<min(failures, 5)))))
	}
}

// Connected notes a connection to a server; end notes its end, and reports whether the watcher followed
// the service on it.
func (w *Watcher) Connected(server int) (end func() (followed bool)) {
	w.at[server].Add(1)
	return func() bool {
		followed := w.following
		w.at[server].Add(-1)
		if w.following {
			w.following = false
			w.live.Add(-1)
			w.lost.Add(1)
		}
		return followed
	}
}

// Failed notes why there is no connection any more, or none yet.
func (w *Watcher) Failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = err.Error()
}

// Read notes bytes that have come.
func (w *Watcher) Read(bytes int) { w.bytes.Add(int64(bytes)) }

// Follows notes that the watcher has the whole list, and follows it from now on. With resumed it
// had one before, and got what it lacked.
func (w *Watcher) Follows(resumed bool) {
	w.snapshots.Add(1)
	if resumed {
		w.resumed.Add(1)
	}
	if w.following {
		return
	}
	w.following = true
	w.live.Add(1)
	raise(&w.lastLive, time.Now().UnixNano())
}

// Changed notes a frame with changes, by when they were made, in ns since 1970.
func (w *Watcher) Changed(made []int64) {
	now := time.Now()
	if s := now.Unix(); s != w.second {
		w.second, w.frames = s, 0
	}
	w.frames++
	raise(&w.mostFrames, w.frames)
	since := w.since.Load()
	for _, at := range made {
		if since > 0 && at >= since && w.following {
			w.mu.Lock()
			_ = w.delays.RecordValue(max(1, (now.UnixNano()-at)/1000))
			w.mu.Unlock()
		}
	}
}

// raise makes a value at least n.
func raise(v *atomic.Int64, n int64) {
	for {
		now := v.Load()
		if now >= n || v.CompareAndSwap(now, n) {
			return
		}
	}
}

// madeAtKey is before the time, in ns since 1970, at which a member's data was made.
const madeAtKey = `"at":"`

// MadeAt is when a member's data was made, in ns since 1970.
func MadeAt(data []byte) (int64, bool) {
	_, rest, ok := strings.Cut(string(data), madeAtKey)
	text, _, ended := strings.Cut(rest, `"`)
	at, err := strconv.ParseInt(text, 10, 64)
	return at, ok && ended && err == nil
}
