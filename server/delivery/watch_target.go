package delivery

import "time"

// watchIndex has the watches by coordination node, and the connections that watch.
type watchIndex struct {
	nodes map[uint64]*watchedNode
	conns map[uint64]*watchConn
}

// watchedNode is the watches in one coordination node.
type watchedNode struct {
	id       uint64
	names    map[string]*watchedName
	prefixes prefixTrie
	pending  map[string]*pendingDelta

	histories map[string]*history
}

// watchedName is a semaphore's name that is watched by itself.
type watchedName struct {
	node     *watchedNode
	key      string
	exact    target
	oneShots oneShotList
	pages    map[string]*cachedPage // by the cursor of the page
	count    int                    // one-shot watches
	flags    uint8                  // the changes of the current call
}

// target is one name or one prefix, with its streams.
type target struct {
	node    *watchedNode
	streams []*watchStream // unordered; each knows its place

	// connCount is how many connections the last flush wrote to for this target. Several streams of
	// one connection cost one write.
	connCount int

	// busyUntil is the end of the window that the last delta opened. A change before it waits for
	// it.
	busyUntil time.Duration

	// first..last are the frames of flush flushSeq that this target sees. They are next to each
	// other because deltas are sent in order of name.
	flushSeq    uint64
	first, last int
}

// match appends the targets that see a name: its own, and those of its prefixes.
func (n *watchedNode) match(w *watchedName, key []byte, to []*target) []*target {
	if w != nil && len(w.exact.streams) > 0 {
		to = append(to, &w.exact)
	}
	return n.prefixes.match(key, to)
}

func (i *watchIndex) nodeOrNew(id uint64) *watchedNode {
	n := i.nodes[id]
	if n == nil {
		n = &watchedNode{id: id, names: make(map[string]*watchedName), pending: make(map[string]*pendingDelta),
			histories: make(map[string]*history)}
		i.nodes[id] = n
	}
	return n
}

func (n *watchedNode) nameOrNew(key []byte) *watchedName {
	w := n.names[string(key)]
	if w == nil {
		w = &watchedName{node: n, key: string(key)}
		w.exact.node = n
		n.names[w.key] = w
	}
	return w
}

// removeNameIfUnused removes a name that is no longer watched by itself.
func (i *watchIndex) removeNameIfUnused(w *watchedName) {
	if w.oneShots.head == nil && len(w.exact.streams) == 0 {
		delete(w.node.names, w.key)
		i.removeNodeIfUnused(w.node)
	}
}

func (i *watchIndex) removeNodeIfUnused(n *watchedNode) {
	if len(n.names) == 0 && len(n.pending) == 0 && len(n.histories) == 0 && n.prefixes.empty() {
		delete(i.nodes, n.id)
	}
}
