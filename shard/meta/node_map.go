package meta

import (
	"iter"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// nodeMap has the coordination nodes, by path and by id. Like all of [State] it is a value.
type nodeMap struct {
	nextNode uint64 // the last node id given out; ids start at 1
	// tokenFloor is not below any fencing token that was given out for a deleted node. A new node at
	// the same path begins above it, in whatever bucket and tier its names are.
	tokenFloor uint64
	// Invariant: the four trees hold the same records: nodes has all of them, ids has all of them,
	// pending those with pending(), withQuota those with a quota of requests. Invariant: the parent
	// of every node is a node; and it is not being dropped.
	nodes     tree[string, *Node]
	ids       tree[uint64, *Node]
	pending   tree[uint64, *Node]
	withQuota tree[uint64, *Node]
}

// Node finds a node by id, in any phase.
func (t *nodeMap) Node(id uint64) (Node, bool) {
	n, ok := t.ids.get(id)
	if !ok {
		return Node{}, false
	}
	return *n, true
}

// NodeAt finds a node by path, in any phase: see Node.Visible.
func (t *nodeMap) NodeAt(path string) (Node, bool) {
	n, ok := t.nodes.get(path)
	if !ok {
		return Node{}, false
	}
	return *n, true
}

// NumNodes counts nodes in every phase.
func (t *nodeMap) NumNodes() int { return t.nodes.len() }

// LastNode is the highest node id ever given out.
func (t *nodeMap) LastNode() uint64 { return t.nextNode }

// NodeDropped reports whether there was a node and that it is gone. It is false for a node of which
// a map this old does not know yet.
func (t *nodeMap) NodeDropped(id uint64) bool {
	_, ok := t.ids.get(id)
	return !ok && id <= t.nextNode
}

// Nodes yields the nodes whose path starts with the prefix and is not below from, in byte order of
// the path, in every phase. The prefix is one of bytes: "/a" is one of "/ab" too.
func (t *nodeMap) Nodes(prefix, from string) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for path, n := range t.nodes.from(max(prefix, from)) {
			if !strings.HasPrefix(path, prefix) || !yield(*n) {
				return
			}
		}
	}
}

// Pending yields, in order of id, the nodes with unfinished changes: those not ready, and those
// with a grace floor. A parent comes before its children.
func (t *nodeMap) Pending() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range t.pending.all() {
			if !yield(*n) {
				return
			}
		}
	}
}

// NodesWithQuota yields, in order of id, the nodes with a quota of requests a second, in any phase.
func (t *nodeMap) NodesWithQuota() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range t.withQuota.all() {
			if !yield(*n) {
				return
			}
		}
	}
}

// putNode keeps the four trees consistent.
func (t *nodeMap) putNode(n *Node) {
	t.nodes = t.nodes.put(n.Path, n)
	t.ids = t.ids.put(n.ID, n)
	if n.pending() {
		t.pending = t.pending.put(n.ID, n)
	} else {
		t.pending = t.pending.without(n.ID)
	}
	if n.Config.MaxRequests > 0 {
		t.withQuota = t.withQuota.put(n.ID, n)
	} else {
		t.withQuota = t.withQuota.without(n.ID)
	}
}

func (t *nodeMap) removeNode(n *Node) {
	t.nodes = t.nodes.without(n.Path)
	t.ids = t.ids.without(n.ID)
	t.pending = t.pending.without(n.ID)
	t.withQuota = t.withQuota.without(n.ID)
}

// anyChild is some node below path.
func (t *nodeMap) anyChild(path string) (*Node, bool) {
	below := path + "/"
	for p, n := range t.nodes.from(below) {
		return n, strings.HasPrefix(p, below)
	}
	return nil, false
}

func (t *nodeMap) addNode(path string, tier uint8, config protocol.NodeConfig, given uint32, wall uint64) *Node {
	t.nextNode++
	n := &Node{
		ID: t.nextNode, Path: path, Tier: tier, Phase: Creating, Revision: 1,
		Config: config, SetFields: given, CreatedAt: wall, TokenFloor: t.tokenFloor,
	}
	t.putNode(n)
	return n
}
