package meta

import "slices"

// checkCluster checks the records of members and groups against one another.
func checkCluster(s *State) error {
	if s.metaShard.ID != MetaShardID || s.metaShard.Tier != 0 || s.metaShard.Replicaset != 0 {
		return broken("the meta shard has no record")
	}
	if s.nextShard > MaxShardID || max(s.nextInstance, s.nextReplicaset) > maxCounter {
		return broken("a counter has no room left")
	}
	if !votersRemain(s, func(*Instance) bool { return false }) {
		return broken("nobody who may vote is left")
	}
	if err := checkInstances(s); err != nil {
		return err
	}
	if err := checkReplicasets(s); err != nil {
		return err
	}
	for i := range s.shards {
		if err := checkShard(s, &s.shards[i]); err != nil {
			return err
		}
	}
	if err := checkGroup(s, &s.metaShard); err != nil {
		return err
	}
	return checkMoves(s)
}

func checkInstances(s *State) error {
	names, uuids, addresses := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range s.instances {
		in := &s.instances[i]
		set, ok := s.Replicaset(in.Replicaset)
		if _, tier := s.Tier(in.Tier); !tier || !ok || set.Tier != in.Tier || in.ID == 0 || in.ID > s.nextInstance {
			return broken("instance %d is of no replicaset or tier, or its id was not given out", in.ID)
		}
		if in.Current.Variant > Expelled || in.Target.Variant > Expelled ||
			max(in.Current.Incarnation, in.Target.Incarnation) > maxCounter || !canonical(in.Domain) {
			return broken("the state or failure domain of instance %d is none", in.ID)
		}
		if in.Expelled() && in.Target.Variant != Expelled {
			return broken("instance %d is expelled, and is not to be", in.ID)
		}
		if in.UUID != "" && uuids[in.UUID] ||
			!in.Expelled() && (names[in.Name] || in.RaftAddress != "" && addresses[in.RaftAddress]) {
			return broken("instance %d has the uuid, name or raft address of another one", in.ID)
		}
		uuids[in.UUID] = true
		if !in.Expelled() {
			names[in.Name], addresses[in.RaftAddress] = true, true
		}
	}
	return nil
}

func checkReplicasets(s *State) error {
	names := map[string]bool{}
	members := map[uint64]uint64{} // one of each replicaset
	for i := range s.instances {
		if in := &s.instances[i]; !in.Expelled() {
			members[in.Replicaset] = in.ID
		}
	}
	for _, set := range s.replicasets {
		if _, ok := s.Tier(set.Tier); !ok || set.ID == 0 || set.ID > s.nextReplicaset ||
			set.Phase > ReplicasetExpelled || set.Weight > maxWeight {
			return broken("replicaset %d is of no tier, phase or weight that there is", set.ID)
		}
		if set.Phase >= ToBeExpelled && set.Weight != 0 {
			return broken("replicaset %d goes, with weight %d", set.ID, set.Weight)
		}
		if set.Phase != ReplicasetExpelled {
			if names[set.Name] {
				return broken("replicaset %d has the name of another one", set.ID)
			}
			names[set.Name] = true
			continue
		}
		if in, ok := members[set.ID]; ok {
			return broken("replicaset %d is expelled, but not its instance %d", set.ID, in)
		}
	}
	return nil
}

func checkShard(s *State, x *Shard) error {
	t, ok := s.Tier(x.Tier)
	set, known := s.Replicaset(x.Replicaset)
	if !ok || x.ID == 0 || x.ID > s.nextShard || x.ID > MaxShardID {
		return broken("shard %d is of no tier, or its id is out of range", x.ID)
	}
	if !known || set.Tier != x.Tier || set.Phase == ReplicasetExpelled {
		return broken("shard %d is of no replicaset that could have it", x.ID)
	}
	if x.Ready && !t.Bootstrapped {
		return broken("shard %d is ready before its tier's buckets were assigned", x.ID)
	}
	for _, r := range x.Replicas {
		if i, _ := s.Instance(r.Instance); i.Replicaset != x.Replicaset {
			return broken("instance %d has a replica of shard %d of another replicaset", r.Instance, x.ID)
		}
	}
	return checkGroup(s, x)
}

// checkGroup checks the replicas of a data shard or the meta shard.
func checkGroup(s *State, x *Shard) error {
	last, voters := uint64(0), 0
	on := map[uint64]bool{0: true} // no master
	for _, r := range x.Replicas {
		if _, ok := s.Instance(r.Instance); !ok || on[r.Instance] || r.Replica <= last ||
			r.Replica > min(x.NextReplica, maxCounter) {
			return broken("replica %d of %s is out of order, or on no instance of its own", r.Replica, x)
		}
		if r.Role > RoleVoter || r.TargetRole > RoleVoter || (r.TargetRole != RoleNone && r.TargetRole < r.Role) {
			return broken("replica %d of %s is %s and shall be %s", r.Replica, x, r.Role, r.TargetRole)
		}
		if r.Role == RoleVoter && r.TargetRole == RoleVoter {
			voters++
		}
		on[r.Instance] = true
		last = r.Replica
	}
	if voters == 0 || x.NextReplica > maxCounter {
		return broken("%s has no voter that stays", x)
	}
	if !on[x.Master] || !on[x.TargetMaster] {
		return broken("%s is led by instance %d, and shall be by %d, of which one has no replica",
			x, x.Master, x.TargetMaster)
	}
	return nil
}

func checkMoves(s *State) error {
	for i := range s.moves {
		m := &s.moves[i]
		t, ok := s.Tier(m.Tier)
		from, known := findShard(s.shards, m.From)
		to, also := findShard(s.shards, m.To)
		if !ok || !known || !also || m.From == m.To || s.shards[from].Tier != m.Tier || s.shards[to].Tier != m.Tier {
			return broken("the move of bucket %d is from or to no shard of its tier", m.First)
		}
		end := uint64(m.First) + uint64(m.Count)
		if m.Count == 0 || end > uint64(t.Buckets) || m.Epoch > maxCounter {
			return broken("a move of %d buckets from %d is of none that there are", m.Count, m.First)
		}
		if i > 0 && s.moves[i-1].Tier == m.Tier &&
			uint64(s.moves[i-1].First)+uint64(s.moves[i-1].Count) > uint64(m.First) {
			return broken("bucket %d is in two moves", m.First)
		}
		first := t.runAt(m.First)
		last := first +
			slices.IndexFunc(t.Runs[first:], func(r Run) bool { return uint64(r.First)+uint64(r.Count) >= end })
		for _, run := range t.Runs[first : last+1] {
			fits := false
			switch m.Phase {
			case Moving:
				fits = run.Shard == m.From && run.Epoch < m.Epoch
			case Committed:
				fits = run.Shard == m.To && run.Epoch == m.Epoch
			case Aborted:
				fits = run.Shard == m.From && run.Epoch == m.Epoch+1
			}
			if !fits {
				return broken("bucket %d is in a %s move from %d to %d under epoch %d, and is shard %d's under %d",
					max(run.First, m.First), m.Phase, m.From, m.To, m.Epoch, run.Shard, run.Epoch)
			}
		}
	}
	return nil
}
