package meta

import "github.com/signalbox-dev/signalbox/protocol"

// Records of the state as snapshots and digests have them. The order of the fields is format
// version 1.

// appendHead appends everything but nodes, ops and the applied index.
func (s *State) appendHead(b []byte) []byte {
	b = appendUint(b, s.revision)
	b = appendUint(b, s.mapVersion)
	b = appendText(b, s.cluster)
	b = appendText(b, s.clusterName)
	b = s.clusterVersion.append(b)
	for i := range s.keys {
		b = appendUint(b, s.keys[i].ID)
		b = append(b, s.keys[i].Secret[:]...)
	}
	b = appendUint(b, uint64(len(s.instances)))
	for i := range s.instances {
		b = s.instances[i].append(b)
	}
	b = appendUint(b, uint64(len(s.replicasets)))
	for i := range s.replicasets {
		b = s.replicasets[i].append(b)
	}
	b = appendUint(b, uint64(len(s.tiers)))
	for i := range s.tiers {
		b = s.tiers[i].append(b)
	}
	b = appendUint(b, uint64(len(s.shards)))
	for i := range s.shards {
		b = s.shards[i].append(b)
	}
	b = appendUint(b, uint64(len(s.moves)))
	for i := range s.moves {
		b = s.moves[i].append(b)
	}
	b = s.metaShard.append(b)
	b = appendUint(b, s.nextInstance)
	b = appendUint(b, s.nextReplicaset)
	b = appendUint(b, s.nextShard)
	b = appendUint(b, s.nextNode)
	b = appendUint(b, uint64(len(s.rights)))
	for i := range s.rights {
		b = s.rights[i].append(b)
	}
	b = appendUint(b, s.rightsRevision)
	b = appendBool(b, s.authOn)
	b = appendUint(b, uint64(len(s.tokens)))
	for i := range s.tokens {
		b = s.tokens[i].append(b)
	}
	b = appendUint(b, s.authRevision)
	return appendUint(b, s.opCount)
}

func (s *State) decodeHead(r *reader) {
	s.revision = r.uint()
	s.mapVersion = r.uint()
	s.cluster = r.text(maxName)
	s.clusterName = r.text(maxName)
	s.clusterVersion = r.version()
	for i := range s.keys {
		s.keys[i].ID = r.uint()
		r.into(s.keys[i].Secret[:])
	}
	s.instances = list(r, maxInstances, (*reader).instance)
	s.replicasets = list(r, maxInstances, (*reader).replicaset)
	s.tiers = list(r, MaxTiers, (*reader).tier)
	s.shards = list(r, MaxShards, (*reader).shard)
	s.moves = list(r, maxMoves, (*reader).move)
	s.metaShard = r.shard()
	s.nextInstance = r.uint()
	s.nextReplicaset = r.uint()
	s.nextShard = r.uint()
	s.nextNode = r.uint()
	s.rights = list(r, maxRights, (*reader).right)
	s.rightsRevision = r.uint()
	s.authOn = r.bool()
	s.tokens = list(r, maxTokens, (*reader).token)
	s.authRevision = r.uint()
	s.opCount = r.uint()
}

// list reads a list. It grows with the bytes that are there: a count alone allocates nothing.
func list[T any](r *reader, most int, element func(*reader) T) []T {
	n := r.count(most)
	if n == 0 {
		return nil
	}
	var all []T
	for range n {
		all = append(all, element(r))
		if r.bad {
			return nil
		}
	}
	return all
}

func (i *Instance) append(b []byte) []byte {
	b = appendUint(b, i.ID)
	b = appendText(b, i.UUID)
	b = appendText(b, i.Name)
	b = appendText(b, i.Address)
	b = appendText(b, i.RaftAddress)
	b = append(b, i.Tier)
	b = appendUint(b, i.Replicaset)
	b = appendDomain(b, i.Domain)
	b = i.Version.append(b)
	b = i.Current.append(b)
	b = i.Target.append(b)
	b = appendText(b, i.Reason)
	b = appendUint(b, i.ChangedAt)
	b = appendBool(b, i.Drained)
	return appendUint(b, i.Revision)
}

func (r *reader) instance() Instance {
	return Instance{
		ID:          r.uint(),
		UUID:        r.text(maxUUID),
		Name:        r.text(maxGeneratedName),
		Address:     r.text(maxAddress),
		RaftAddress: r.text(maxAddress),
		Tier:        r.byte(),
		Replicaset:  r.uint(),
		Domain:      r.domain(),
		Version:     r.version(),
		Current:     r.instanceState(),
		Target:      r.instanceState(),
		Reason:      r.text(maxReason),
		ChangedAt:   r.uint(),
		Drained:     r.bool(),
		Revision:    r.uint(),
	}
}

func (s InstanceState) append(b []byte) []byte {
	b = append(b, byte(s.Variant))
	return appendUint(b, s.Incarnation)
}

func (r *reader) instanceState() InstanceState { return InstanceState{Variant(r.byte()), r.uint()} }

func (x *Replicaset) append(b []byte) []byte {
	b = appendUint(b, x.ID)
	b = appendText(b, x.UUID)
	b = appendText(b, x.Name)
	b = append(b, x.Tier, byte(x.Phase))
	b = appendUint(b, uint64(x.Weight))
	b = appendBool(b, x.WeightByUser)
	return appendUint(b, x.Revision)
}

func (r *reader) replicaset() Replicaset {
	return Replicaset{
		ID:           r.uint(),
		UUID:         r.text(maxUUID),
		Name:         r.text(maxGeneratedName),
		Tier:         r.byte(),
		Phase:        ReplicasetPhase(r.byte()),
		Weight:       r.uint32(),
		WeightByUser: r.bool(),
		Revision:     r.uint(),
	}
}

func (t *Tier) append(b []byte) []byte {
	b = append(b, t.ID)
	b = appendText(b, t.Name)
	b = appendUint(b, uint64(t.Buckets))
	b = appendUint(b, uint64(t.ReplicationFactor))
	b = appendUint(b, uint64(t.ShardsPerReplicaset))
	b = appendBool(b, t.CanVote)
	b = appendBool(b, t.Bootstrapped)
	b = appendUint(b, uint64(len(t.Runs)))
	for _, run := range t.Runs {
		b = appendUint(b, uint64(run.Count))
		b = appendUint(b, run.Shard)
		b = appendUint(b, run.Epoch)
	}
	return b
}

func (r *reader) tier() Tier {
	t := Tier{
		ID:                  r.byte(),
		Name:                r.text(maxName),
		Buckets:             r.uint32(),
		ReplicationFactor:   r.uint32(),
		ShardsPerReplicaset: r.uint32(),
		CanVote:             r.bool(),
		Bootstrapped:        r.bool(),
	}
	t.Runs = list(r, MaxBuckets, func(r *reader) Run { return Run{Count: r.uint32(), Shard: r.uint(), Epoch: r.uint()} })
	first := uint32(0)
	for i := range t.Runs {
		t.Runs[i].First = first
		first += t.Runs[i].Count
	}
	return t
}

func (x *Shard) append(b []byte) []byte {
	b = appendUint(b, x.ID)
	b = append(b, x.Tier)
	b = appendUint(b, x.Replicaset)
	b = appendUint(b, uint64(len(x.Replicas)))
	for i := range x.Replicas {
		b = x.Replicas[i].append(b)
	}
	b = appendUint(b, x.NextReplica)
	b = appendUint(b, x.Master)
	b = appendUint(b, x.TargetMaster)
	b = appendBool(b, x.Ready)
	return appendUint(b, x.Revision)
}

func (r *reader) shard() Shard {
	return Shard{
		ID:           r.uint(),
		Tier:         r.byte(),
		Replicaset:   r.uint(),
		Replicas:     list(r, maxInstances, (*reader).replica),
		NextReplica:  r.uint(),
		Master:       r.uint(),
		TargetMaster: r.uint(),
		Ready:        r.bool(),
		Revision:     r.uint(),
	}
}

func (x *Replica) append(b []byte) []byte {
	b = appendUint(b, x.Instance)
	b = appendUint(b, x.Replica)
	b = append(b, byte(x.Role), byte(x.TargetRole))
	return appendBool(b, x.Founder)
}

func (r *reader) replica() Replica {
	return Replica{Instance: r.uint(), Replica: r.uint(), Role: Role(r.byte()), TargetRole: Role(r.byte()), Founder: r.bool()}
}

func (m *Move) append(b []byte) []byte {
	b = append(b, m.Tier)
	b = appendUint(b, uint64(m.First))
	b = appendUint(b, uint64(m.Count))
	b = appendUint(b, m.From)
	b = appendUint(b, m.To)
	b = appendUint(b, m.Epoch)
	return append(b, byte(m.Phase))
}

func (r *reader) move() Move {
	return Move{
		Tier: r.byte(), First: r.uint32(), Count: r.uint32(), From: r.uint(), To: r.uint(), Epoch: r.uint(), Phase: MovePhase(r.byte()),
	}
}

func (n *Node) append(b []byte) []byte {
	b = appendUint(b, n.ID)
	b = appendText(b, n.Path)
	b = append(b, n.Tier, byte(n.Phase))
	b = appendUint(b, n.Revision)
	b = appendConfig(b, &n.Config)
	b = appendUint(b, uint64(n.SetFields))
	b = appendUint(b, n.GraceFloor)
	return appendUint(b, n.CreatedAt)
}

func (r *reader) node() *Node {
	return &Node{
		ID:         r.uint(),
		Path:       r.text(protocol.MaxPathLen),
		Tier:       r.byte(),
		Phase:      NodePhase(r.byte()),
		Revision:   r.uint(),
		Config:     r.config(),
		SetFields:  r.uint32(),
		GraceFloor: r.uint(),
		CreatedAt:  r.uint(),
	}
}

func appendOp(b []byte, op string, e *opEntry) []byte {
	b = appendUint(b, e.number)
	b = append(b, op...)
	return e.result.append(b)
}

func (r *reader) op() (op string, e opEntry) {
	var id OpID
	e.number = r.uint()
	r.into(id[:])
	e.result = r.result()
	return string(id[:]), e
}
