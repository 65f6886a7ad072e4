package meta

import (
	"iter"
	"strings"
)

// State is the cluster map at one revision: an immutable value. A copy costs a few words and may be
// read by any goroutine without a lock. Slices that its methods return are shared and must not be
// written to.
type State struct {
	applied    uint64 // log index; no part of the digest
	revision   uint64 // counts the commands that changed something
	mapVersion uint64 // the revision of the last change to what clients route by

	cluster        string // empty until the bootstrap
	clusterName    string
	clusterVersion Version
	keys           [2]Key // current, previous

	instances   []Instance   // in order of id; replaced whole by a change, like the slices below
	replicasets []Replicaset // in order of id
	tiers       []Tier       // in order of id
	shards      []Shard      // data shards in order of id
	moves       []Move       // in order of tier and first bucket
	metaShard   Shard

	nextInstance   uint64 // the last ids given out
	nextReplicaset uint64
	nextShard      uint64

	nextNode uint64 // the last node id given out; ids start at 1
	// Invariant: the four trees hold the same records: nodes has all of them, ids has all of them,
	// pending those with pending(), rated those with a quota of requests. Invariant: the parent of
	// every node is a node; and it is not being dropped.
	nodes     tree[string, *Node]
	ids       tree[uint64, *Node]
	pending   tree[uint64, *Node]
	withQuota tree[uint64, *Node]

	rights         []Right // in order of prefix and identity
	rightsRevision uint64  // the revision of the last change to rights

	authOn       bool    // rights are enforced
	tokens       []Token // in order of id
	authRevision uint64  // the revision of the last change to authOn, tokens or rights

	// Invariant: ops and opOrder are inverse to one another, and hold at most MaxOps.
	ops     tree[string, opEntry]
	opOrder tree[uint64, string]
	opCount uint64
}

// Bootstrapped says that the cluster exists.
func (s *State) Bootstrapped() bool { return s.cluster != "" }

// Cluster is the cluster's id, empty before the bootstrap.
func (s *State) Cluster() string { return s.cluster }

// ClusterName is the cluster's name for people.
func (s *State) ClusterName() string { return s.clusterName }

// ClusterVersion is the version whose rules apply: not above that of any instance.
func (s *State) ClusterVersion() Version { return s.clusterVersion }

// Revision counts the commands that changed something.
func (s *State) Revision() uint64 { return s.revision }

// MapVersion is the revision of the last change of what clients route by: addresses of members,
// which of them host which shards, masters, runs of buckets.
func (s *State) MapVersion() uint64 { return s.mapVersion }

// AppliedIndex is the log index of the last entry that was applied.
func (s *State) AppliedIndex() uint64 { return s.applied }

// Node finds a node by id, in any phase.
func (s *State) Node(id uint64) (Node, bool) {
	n, ok := s.ids.get(id)
	if !ok {
		return Node{}, false
	}
	return *n, true
}

// NodeAt finds a node by path, in any phase: see Node.Visible.
func (s *State) NodeAt(path string) (Node, bool) {
	n, ok := s.nodes.get(path)
	if !ok {
		return Node{}, false
	}
	return *n, true
}

// NumNodes counts nodes in every phase.
func (s *State) NumNodes() int { return s.nodes.len() }

// LastNode is the highest node id ever given out.
func (s *State) LastNode() uint64 { return s.nextNode }

// Nodes yields the nodes whose path starts with the prefix and is not below from, in byte order of
// the path, in every phase. The prefix is one of bytes: "/a" is one of "/ab" too.
func (s *State) Nodes(prefix, from string) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for path, n := range s.nodes.from(max(prefix, from)) {
			if !strings.HasPrefix(path, prefix) || !yield(*n) {
				return
			}
		}
	}
}

// Pending yields, in order of id, the nodes with unfinished changes: those not ready, and those
// with a grace floor. A parent comes before its children.
func (s *State) Pending() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range s.pending.all() {
			if !yield(*n) {
				return
			}
		}
	}
}

// NodesWithQuota yields, in order of id, the nodes with a quota of requests a second, in any phase.
func (s *State) NodesWithQuota() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, n := range s.withQuota.all() {
			if !yield(*n) {
				return
			}
		}
	}
}

// putNode keeps the four trees consistent.
func (s *State) putNode(n *Node) {
	s.nodes = s.nodes.put(n.Path, n)
	s.ids = s.ids.put(n.ID, n)
	if n.pending() {
		s.pending = s.pending.put(n.ID, n)
	} else {
		s.pending = s.pending.without(n.ID)
	}
	if n.Config.MaxRequests > 0 {
		s.withQuota = s.withQuota.put(n.ID, n)
	} else {
		s.withQuota = s.withQuota.without(n.ID)
	}
}

func (s *State) removeNode(n *Node) {
	s.nodes = s.nodes.without(n.Path)
	s.ids = s.ids.without(n.ID)
	s.pending = s.pending.without(n.ID)
	s.withQuota = s.withQuota.without(n.ID)
}

// anyChild is some node below path.
func (s *State) anyChild(path string) (*Node, bool) {
	below := path + "/"
	for p, n := range s.nodes.from(below) {
		return n, strings.HasPrefix(p, below)
	}
	return nil, false
}
