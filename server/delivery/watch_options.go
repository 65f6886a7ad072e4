package delivery

import (
	"cmp"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
)

// SnapshotReader is the source of Page: the semaphores of the shard's machine.
type SnapshotReader interface {
	StreamSnapshot(node uint64, name []byte, prefix bool, cursor []byte, maxBytes int,
		out *protocol.Snapshot) (next []byte, err error)

	// StreamPosition returns the index of the state, and the epoch of the name's bucket.
	StreamPosition(node uint64, name []byte) (index, epoch uint64, err error)
}

// WatchOptions configures a hub. The zero value works.
type WatchOptions struct {
	// Window is how long changes of a watched semaphore are merged before they are sent together.
	// The first change after a quiet time goes out at once. Default 2.5 ms. Negative sends
	// everything at once, which costs a write per change and watcher.
	Window time.Duration

	// Pace lengthens the window of a name or prefix with subscribers on many connections, and has a
	// delta for more than 5,000 wait until the last one is written. Default: one of the hub's own.
	Pace *fanout.Pace

	// Now is monotonic time. Windows end at multiples of their length on this clock, so that hubs
	// that share it write to a connection together. Default: time since the hub was created.
	Now func() time.Duration

	// Wake is called when Flush will have something to do at due; Flusher.Wake fits. It is called
	// with the hub's lock held and must not block. If nil, the caller polls NextFlush.
	Wake func(due time.Duration)

	Limits WatchLimits

	// Quota counts the watchers of coordination nodes, for all that share it. Default: one of the
	// hub's own.
	Quota *WatcherQuota

	// Histories bounds the kept changes of all hubs that share it. Default: 64 MiB for this hub
	// alone.
	Histories *HistoryBudget
}

// WatchLimits bounds a hub; 0 is the default. A request over a limit is rejected with
// StatusOverloaded, which names the limit.
type WatchLimits struct {
	Streams  int // streams per connection and shard; default 1,024
	Watchers int // watchers, one-shot and stream together, per semaphore, and streams per prefix; default 100,000
	OneShots int // armed one-shot watches per connection and shard; default 65,536
	Pending  int // bytes of merged changes; above it they are sent before their window ends; default 4 MiB

	// CachedPage is the bytes of a page from which it is kept for other streams; default 2 KiB. A
	// smaller one is as quickly made as found.
	CachedPage int
}

// WatchStats are counts since the hub was created, and its present sizes.
type WatchStats struct {
	Streams, OneShots int    // now
	Pending           int    // semaphores with a pending delta, now
	Deltas            uint64 // delta frames encoded
	Sent              uint64 // times a run of delta frames was sent to a connection
	Pages             uint64 // snapshot pages sent
	PagesRead         uint64 // of Pages: read and encoded; the others were encoded for another stream
	Resumed           uint64 // streams that got the changes since the client's last stream, and no page
	Histories         int    // semaphores whose last changes are kept, now
	Fired             uint64 // one-shot watches fired with the changed flags
	Invalidated       uint64 // one-shot watches fired with neither flag
	FellBehind        uint64 // times a connection fell behind
	Cut               uint64 // streams cut
	Merged            uint64 // changes that were merged into a pending delta
}

func (o WatchOptions) withDefaults() WatchOptions {
	o.Window = cmp.Or(o.Window, 2500*time.Microsecond)
	o.Limits.Streams = cmp.Or(max(o.Limits.Streams, 0), 1024)
	o.Limits.Watchers = cmp.Or(max(o.Limits.Watchers, 0), 100_000)
	o.Limits.OneShots = cmp.Or(max(o.Limits.OneShots, 0), 65_536)
	o.Limits.Pending = cmp.Or(max(o.Limits.Pending, 0), 4<<20)
	o.Limits.CachedPage = cmp.Or(max(o.Limits.CachedPage, 0), 2<<10)
	o.Quota = cmp.Or(o.Quota, new(WatcherQuota))
	o.Histories = cmp.Or(o.Histories, NewHistoryBudget(MaxHistories))
	if o.Now == nil {
		start := time.Now()
		o.Now = func() time.Duration { return time.Since(start) }
	}
	if o.Wake == nil {
		o.Wake = func(time.Duration) {}
	}
	if o.Pace == nil {
		o.Pace = fanout.New(o.Now)
	}
	return o
}
