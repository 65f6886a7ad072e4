package delivery

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/fanout"
	"github.com/signalbox-dev/signalbox/shard"
)

// WatchHub has the watchers of one shard, on one instance.
//
// Invariant 1: for every semaphore that is watched, its pending delta holds every change since its
// last delta was sent. So a delta applied to any state between its first and its last change gives
// the state at its index, and may be applied again.
// Invariant 2: a connection gets the deltas of a name in order, each once, starting with the page
// that carried the name, unless the connection fell behind.
// Invariant 3: a one-shot watch leaves the tables in the critical section in which it fires.
type WatchHub struct {
	shard uint64
	send  Sender
	opt   WatchOptions

	// active counts streams, one-shot watches, pending deltas and histories, so that an unwatched
	// change costs one atomic load.
	active atomic.Int64

	// applied is the index up to which Changed has given all changes. It is raised under mu, unless
	// nothing was to be done.
	applied atomic.Uint64

	mu     sync.Mutex
	closed bool
	watchIndex
	sessions map[uint64]*watchSession
	oneShots map[oneShotKey]*oneShot

	pending      []*pendingDelta // unordered; each also in its node's table
	pendingBytes int
	nextFlush    time.Duration // earliest due of pending; meaningless without any

	histories *list.List // of *history, that which changed last at the end
	pages     pageCache

	// Buffers of one call, kept for reuse.
	frames       frameBlocks
	head         []byte   // of a page
	past         []byte   // a frame for a history
	keys         []string // the name of each delta frame
	due          []*pendingDelta
	matched      []*target
	hit          []*target      // targets with deltas in this flush
	changedNames []*watchedName // names with one-shot watches that changed in this call
	firing       []firing
	runs         []frameRun
	slow         []*watchConn
	slices       [][]byte
	flushSeq     uint64 // number of the flush
	free         []*pendingDelta
	delta        protocol.Delta
	fired        protocol.WatchFired
	page         protocol.Snapshot
	stats        WatchStats
}

// NewWatchHub creates the hub of a shard.
func NewWatchHub(shard uint64, send Sender, opt WatchOptions) *WatchHub {
	h := &WatchHub{
		shard:      shard,
		send:       send,
		opt:        opt.withDefaults(),
		watchIndex: watchIndex{nodes: make(map[uint64]*watchedNode), conns: make(map[uint64]*watchConn)},
		sessions:   make(map[uint64]*watchSession),
		oneShots:   make(map[oneShotKey]*oneShot),
		histories:  list.New(),
	}
	h.pages = pageCache{least: h.opt.Limits.CachedPage, names: make(map[*watchedName]struct{})}
	return h
}

// Changed takes the changes of one applied batch, in apply order, under the machine's lock.
// One-shot watches fire before it returns. A delta goes out before it returns if its targets were
// quiet, else at the end of their window.
func (h *WatchHub) Changed(index uint64, changes []shard.SemaphoreChange) {
	if len(changes) == 0 || h.active.Load() == 0 && !someLarge(changes) {
		h.applied.Store(index)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.applied.Store(index)
	now := h.opt.Now()
	atOnce := false
	for i := range changes {
		if h.noteChange(now, index, &changes[i]) {
			atOnce = true
		}
	}
	h.fireChanged()
	switch {
	case h.pendingBytes > h.opt.Limits.Pending:
		h.flush(now, true)
	case atOnce:
		h.flush(now, false)
	}
}

func someLarge(changes []shard.SemaphoreChange) bool {
	for i := range changes {
		if changes[i].Owners > mostUnwatched {
			return true
		}
	}
	return false
}

// noteChange gives one change to the one-shot watches and the pending delta of its name. It reports
// whether that delta is due now.
func (h *WatchHub) noteChange(now time.Duration, index uint64, c *shard.SemaphoreChange) (due bool) {
	large := c.Owners > mostUnwatched
	n := h.nodes[c.Node]
	switch {
	case n != nil:
	case !large:
		return false
	default:
		n = h.nodeOrNew(c.Node)
	}
	w := n.names[string(c.Name)]
	if w != nil && w.oneShots.head != nil {
		if flags := watchFlags(c.Kind); flags != 0 {
			if w.flags == 0 {
				h.changedNames = append(h.changedNames, w)
			}
			w.flags |= flags
		}
	}
	x := n.histories[string(c.Name)]
	switch {
	case x == nil && large:
		h.startHistory(n, c.Name, index).large = true
	case x != nil:
		if x.large = large; h.dropHistoryIfUnused(n, x.key) {
			x = nil
		}
	}
	p := n.pending[string(c.Name)]
	if p == nil {
		h.matched = n.match(w, c.Name, h.matched[:0])
		if len(h.matched) == 0 && x == nil {
			return false // a history that has just begun has no use for the change
		}
		p = h.newPending(n, c.Name)
		p.due = now
		if len(h.matched) == 0 {
			p.due = max(now, x.busyUntil)
		}
		for _, t := range h.matched {
			p.due = max(p.due, t.busyUntil)
			p.many = p.many || fanout.Many(t.connCount)
		}
		if p.due > now && (len(h.pending) == 1 || p.due < h.nextFlush) {
			h.nextFlush = p.due
			h.opt.Wake(p.due)
		}
	} else {
		h.stats.Merged++
	}
	h.pendingBytes += p.merge(index, &c.SemaphoreChange)
	return p.due <= now
}

// Flush sends the deltas whose window has ended. Any goroutine may call it, but not under the
// machine's lock.
func (h *WatchHub) Flush(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) > 0 && h.nextFlush <= now {
		h.flush(now, false)
	}
}

// NextFlush returns when Flush is due next.
func (h *WatchHub) NextFlush() (due time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nextFlush, len(h.pending) > 0
}

func (h *WatchHub) changed(_ Viewer, index uint64, ev *shard.Events) {
	h.Changed(index, ev.SemaphoreChanges)
}

// connClosed removes a connection, its streams and its one-shot watches. Nothing fires: the
// client's end of the connection reports the close.
func (h *WatchHub) connClosed(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[id]
	if c == nil {
		return
	}
	for s := c.oneShots.head; s != nil; s = c.oneShots.head {
		h.disarm(s)
	}
	for _, s := range c.streams {
		h.remove(s)
	}
	h.removeConnIfUnused(c)
}

// SessionEnded removes the one-shot watches of a session. Nothing fires: the end of the session has
// its own event, and no event goes to a session after it.
func (h *WatchHub) SessionEnded(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := h.sessions[id]
	if owner == nil {
		return
	}
	for s := owner.oneShots.head; s != nil; s = owner.oneShots.head {
		h.disarm(s)
		h.removeConnIfUnused(s.conn)
	}
}

// SessionUnbound ends the one-shot watches that a session armed on a connection to which it is no
// longer bound, while it lives on elsewhere. With notify they fire with neither flag, because no
// later change will be reported on this connection.
func (h *WatchHub) SessionUnbound(connID, id uint64, notify bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := h.sessions[id]
	if owner == nil {
		return
	}
	for s := owner.oneShots.head; s != nil; s = s.links[bySession].next {
		if s.conn.id == connID {
			h.firing = append(h.firing, firing{shot: s})
		}
	}
	if notify {
		h.fire()
		return
	}
	for _, f := range h.firing {
		h.disarm(f.shot)
		h.removeConnIfUnused(f.shot.conn)
	}
	clear(h.firing)
	h.firing = h.firing[:0]
}

// nodeDropped fires the one-shot watches in a coordination node, with both flags, and cuts its
// streams.
func (h *WatchHub) nodeDropped(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[id]
	if n == nil {
		return
	}
	h.flush(h.opt.Now(), true)
	for _, w := range n.names {
		w.flags = protocol.WatchData | protocol.WatchOwners
		h.changedNames = append(h.changedNames, w)
	}
	h.fireChanged()
	h.dropHistories(func(x *history) bool { return x.node == n })
	h.cut(func(s *watchStream) bool { return s.node == n }, protocol.StatusNotFound, textNodeDropped)
}

// InvalidateOneShots fires every one-shot watch with neither flag, after a leader change or
// anything else that may have hidden a change. Streams go on: this instance's own log feeds them.
func (h *WatchHub) InvalidateOneShots() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.invalidateOneShots()
}

// leadershipLost ends the one-shot watches: only a leader knows that it missed no change.
func (h *WatchHub) leadershipLost() { h.InvalidateOneShots() }

func (h *WatchHub) invalidateOneShots() {
	for _, n := range h.nodes {
		h.invalidate(n)
	}
	h.fire()
}

// invalidate has the one-shot watches of a node fired next, with neither flag.
func (h *WatchHub) invalidate(n *watchedNode) {
	for _, w := range n.names {
		for s := w.oneShots.head; s != nil; s = s.links[byName].next {
			h.firing = append(h.firing, firing{shot: s})
		}
	}
}

// snapshotInstalled reports that the shard's state moved on without Changed, because a replica
// installed a snapshot. One-shot watches fire with neither flag, merged changes are dropped, and
// every stream restarts from a snapshot. Called under the machine's lock.
func (h *WatchHub) snapshotInstalled() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.invalidateOneShots()
	for _, p := range h.pending {
		h.recycle(p)
	}
	h.pending = h.pending[:0]
	h.dropHistories(anyHistory)
	h.pages.dropAll()
	for _, c := range h.conns {
		h.restart(c, anyStream)
	}
}

func (h *WatchHub) shut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.dropHistories(anyHistory)
}

// cutNodes ends the watches in the nodes that match, which the instance can no longer serve:
// one-shot watches fire with neither flag, and streams are cut.
func (h *WatchHub) cutNodes(which func(node uint64) bool, status protocol.Status, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.nodes {
		if which(id) {
			h.invalidate(n)
		}
	}
	h.fire()
	h.cut(func(s *watchStream) bool { return which(s.node.id) }, status, message)
}

func (h *WatchHub) bucketsFrozen(run bucketRun) { h.namesFrozen(run.has(protocol.Bucket)) }

// namesFrozen ends the watches of the names that match, which this shard no longer serves: Changed
// reports nothing more about them. So their one-shot watches fire with neither flag, and their
// streams are cut. Streams of prefixes restart from a snapshot, which names the buckets that it
// covers.
func (h *WatchHub) namesFrozen(in func(node uint64, name []byte) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.nodes) == 0 {
		return
	}
	h.flush(h.opt.Now(), true)
	for id, n := range h.nodes {
		for _, w := range n.names {
			if w.oneShots.head == nil || !in(id, []byte(w.key)) {
				continue
			}
			for s := w.oneShots.head; s != nil; s = s.links[byName].next {
				h.firing = append(h.firing, firing{shot: s})
			}
		}
	}
	h.fire()
	h.dropHistories(func(x *history) bool { return in(x.node.id, []byte(x.key)) })
	h.pages.dropAll()
	h.cut(func(s *watchStream) bool { return !s.prefix && in(s.node.id, []byte(s.key)) }, protocol.StatusWrongShard,
		"the semaphore's bucket moves to another shard; fetch the map and ask its instance")
	h.restartPrefixes()
}

// bucketsActive reports that this shard serves more buckets from now on, whose names Changed did
// not report. Streams of prefixes restart from a snapshot.
func (h *WatchHub) bucketsActive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.nodes) == 0 {
		return
	}
	h.flush(h.opt.Now(), true)
	h.restartPrefixes()
}

func (h *WatchHub) restartPrefixes() {
	for _, c := range h.conns {
		h.restart(c, func(s *watchStream) bool { return s.prefix })
	}
}

// Stats returns the counts so far.
func (h *WatchHub) Stats() WatchStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.OneShots, s.Pending, s.Histories = len(h.oneShots), len(h.pending), h.histories.Len()
	s.Streams = int(h.active.Load()) - s.OneShots - s.Pending - s.Histories
	return s
}
