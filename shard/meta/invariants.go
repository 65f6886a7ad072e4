package meta

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Check returns the first broken invariant of the state. Every state that Apply makes passes, and
// only such states are restored.
func (s *State) Check() error {
	if !s.Bootstrapped() {
		records := len(s.instances) + len(s.replicasets) + len(s.tiers) + len(s.shards) + len(s.moves) +
			len(s.rights) + len(s.tokens) + len(s.trusts) + s.nodes.len()
		if records > 0 || s.authOn || s.metaShard.ID != 0 {
			return broken("there is a map without a cluster")
		}
		return nil
	}
	if s.keys[0].ID == 0 || max(s.keys[0].ID, s.nextNode, s.opCount) > maxCounter {
		return broken("there is no ticket key, or a counter has no room left")
	}
	if !slices.IsSortedFunc(s.instances, func(a, b Instance) int { return strictly(cmp.Compare(a.ID, b.ID)) }) ||
		!slices.IsSortedFunc(s.replicasets, func(a, b Replicaset) int { return strictly(cmp.Compare(a.ID, b.ID)) }) ||
		!slices.IsSortedFunc(s.tiers, func(a, b Tier) int { return strictly(cmp.Compare(a.ID, b.ID)) }) ||
		!slices.IsSortedFunc(s.shards, func(a, b Shard) int { return strictly(cmp.Compare(a.ID, b.ID)) }) ||
		!slices.IsSortedFunc(s.moves, func(a, b Move) int { return strictly(a.order(&b)) }) ||
		!slices.IsSortedFunc(s.rights, func(a, b Right) int { return strictly(a.order(&b)) }) ||
		!slices.IsSortedFunc(s.tokens, func(a, b Token) int { return strictly(strings.Compare(a.ID, b.ID)) }) ||
		!slices.IsSortedFunc(s.trusts, func(a, b Trust) int { return strictly(strings.Compare(a.Name, b.Name)) }) {
		return broken("a list is out of order")
	}
	for i := range s.rights {
		if p := s.rights[i].Prefix; p != "" && !wellFormed(p) {
			return broken("prefix %q is no path", p)
		}
	}
	hashes := map[[HashLen]byte]bool{}
	for i := range s.tokens {
		t := &s.tokens[i]
		if bad := t.check(); bad != "" || hashes[t.Hash] {
			return broken("token %q is not well formed, or shares its secret with another (%s)", t.ID, bad)
		}
		hashes[t.Hash] = true
	}
	for i := range s.trusts {
		if bad := s.trusts[i].check(); bad != "" {
			return broken("trust %q is not well formed (%s)", s.trusts[i].Name, bad)
		}
	}
	for i := range s.tiers {
		if err := checkTier(s, &s.tiers[i]); err != nil {
			return err
		}
	}
	if err := checkCluster(s); err != nil {
		return err
	}
	return checkNodes(s)
}

// maxCounter leaves room for more entries than any log has.
const maxCounter = 1 << 62

// strictly makes slices.IsSortedFunc strict: equal neighbours count as out of order.
func strictly(c int) int {
	if c == 0 {
		return -1
	}
	return c
}

func broken(format string, args ...any) error {
	return fmt.Errorf("the state of the meta shard breaks its own rules: "+format, args...)
}

func checkTier(s *State, t *Tier) error {
	if t.ID >= MaxTiers || t.Buckets > MaxBuckets {
		return broken("tier %d or its %d buckets do not fit into session ids", t.ID, t.Buckets)
	}
	if t.ReplicationFactor < 1 || t.ReplicationFactor > maxReplicationFactor || t.ShardsPerReplicaset < 1 ||
		t.ShardsPerReplicaset > MaxShards ||
		(t.Bootstrapped && t.Buckets == 0) {
		return broken("tier %d has replication factor %d and %d shards per replicaset",
			t.ID, t.ReplicationFactor, t.ShardsPerReplicaset)
	}
	if len(t.RaisedAt) >= int(t.ReplicationFactor) || slices.Contains(t.RaisedAt, 0) {
		return broken("tier %d has replication factor %d and %d times", t.ID, t.ReplicationFactor, len(t.RaisedAt))
	}
	if m := t.Restore; m != (RestoreMark{}) &&
		(t.Bootstrapped || t.Buckets == 0 || m.Backup == 0 || m.Epoch <= FirstEpoch || m.Epoch > maxCounter) {
		return broken("tier %d is to be restored from backup %016x under epoch %d", t.ID, m.Backup, m.Epoch)
	}
	if named, _ := s.TierByName(t.Name); named.ID != t.ID {
		return broken("tiers %d and %d have one name", named.ID, t.ID)
	}
	next := uint64(0)
	for i, run := range t.Runs {
		at, ok := findShard(s.shards, run.Shard)
		switch {
		case !t.Bootstrapped:
			ok = run.Shard == 0 && run.Epoch == 0 && len(t.Runs) == 1
		case ok:
			ok = s.shards[at].Tier == t.ID && run.Epoch >= FirstEpoch && run.Epoch <= maxCounter
		}
		if !ok || run.Count == 0 || uint64(run.First) != next {
			return broken("the runs of tier %d are not in order", t.ID)
		}
		if i > 0 && t.Runs[i-1].Shard == run.Shard && t.Runs[i-1].Epoch == run.Epoch {
			return broken("the runs of tier %d have neighbours that are one", t.ID)
		}
		next += uint64(run.Count)
	}
	if next != uint64(t.Buckets) {
		return broken("the runs of tier %d cover %d of %d buckets", t.ID, next, t.Buckets)
	}
	return nil
}

func checkNodes(s *State) error {
	if s.nodes.len() != s.ids.len() || s.ops.len() != s.opOrder.len() {
		return broken("the indexes of nodes or ops differ")
	}
	rated := 0
	for path, n := range s.nodes.all() {
		if n.Config.MaxRequests > 0 {
			rated++
			if r, ok := s.withQuota.get(n.ID); !ok || r != n {
				return broken("node %d is not among those with a quota of requests", n.ID)
			}
		}
		if path != n.Path || !wellFormed(path) || n.ID == 0 || n.ID > s.nextNode {
			return broken("node %d at %q is not in order", n.ID, path)
		}
		if n.Phase < Creating || n.Phase > Dropping || (n.GraceFloor != 0 && n.GraceFloor <= n.Config.GracePeriod) {
			return broken("node %d is in phase %d with grace floor %d", n.ID, n.Phase, n.GraceFloor)
		}
		if _, ok := s.Tier(n.Tier); !ok {
			return broken("node %d is of tier %d, which does not exist", n.ID, n.Tier)
		}
		if up := Parent(path); up != "" {
			p, ok := s.nodes.get(up)
			if !ok || p.Phase == Dropping || p.ID >= n.ID {
				return broken("node %d has no parent, or it came later, or is being dropped", n.ID)
			}
		}
	}
	if rated != s.withQuota.len() {
		return broken("%d nodes have a quota of requests, and %d are listed", rated, s.withQuota.len())
	}
	return nil
}
