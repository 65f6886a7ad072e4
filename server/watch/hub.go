package watch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Hub is who watches what in one shard, on one instance.
//
// Invariant 1: for every semaphore that anybody watches, gathered changes (pending) hold every change since its last delta was handed out. So a
// delta applied to any state between its first and its last change gives the state at its index, and may be applied again.
// Invariant 2: a connection gets the deltas of a name in order, each once, from the page that carried the name on, unless it is behind.
// Invariant 3: a one-shot watch leaves the tables in the same critical section in which it fires.
type Hub struct {
	shard uint64
	send  Sender
	opt   Options

	// load counts streams, one-shot watches and pending semaphores, so that a change with nobody watching costs one atomic load.
	load atomic.Int64

	mu       sync.Mutex
	nodes    map[uint64]*node
	conns    map[uint64]*conn
	sessions map[uint64]*session
	shots    map[shotKey]*shot

	pending      []*pending // unordered; each also in its node's table
	pendingBytes int
	nextFlush    time.Duration // earliest due of pending; meaningless without any

	// Scratch of one call, kept for its memory.
	frames  frames
	keys    []string // the name of each delta frame
	due     []*pending
	matched []*target
	touched []*target // targets with deltas in this flush
	changed []*name   // names with one-shot watches that see a change in this call
	firing  []firing
	runs    []run
	lost    []*conn
	slices  [][]byte
	seq     uint64 // number of the flush
	free    []*pending
	delta   protocol.Delta
	fired   protocol.WatchFired
	page    protocol.Snapshot
	stats   Stats
}

// NewHub makes the hub of a shard.
func NewHub(shard uint64, send Sender, opt Options) *Hub {
	return &Hub{
		shard:    shard,
		send:     send,
		opt:      opt.withDefaults(),
		nodes:    make(map[uint64]*node),
		conns:    make(map[uint64]*conn),
		sessions: make(map[uint64]*session),
		shots:    make(map[shotKey]*shot),
	}
}

// Changed takes the changes of one applied batch, in apply order, under the machine's lock. One-shot watches fire before it returns; deltas go out
// before it returns where it was quiet, else at the end of their window.
func (h *Hub) Changed(index uint64, changes []shard.SemaphoreChange) {
	if len(changes) == 0 || h.load.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.opt.Now()
	atOnce := false
	for i := range changes {
		if h.note(now, index, &changes[i]) {
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

// note gives one change to the one-shot watches and the pending delta of its name. It answers whether that delta is due now.
func (h *Hub) note(now time.Duration, index uint64, c *shard.SemaphoreChange) (due bool) {
	n := h.nodes[c.Node]
	if n == nil {
		return false
	}
	w := n.names[string(c.Name)]
	if w != nil && w.shots.head != nil {
		if flags := watchFlags(c.Kind); flags != 0 {
			if w.flags == 0 {
				h.changed = append(h.changed, w)
			}
			w.flags |= flags
		}
	}
	p := n.pending[string(c.Name)]
	if p == nil {
		h.matched = n.match(w, c.Name, h.matched[:0])
		if len(h.matched) == 0 {
			return false
		}
		p = h.gather(n, c.Name)
		p.due = now
		for _, t := range h.matched {
			p.due = max(p.due, t.busyUntil)
		}
		if p.due > now && (len(h.pending) == 1 || p.due < h.nextFlush) {
			h.nextFlush = p.due
			h.opt.Wake(p.due)
		}
	} else {
		h.stats.Coalesced++
	}
	h.pendingBytes += p.merge(index, &c.SemaphoreChange)
	return p.due <= now
}

// Flush hands out the deltas whose window has ended. Any goroutine; not under the machine's lock.
func (h *Hub) Flush(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) > 0 && h.nextFlush <= now {
		h.flush(now, false)
	}
}

// NextFlush is when Flush has something to do.
func (h *Hub) NextFlush() (due time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nextFlush, len(h.pending) > 0
}

// ConnGone forgets a connection, its streams and its one-shot watches. Nothing fires: the client's end of the link tells it.
func (h *Hub) ConnGone(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[id]
	if c == nil {
		return
	}
	for s := c.shots.head; s != nil; s = c.shots.head {
		h.disarm(s)
	}
	for _, s := range c.streams {
		h.remove(s)
	}
	h.forget(c)
}

// SessionEnded forgets the one-shot watches of a session. Nothing fires: the end of the session is told by its own event, and no event goes to a
// session after it.
func (h *Hub) SessionEnded(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := h.sessions[id]
	if owner == nil {
		return
	}
	for s := owner.shots.head; s != nil; s = owner.shots.head {
		h.disarm(s)
		h.forget(s.conn)
	}
}

// SessionLeft ends the one-shot watches that a session armed on a connection where it is not bound any more, while it lives on elsewhere. With tell they fire with
// neither flag, for nothing will tell them what changes from now on.
func (h *Hub) SessionLeft(connID, id uint64, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := h.sessions[id]
	if owner == nil {
		return
	}
	for s := owner.shots.head; s != nil; s = s.links[bySession].next {
		if s.conn.id == connID {
			h.firing = append(h.firing, firing{shot: s})
		}
	}
	if tell {
		h.fire()
		return
	}
	for _, f := range h.firing {
		h.disarm(f.shot)
		h.forget(f.shot.conn)
	}
	clear(h.firing)
	h.firing = h.firing[:0]
}

// NodeDropped fires the one-shot watches in a coordination node, with both flags, and cuts its streams.
func (h *Hub) NodeDropped(id uint64) {
	defer h.opt.Quota.Forget(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[id]
	if n == nil {
		return
	}
	h.flush(h.opt.Now(), true)
	for _, w := range n.names {
		w.flags = protocol.WatchData | protocol.WatchOwners
		h.changed = append(h.changed, w)
	}
	h.fireChanged()
	h.cut(func(s *stream) bool { return s.node == n }, protocol.StatusNotFound, "the coordination node was dropped; nothing is left to watch")
}

// Doubt fires every one-shot watch with neither flag: the leader changed, or something else happened after which a change may have been missed.
// Streams go on: they are fed by this instance's own log.
func (h *Hub) Doubt() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt()
}

func (h *Hub) doubt() {
	for _, n := range h.nodes {
		for _, w := range n.names {
			for s := w.shots.head; s != nil; s = s.links[byName].next {
				h.firing = append(h.firing, firing{shot: s})
			}
		}
	}
	h.fire()
}

// Jumped says that the shard's state moved on without Changed, as it does when a replica is brought up by a snapshot: one-shot watches fire with
// neither flag, gathered changes are forgotten, and every stream starts again from a snapshot. Called under the machine's lock.
func (h *Hub) Jumped() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubt()
	for _, p := range h.pending {
		h.recycle(p)
	}
	h.pending = h.pending[:0]
	for _, c := range h.conns {
		h.restart(c, everyStream)
	}
}

// CutStreams ends all streams: the instance can no longer serve the shard. One-shot watches are Doubt's.
func (h *Hub) CutStreams(status protocol.Status, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut(func(*stream) bool { return true }, status, message)
}

// BucketsFrozen says that this shard serves a run of buckets no more; in says whether a name is in one of them. Nothing about their names comes through Changed any
// more, so one-shot watches of them fire with neither flag, streams of one of them are cut, and those of prefixes start again from a snapshot, which says which
// buckets it speaks for.
func (h *Hub) BucketsFrozen(in func(node uint64, name []byte) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.nodes) == 0 {
		return
	}
	h.flush(h.opt.Now(), true)
	for id, n := range h.nodes {
		for _, w := range n.names {
			if w.shots.head == nil || !in(id, []byte(w.key)) {
				continue
			}
			for s := w.shots.head; s != nil; s = s.links[byName].next {
				h.firing = append(h.firing, firing{shot: s})
			}
		}
	}
	h.fire()
	h.cut(func(s *stream) bool { return !s.prefix && in(s.node.id, []byte(s.key)) }, protocol.StatusWrongShard,
		"the semaphore's bucket moves to another shard; fetch the map and ask its instance")
	h.restartPrefixes()
}

// BucketsActive says that this shard serves more buckets from now on, whose names it says nothing about in Changed: streams of prefixes start again from a snapshot.
func (h *Hub) BucketsActive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.nodes) == 0 {
		return
	}
	h.flush(h.opt.Now(), true)
	h.restartPrefixes()
}

func (h *Hub) restartPrefixes() {
	for _, c := range h.conns {
		h.restart(c, func(s *stream) bool { return s.prefix })
	}
}

// Stats counts what happened so far.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.OneShots, s.Pending = len(h.shots), len(h.pending)
	s.Streams = int(h.load.Load()) - s.OneShots - s.Pending
	return s
}
