package watch

import "time"

// node is what is watched in one coordination node.
type node struct {
	id       uint64
	names    map[string]*name
	prefixes prefixes
	pending  map[string]*pending
}

// name is a semaphore's name that is watched by itself.
type name struct {
	node  *node
	key   string
	exact target
	shots shotList
	count int   // one-shot watches
	flags uint8 // what changed in the call under way
}

// target is one name or one prefix and its streams.
type target struct {
	node    *node
	streams []*stream // unordered; each knows its place

	// reach is how many connections the last flush wrote to for this target: several streams of one connection cost one write.
	reach int

	// busyUntil is the end of the window that the last delta opened. A change before it waits for it.
	busyUntil time.Duration

	// first..last are the frames of flush seq that this target sees: they are next to each other because deltas are sent in order of name.
	seq         uint64
	first, last int
}

// match appends the targets that see a name: its own, and the prefixes of it.
func (n *node) match(w *name, key []byte, to []*target) []*target {
	if w != nil && len(w.exact.streams) > 0 {
		to = append(to, &w.exact)
	}
	return n.prefixes.match(key, to)
}

func (h *Hub) nodeFor(id uint64) *node {
	n := h.nodes[id]
	if n == nil {
		n = &node{id: id, names: make(map[string]*name), pending: make(map[string]*pending)}
		h.nodes[id] = n
	}
	return n
}

func (n *node) nameFor(key []byte) *name {
	w := n.names[string(key)]
	if w == nil {
		w = &name{node: n, key: string(key)}
		w.exact.node = n
		n.names[w.key] = w
	}
	return w
}

// tidyName forgets a name nobody watches by itself any more.
func (h *Hub) tidyName(w *name) {
	if w.shots.head == nil && len(w.exact.streams) == 0 {
		delete(w.node.names, w.key)
		h.tidyNode(w.node)
	}
}

func (h *Hub) tidyNode(n *node) {
	if len(n.names) == 0 && len(n.pending) == 0 && n.prefixes.empty() {
		delete(h.nodes, n.id)
	}
}

// window is how long changes seen by this target are gathered.
func (h *Hub) window(t *target) time.Duration {
	w := h.opt.Window
	if w <= 0 {
		return 0
	}
	need := min(time.Duration(t.reach)*h.opt.PerSubscriber, h.opt.MaxWindow)
	for w < need && 2*w <= h.opt.MaxWindow {
		w *= 2
	}
	return w
}

// windowEnd is the first multiple of window after now.
func windowEnd(now, window time.Duration) time.Duration {
	if window <= 0 {
		return now
	}
	return (now/window + 1) * window
}
