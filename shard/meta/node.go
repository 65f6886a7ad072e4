package meta

import (
	"iter"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// MaxNodes bounds the coordination nodes of a cluster. Part of format version 1.
const MaxNodes = 1_000_000

// NodePhase is a node's phase. Every change takes two: the first command decides it, all shards get
// it, then NodeCommit finishes it. A decided change is never undone.
type NodePhase uint8

const (
	Creating NodePhase = 1 // the path is taken; describe does not find the node yet
	Ready    NodePhase = 2
	Altering NodePhase = 3 // describe shows the new config; not all shards have it
	Dropping NodePhase = 4 // describe does not find it; the path is free when all shards have dropped it
)

// String is the phase's word.
func (p NodePhase) String() string {
	return word(p, "", "creating", "ready", "altering", "dropping")
}

// Node is the record of a coordination node.
type Node struct {
	ID    uint64 // never reused
	Path  string
	Tier  uint8 // for good
	Phase NodePhase
	// Revision starts at 1 and grows with each decided change. Invariant: a revision goes through
	// one phase, then possibly Ready.
	Revision  uint64
	Config    protocol.NodeConfig // effective and complete, as described
	SetFields uint32              // protocol.Field bits that a user set; the rest are defaults
	// GraceFloor, in ms, is the highest grace period that a former leader of some shard may still
	// go by after alters lowered it; 0 for none. Invariant: 0 or above Config.GracePeriod.
	GraceFloor uint64
	CreatedAt  uint64 // wall clock, ms since 1970, for display
	// TokenFloor is below every fencing token of the node, and not below those of any node that was
	// deleted before this one was made.
	TokenFloor uint64
}

// Visible reports whether describe and list find the node.
func (n *Node) Visible() bool { return n.Phase == Ready || n.Phase == Altering }

func (n *Node) pending() bool { return n.Phase != Ready || n.GraceFloor != 0 }

// ShardRevision and ShardConfig are what shards get: first the config with a grace period not below
// the floor, then, when final, the config as it is, under the next revision.
func (n *Node) ShardRevision(final bool) uint64 {
	if final {
		return 2*n.Revision + 1
	}
	return 2 * n.Revision
}

// ShardConfig: see ShardRevision.
func (n *Node) ShardConfig(final bool) protocol.NodeConfig {
	c := n.Config
	if !final {
		c.GracePeriod = max(c.GracePeriod, n.GraceFloor)
	}
	return c
}

// Info is the node, of the state, for clients.
func (n *Node) Info(s *State) protocol.NodeInfo {
	t, _ := s.Tier(n.Tier)
	return protocol.NodeInfo{ID: n.ID, Path: n.Path, Tier: n.Tier, Revision: n.Revision,
		Config: n.Config, CreatedAt: n.CreatedAt, TierName: t.Name}
}

// wellFormed reports whether path has the shape on which the tree of nodes depends: "/" before
// every segment, no empty segment. The proposer checks the characters (protocol.ValidatePath): that
// rule may change between versions, the meaning of an old log must not.
func wellFormed(path string) bool {
	return len(path) >= 2 && len(path) <= protocol.MaxPathLen && path[0] == '/' &&
		path[len(path)-1] != '/' && !strings.Contains(path, "//")
}

// ancestors yields the paths above a well-formed path, from the top down.
func ancestors(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 1; i < len(path); i++ {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
	}
}

// Parent is the path above, empty for a top one.
func Parent(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }
