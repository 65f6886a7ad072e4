package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// NodeCreate decides to create a node and the missing nodes above it.
//
// ALREADY_EXISTS if the path is taken. ABORTED if the node at the path is being created, or it or
// one above it is being dropped.
type NodeCreate struct {
	Path      string
	Tier      uint8
	Config    protocol.NodeConfig // effective and complete
	SetFields uint32
	Parent    protocol.NodeConfig // config of missing parents: the proposer's defaults
	Wall      uint64              // ms since 1970, for display
}

func (*NodeCreate) kind() Kind { return KindNodeCreate }

func (c *NodeCreate) fields(f *varint.Fields) {
	f.Text(&c.Path, protocol.MaxPathLen)
	varint.Byte(f, &c.Tier)
	configFields(f, &c.Config)
	f.Uint32(&c.SetFields)
	configFields(f, &c.Parent)
	f.Uint(&c.Wall)
}

func (c *NodeCreate) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if !wellFormed(c.Path) {
		return refuse(protocol.StatusBadRequest, "%q is no path; write it as /segment/segment", c.Path)
	}
	if _, ok := s.Tier(c.Tier); !ok {
		return refuse(protocol.StatusBadRequest, "there is no tier %d", c.Tier)
	}
	if n, ok := s.nodes.get(c.Path); ok {
		// describe does not find it, so ALREADY_EXISTS would contradict that
		if n.Phase == Dropping || n.Phase == Creating {
			return changeInProgress(n)
		}
		return refuse(protocol.StatusAlreadyExists, "coordination node %s exists", c.Path)
	}
	for path := range ancestors(c.Path) {
		n, ok := s.nodes.get(path)
		switch {
		case !ok:
			s.addNode(path, c.Tier, c.Parent, 0, c.Wall)
		case n.Phase == Dropping:
			return changeInProgress(n)
		}
	}
	n := s.addNode(c.Path, c.Tier, c.Config, c.SetFields, c.Wall)
	if s.nodes.len() > MaxNodes {
		return refuse(protocol.StatusPreconditionFailed, "the cluster has its %d coordination nodes; delete some first",
			MaxNodes)
	}
	return Result{Node: n.ID, Version: n.Revision}
}

// changeInProgress refuses until the pending change is finished.
func changeInProgress(n *Node) Result {
	if n.Phase == Dropping {
		return refuse(protocol.StatusAborted, "coordination node %s is being deleted; retry", n.Path)
	}
	if n.Phase == Creating {
		return refuse(protocol.StatusAborted, "coordination node %s is being made; retry", n.Path)
	}
	return refuse(protocol.StatusAborted, "another change of coordination node %s is under way; retry", n.Path)
}

func nodeNotFound(path string) Result {
	res := refuse(protocol.StatusNotFound, "there is no coordination node %s", path)
	res.Refusal = protocol.RefusalNoNode
	return res
}

// nodeToChange is the node that an alter or drop means: the one with this path and id. A proposer
// whose own state has no such node sends id 0, and learns whether it is right.
func (t *nodeMap) nodeToChange(path string, id uint64) (*Node, Result) {
	n, ok := t.nodes.get(path)
	switch {
	case !ok, n.Phase == Creating, n.Phase == Dropping && n.ID == id:
		return nil, nodeNotFound(path)
	case n.ID != id:
		if n.Phase == Dropping {
			return nil, nodeNotFound(path)
		}
		return nil, refuse(protocol.StatusAborted,
			"coordination node %s was created again in the meantime; look again and retry", path)
	}
	return n, Result{}
}

// NodeAlter decides on a new config.
//
// NOT_FOUND if there is no such node. ABORTED if another change is pending, or Revision is not the
// node's: the proposer made Config from an older one.
type NodeAlter struct {
	Path      string
	Node      uint64
	Revision  uint64
	Config    protocol.NodeConfig // effective and complete
	SetFields uint32
}

func (*NodeAlter) kind() Kind { return KindNodeAlter }

func (c *NodeAlter) fields(f *varint.Fields) {
	f.Text(&c.Path, protocol.MaxPathLen)
	f.Uint(&c.Node, &c.Revision)
	configFields(f, &c.Config)
	f.Uint32(&c.SetFields)
}

func (c *NodeAlter) apply(s *State) Result {
	old, res := s.nodeToChange(c.Path, c.Node)
	switch {
	case old == nil:
		return res
	case old.Phase != Ready:
		return changeInProgress(old)
	case old.Revision != c.Revision:
		return refuse(protocol.StatusAborted,
			"coordination node %s was altered in the meantime; look again and retry", c.Path)
	}
	n := *old
	n.Phase = Altering
	n.Revision++
	n.Config = c.Config
	n.SetFields = c.SetFields
	// The floor only rises here. It ends when the config itself reaches it.
	if n.GraceFloor = max(old.GraceFloor, old.Config.GracePeriod); n.GraceFloor <= n.Config.GracePeriod {
		n.GraceFloor = 0
	}
	s.putNode(&n)
	return Result{Node: n.ID, Version: n.Revision}
}

// NodeDrop decides to drop a node.
//
// NOT_FOUND if there is no such node; PRECONDITION_FAILED if it has child nodes, or its tier is to
// be restored: the backup may have data of it. ABORTED if another change is pending.
type NodeDrop struct {
	Path string
	Node uint64
}

func (*NodeDrop) kind() Kind { return KindNodeDrop }

func (c *NodeDrop) fields(f *varint.Fields) {
	f.Text(&c.Path, protocol.MaxPathLen)
	f.Uint(&c.Node)
}

func (c *NodeDrop) apply(s *State) Result {
	old, res := s.nodeToChange(c.Path, c.Node)
	switch {
	case old == nil:
		return res
	case old.Phase != Ready:
		return changeInProgress(old)
	}
	if below, ok := s.anyChild(c.Path); ok {
		if below.Phase == Dropping {
			return changeInProgress(below)
		}
		return refuse(protocol.StatusPreconditionFailed,
			"coordination node %s has nodes below it, %s for one; delete them first", c.Path, below.Path)
	}
	if t, _ := s.Tier(old.Tier); t.ToBeRestored() {
		return t.refuseUnrestored()
	}
	n := *old
	n.Phase = Dropping
	n.Revision++ // a repeated commit of the previous change must not finish this one
	n.GraceFloor = 0
	s.putNode(&n)
	return Result{Node: n.ID, Version: n.Revision}
}

// NodeRef identifies a pending change of a node.
type NodeRef struct {
	Node     uint64
	Revision uint64
}

func (c *NodeRef) fields(f *varint.Fields) {
	f.Uint(&c.Node, &c.Revision)
}

// MaxCommit is how many nodes one NodeCommit may name.
const MaxCommit = 1024

// NodeCommit finishes the pending changes of these nodes, which every shard has. It ignores a node
// that is gone, ready or at another revision: the change was finished. It also ignores a node whose
// parent is still being created; name the parent first.
type NodeCommit struct {
	Nodes []NodeRef
	// Tokens is the highest fencing token that any shard gave out for the nodes that are being
	// deleted, or a higher number. Nodes that are made from now on begin above it.
	Tokens uint64
}

func (*NodeCommit) kind() Kind { return KindNodeCommit }

func (c *NodeCommit) fields(f *varint.Fields) {
	varint.List(f, &c.Nodes, MaxCommit, (*NodeRef).fields)
	f.Uint(&c.Tokens)
}

func (c *NodeCommit) apply(s *State) Result {
	changed := false
	for _, ref := range c.Nodes {
		old, ok := s.ids.get(ref.Node)
		if !ok || old.Revision != ref.Revision || old.Phase == Ready {
			continue
		}
		if old.Phase == Dropping {
			s.removeNode(old)
			s.tokenFloor = max(s.tokenFloor, c.Tokens)
			changed = true
			continue
		}
		if up, ok := s.nodes.get(Parent(old.Path)); ok && up.Phase == Creating {
			continue
		}
		n := *old
		n.Phase = Ready
		s.putNode(&n)
		changed = true
	}
	if !changed {
		return Result{Revision: unchanged}
	}
	return Result{}
}

// GraceFloorClear removes a node's grace floor: one leader has led every shard for that long. It
// changes nothing unless the node is ready and at this revision.
type GraceFloorClear struct {
	NodeRef
}

func (*GraceFloorClear) kind() Kind { return KindGraceFloorClear }

func (c *GraceFloorClear) apply(s *State) Result {
	old, ok := s.ids.get(c.Node)
	if !ok || old.Revision != c.Revision || old.Phase != Ready || old.GraceFloor == 0 {
		return Result{Revision: unchanged}
	}
	n := *old
	n.GraceFloor = 0
	s.putNode(&n)
	return Result{Node: n.ID, Version: n.Revision}
}
