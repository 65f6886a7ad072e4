// Package watch tells connections what changed: it turns the changes that leave a shard's Apply into fired one-shot watches and into the
// deltas and snapshot pages of streams, encoded once for everybody who listens.
//
// A Hub is the soft state of one shard on one instance. It owns no goroutine and no clock of its own; a Pacer, one for all hubs of an
// instance, ends their coalescing windows.
//
// Locks: the shard's machine lock, then the hub's own, then whatever the Sender takes. Changed and NodeDropped are called in apply order
// while the machine is locked against reads; OneShot and Page inside Shard.Exclusive, so that what was read and what is registered belong
// to one applied index. Everything else may be called from any goroutine.
package delivery

import (
	"cmp"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Sender is the way out to connections. The hub calls it with its lock held, often inside an Apply: it must not block and must not call the
// hub back.
type Sender interface {
	// Send appends frame, one or more whole frames with their lengths, to what goes out on the connection, in the order of the calls. The bytes are
	// shared by many connections and never change. With droppable, a connection whose outgoing bytes are over its soft bound takes nothing and
	// answers false: the hub then stops its streams and has them start again from a snapshot (PagesDue). Frames that are not droppable are always
	// taken; a connection over its hard bound is the sender's to cut. An unknown connection takes everything and does nothing.
	Send(conn uint64, frame []byte, droppable bool) bool

	// PagesDue says that streams of this connection wait for snapshot pages. As soon as the connection's outgoing bytes are under its soft bound,
	// its owner calls Hub.Page inside Shard.Exclusive, and again while Page answers true and there is room. It may be called again while that goes
	// on; it is called again for what comes after a Page has answered false.
	PagesDue(shard, conn uint64)
}

// Pages is what Page reads from: the shard's machine.
type SnapshotReader interface {
	StreamSnapshot(node uint64, name []byte, prefix bool, cursor []byte, maxBytes int, out *protocol.Snapshot) (next []byte, err error)
}

// Options of a hub. The zero value works.
type WatchOptions struct {
	// Window is how long changes of a watched semaphore are gathered before they are sent together. The first change after a quiet time goes at once.
	// Default 2.5 ms; negative sends everything at once, which costs a write per change and watcher.
	Window time.Duration

	// PerSubscriber lengthens the window of a name or prefix with subscribers on many connections, in steps of doubling, so that telling them takes a
	// bounded share of the processor: the window is at least PerSubscriber times the connections that are written to for it. Default 8 us; negative never
	// lengthens.
	PerSubscriber time.Duration

	// MaxWindow bounds that. Default 160 ms.
	MaxWindow time.Duration

	// Now is monotonic time. Windows end at multiples of their length on this clock, so that hubs that share it write to a connection together.
	// Default: time since the hub was made.
	Now func() time.Duration

	// Wake is told that Flush has something to do at due; a Pacer's Wake fits. It is called with the hub's lock held and must not block. Nil means
	// that the caller polls NextFlush.
	Wake func(due time.Duration)

	Limits WatchLimits

	// Quota counts the watchers of coordination nodes, for all that share it. Default: the hub's own.
	Quota *WatcherQuota
}

// Limits of a hub; 0 is the default. What is over one is refused with StatusOverloaded naming it.
type WatchLimits struct {
	Streams  int // streams per connection and shard; default 1,024
	Watchers int // watchers, one-shot and stream together, per semaphore, and streams per prefix; default 100,000
	OneShots int // armed one-shot watches per connection and shard; default 65,536
	Pending  int // bytes of changes gathered in windows; more are sent before their window ends; default 4 MiB
}

// Stats are counts since the hub was made, and what there is now.
type WatchStats struct {
	Streams, OneShots int    // now
	Pending           int    // semaphores with changes gathered, now
	Deltas            uint64 // delta frames encoded
	Sent              uint64 // times a run of delta frames was handed to a connection
	Pages             uint64 // snapshot pages handed out
	Fired             uint64 // one-shot watches fired with what changed
	Invalidated       uint64 // one-shot watches fired with neither flag
	FellBehind        uint64 // times a connection fell behind
	Cut               uint64 // streams cut
	Merged            uint64 // changes that went into a delta that was gathered already
}

func (o WatchOptions) withDefaults() WatchOptions {
	o.Window = cmp.Or(o.Window, 2500*time.Microsecond)
	o.PerSubscriber = cmp.Or(o.PerSubscriber, 8*time.Microsecond)
	o.MaxWindow = cmp.Or(o.MaxWindow, 160*time.Millisecond)
	o.Limits.Streams = cmp.Or(max(o.Limits.Streams, 0), 1024)
	o.Limits.Watchers = cmp.Or(max(o.Limits.Watchers, 0), 100_000)
	o.Limits.OneShots = cmp.Or(max(o.Limits.OneShots, 0), 65_536)
	o.Limits.Pending = cmp.Or(max(o.Limits.Pending, 0), 4<<20)
	if o.Quota == nil {
		o.Quota = new(WatcherQuota)
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() time.Duration { return time.Since(start) }
	}
	if o.Wake == nil {
		o.Wake = func(time.Duration) {}
	}
	return o
}
