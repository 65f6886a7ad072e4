package governor

import "fmt"

// String is the step in a line, for logs and plans.
func (s Step) String() string {
	text := s.Kind.String()
	add := func(format string, args ...any) { text += " " + fmt.Sprintf(format, args...) }
	if s.Instance != 0 {
		add("instance=%d", s.Instance)
	}
	if s.Replicaset != 0 {
		add("replicaset=%d", s.Replicaset)
	}
	if s.Shard != 0 {
		add("shard=%d", s.Shard)
	}
	if s.Replica != 0 {
		add("replica=%d", s.Replica)
	}
	switch s.Kind {
	case ActivateBuckets:
		add("buckets=%d..%d of %d", s.First, s.First+s.Count-1, s.Total)
	case PutNode:
		add("node=%d revision=%d grace=%d", s.Node, s.Revision, s.Config.GracePeriod)
	case DropNode:
		add("node=%d", s.Node)
	case ClearGraceFloor:
		add("node=%d revision=%d", s.Node, s.Revision)
	case SyncNodes:
		if s.Path != "" {
			add("from=%s", s.Path)
		}
	case CommitNodes:
		for _, n := range s.Nodes {
			add("%d@%d", n.Node, n.Revision)
		}
	case SetCurrentState:
		add("state=%s", s.State)
	case SetTargetRole:
		add("role=%s", s.Role)
	case RaiseVersion:
		add("version=%s", s.Version)
	case AssignBuckets:
		add("tier=%d", s.Tier)
	case AddShard:
		add("has=%d", s.Count)
	case BeginMove, FreezeMove, CopyMove, CommitMove, AbortMove, ActivateMove, DiscardMove, EndMove:
		if s.To != 0 {
			add("to=%d", s.To)
		}
		add("buckets=%d..%d", s.First, s.First+s.Count-1)
		if s.Epoch != 0 {
			add("epoch=%d", s.Epoch)
		}
	}
	if s.At != 0 {
		add("at=%s", s.At)
	}
	return text
}
