// Package delivery has the hubs of watches and streams: they turn the changes of a log entry into
// frames on connections. Fired one-shot watches, snapshots and changes come from here; answers and
// events for sessions do not.
//
// Hubs has one hub for each kind of object of a hosted shard, and gives each all that happens. It
// knows connections by their ids; a Sender appends frames to them. A WatchHub has the watchers of
// semaphores. It owns no goroutine and no clock. A Flusher, one for all hubs of an instance, ends
// their windows.
//
// Locks: the shard's machine lock, then that of a hub, then whatever the Sender takes. Changed and
// the methods for events of the log are called in apply order while the machine is locked against
// reads. OneShot and Page are called inside Shard.Exclusive, so that the state read and the watch
// registered belong to one applied index. Any goroutine may call the rest.
package delivery

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Sender writes to connections. A hub calls it with its lock held, often inside an Apply. It must
// not block and must not call the hub back.
type Sender interface {
	// Send appends frame, one or more whole frames with their lengths, to a connection's outgoing
	// bytes, in the order of the calls. Many connections share the bytes, which never change. If
	// droppable, a connection over its soft bound takes nothing, and Send returns false. The hub
	// then stops the connection's streams and restarts them from a snapshot (PagesDue). Other
	// frames are always taken; the sender closes a connection over its hard bound. An unknown
	// connection takes everything and does nothing.
	Send(conn uint64, frame []byte, droppable bool) bool

	// SendPage appends a frame in two parts, which a connection always takes. Many connections
	// share the second part, which never changes and may be empty; the first is the connection's.
	SendPage(conn uint64, head, shared []byte)

	// PagesDue reports that streams of this connection wait for snapshot pages. As soon as the
	// connection's outgoing bytes are under the soft bound, its owner calls Hubs.Page inside
	// Shard.Exclusive, and again while Page returns true and there is room. PagesDue may be called
	// again meanwhile. It is called again for pages that become due after Page has returned false.
	PagesDue(shard, conn uint64)
}

// Leader reports a shard's leadership to the hubs.
type Leader interface {
	// Leading reports whether this instance leads the shard.
	Leading() bool

	// LogTime returns the shard's log time. It is called inside Shard.Exclusive.
	LogTime() uint64
}

// Viewer shows the machine as it is after the entry that is delivered. A replica's Shard is one.
type Viewer interface {
	View(fn func(m *shard.Machine))
}

// hub has the watchers of one kind of object in a shard.
type hub interface {
	// changed sends the changes of an entry. It allocates nothing and never blocks.
	changed(machine Viewer, index uint64, ev *shard.Events)

	// These end watches, or restart them from the state.
	nodeDropped(node uint64)
	bucketsFrozen(run bucketRun)
	bucketsActive()
	leadershipLost()
	snapshotInstalled()
	connClosed(conn uint64)
	closeStream(conn, id uint64)
	cutNodes(which func(node uint64) bool, status protocol.Status, text string)
	shut() // refuses all watches from now on

	// sendDue sends the next page that a stream of the connection waits for, and reports whether
	// more are due; waits reports whether one is.
	sendDue(conn uint64, m *shard.Machine, maxBytes int) (more bool)
	waits(conn uint64) bool
}

var _ = []hub{(*WatchHub)(nil), (*ProcessStreams)(nil), (*TrackStreams)(nil), (*LimitStreams)(nil)}

// Hubs are the hubs of one hosted shard.
type Hubs struct {
	Semaphores *WatchHub       // one-shot watches, and streams over semaphores
	Processes  *ProcessStreams // streams over processes
	Tracks     *TrackStreams   // streams over tracks
	Limits     *LimitStreams   // streams over rate limits
	Quota      WatcherQuota    // of coordination nodes, for all of them

	id     uint64
	all    []hub // Semaphores first
	leader Leader
	epoch  uint64 // leader epoch in the log so far; of the apply goroutine
}

// NewHubs creates the hubs of a hosted shard. Their watchers share one quota: that of opt is not
// used.
func NewHubs(id uint64, send Sender, leader Leader, opt WatchOptions) *Hubs {
	h := &Hubs{id: id, leader: leader}
	opt.Quota = &h.Quota
	h.Semaphores = NewWatchHub(id, send, opt)
	h.Processes, h.Tracks, h.Limits = newProcessStreams(h), newTrackStreams(h), newLimitStreams(h)
	h.all = []hub{h.Semaphores, h.Processes, h.Tracks, h.Limits}
	return h
}

// Changed sends the changes of one log entry. It runs on the shard's apply goroutine while the log
// waits: it allocates nothing and never blocks.
func (h *Hubs) Changed(machine Viewer, index uint64, ev *shard.Events) {
	for _, x := range h.all {
		x.changed(machine, index, ev)
	}
}

// TookOver handles a leader's epoch in the log. It reports whether this is another leader than
// before, which has detached every session. A leader that takes over again keeps the term and
// detaches none.
func (h *Hubs) TookOver(epoch uint64) (another bool) {
	was := h.epoch
	h.epoch = epoch
	if was == 0 || was>>16 == epoch>>16 {
		return false
	}
	h.Semaphores.InvalidateOneShots()
	return true
}

// NodeDropped ends all watches in a coordination node.
func (h *Hubs) NodeDropped(node uint64) {
	for _, x := range h.all {
		x.nodeDropped(node)
	}
}

// BucketsFrozen ends the watches in count buckets from first, of total: they are frozen.
func (h *Hubs) BucketsFrozen(first, count, total uint32) {
	for _, x := range h.all {
		x.bucketsFrozen(bucketRun{first: first, count: count, total: total})
	}
}

// BucketsActive restarts the streams that cover several buckets: this shard serves more of them.
func (h *Hubs) BucketsActive() {
	for _, x := range h.all {
		x.bucketsActive()
	}
}

// LeadershipLost ends the streams that only a leader serves.
func (h *Hubs) LeadershipLost() {
	for _, x := range h.all {
		x.leadershipLost()
	}
}

// SnapshotInstalled restarts all streams, and invalidates one-shot watches, because the machine
// moved on without events.
func (h *Hubs) SnapshotInstalled() {
	for _, x := range h.all {
		x.snapshotInstalled()
	}
}

// Page sends the next page that the connection's streams wait for, and reports whether more are
// due. It is called inside Shard.Exclusive; maxBytes is the approximate size of a page over
// semaphores.
func (h *Hubs) Page(conn uint64, m *shard.Machine, maxBytes int) (more bool) {
	for _, x := range h.all {
		if x.sendDue(conn, m, maxBytes) {
			return true
		}
	}
	return false
}

// CachedPage sends the next page that the connection's streams wait for, if it was encoded already.
// It reports whether it did, and whether more are due. Unlike Page it needs no lock of the shard.
func (h *Hubs) CachedPage(conn uint64, maxBytes int) (sent, more bool) {
	if sent, more = h.Semaphores.CachedPage(conn, maxBytes); !sent || more {
		return sent, more
	}
	for _, x := range h.all[1:] {
		if x.waits(conn) {
			return true, true
		}
	}
	return true, false
}

// CloseStream closes a stream of any kind, if there is one.
func (h *Hubs) CloseStream(conn, id uint64) {
	for _, x := range h.all {
		x.closeStream(conn, id)
	}
}

// ConnClosed removes all watches of a connection.
func (h *Hubs) ConnClosed(conn uint64) {
	for _, x := range h.all {
		x.connClosed(conn)
	}
}

// SessionEnded removes the one-shot watches of a session that has ended.
func (h *Hubs) SessionEnded(session uint64) { h.Semaphores.SessionEnded(session) }

// SessionUnbound removes the one-shot watches of a session on a connection that has lost it.
func (h *Hubs) SessionUnbound(conn, session uint64, notify bool) {
	h.Semaphores.SessionUnbound(conn, session, notify)
}

// Stale ends the watches in the nodes that match: the machine here may lag by more than a RELAXED
// read allows. Another replica may be up to date.
func (h *Hubs) Stale(which func(node uint64) bool) {
	h.cut(which, protocol.StatusUnavailable, TextStale)
}

// TextStale is the message for watches on a machine that may be too old.
const TextStale = "this instance hears nothing of the shard's leader, and what it knows may be too old; watch at another one"

// Close ends all watches, and refuses further ones: the shard no longer runs on this instance. A
// request that found the shard before may come after it.
func (h *Hubs) Close() {
	for _, x := range h.all {
		x.shut()
	}
	h.cut(func(uint64) bool { return true }, protocol.StatusWrongShard, textClosed)
}

func (h *Hubs) cut(which func(node uint64) bool, status protocol.Status, text string) {
	for _, x := range h.all {
		x.cutNodes(which, status, text)
	}
}

const (
	textClosed      = "the shard does not run on this instance any more; fetch the map and watch again"
	textNodeDropped = "the coordination node was deleted; nothing is left to watch"
)

// errClosed refuses a watch of a shard that was closed.
var errClosed = protocol.Errorf(protocol.StatusWrongShard, textClosed)

// bucketRun is a run of buckets, of total.
type bucketRun struct{ first, count, total uint32 }

// has returns a function that reports whether the bucket of a name is in the run.
func (r bucketRun) has(bucket func(node uint64, name []byte, total uint32) uint32) func(uint64, []byte) bool {
	return func(node uint64, name []byte) bool {
		b := bucket(node, name, r.total)
		return b >= r.first && b-r.first < r.count
	}
}
