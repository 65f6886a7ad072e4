package meta

import "github.com/signalbox-dev/signalbox/protocol"

// Records of the state as snapshots and digests have them. The order of the fields is format
// version 1.

// headFields are all but nodes, ops and the applied index.
func (s *State) headFields(f *codec) {
	f.uint(&s.revision)
	f.uint(&s.mapVersion)
	f.text(&s.cluster, maxName)
	f.text(&s.clusterName, maxName)
	s.clusterVersion.fields(f)
	for i := range s.keys {
		f.uint(&s.keys[i].ID)
		f.fixed(s.keys[i].Secret[:])
	}
	listField(f, &s.instances, maxInstances, (*Instance).fields)
	listField(f, &s.replicasets, maxInstances, (*Replicaset).fields)
	listField(f, &s.tiers, MaxTiers, (*Tier).fields)
	listField(f, &s.shards, MaxShards, (*Shard).fields)
	listField(f, &s.moves, maxMoves, (*Move).fields)
	s.metaShard.fields(f)
	f.uint(&s.nextInstance)
	f.uint(&s.nextReplicaset)
	f.uint(&s.nextShard)
	f.uint(&s.nextNode)
	listField(f, &s.rights, maxRights, (*Right).fields)
	f.uint(&s.rightsRevision)
	f.bool(&s.authOn)
	listField(f, &s.tokens, maxTokens, (*Token).fields)
	f.uint(&s.authRevision)
	f.uint(&s.opCount)
}

func (i *Instance) fields(f *codec) {
	f.uint(&i.ID)
	f.text(&i.UUID, maxUUID)
	f.text(&i.Name, maxGeneratedName)
	f.text(&i.Address, maxAddress)
	f.text(&i.RaftAddress, maxAddress)
	byteField(f, &i.Tier)
	f.uint(&i.Replicaset)
	f.domain(&i.Domain)
	i.Version.fields(f)
	i.Current.fields(f)
	i.Target.fields(f)
	f.text(&i.Reason, maxReason)
	f.uint(&i.ChangedAt)
	f.bool(&i.Drained)
	f.uint(&i.Revision)
}

func (s *InstanceState) fields(f *codec) {
	byteField(f, &s.Variant)
	f.uint(&s.Incarnation)
}

func (x *Replicaset) fields(f *codec) {
	f.uint(&x.ID)
	f.text(&x.UUID, maxUUID)
	f.text(&x.Name, maxGeneratedName)
	byteField(f, &x.Tier)
	byteField(f, &x.Phase)
	f.uint32(&x.Weight)
	f.bool(&x.WeightByUser)
	f.uint(&x.Revision)
}

func (t *Tier) fields(f *codec) {
	byteField(f, &t.ID)
	f.text(&t.Name, maxName)
	f.uint32(&t.Buckets)
	f.uint32(&t.ReplicationFactor)
	f.uint32(&t.ShardsPerReplicaset)
	f.bool(&t.CanVote)
	f.bool(&t.Bootstrapped)
	first := uint32(0)
	listField(f, &t.Runs, MaxBuckets, func(run *Run, f *codec) {
		f.uint32(&run.Count)
		f.uint(&run.Shard)
		f.uint(&run.Epoch)
		if f.r != nil {
			run.First = first
			first += run.Count
		}
	})
}

func (x *Shard) fields(f *codec) {
	f.uint(&x.ID)
	byteField(f, &x.Tier)
	f.uint(&x.Replicaset)
	listField(f, &x.Replicas, maxInstances, (*Replica).fields)
	f.uint(&x.NextReplica)
	f.uint(&x.Master)
	f.uint(&x.TargetMaster)
	f.bool(&x.Ready)
	f.uint(&x.Revision)
}

func (x *Replica) fields(f *codec) {
	f.uint(&x.Instance)
	f.uint(&x.Replica)
	byteField(f, &x.Role)
	byteField(f, &x.TargetRole)
	f.bool(&x.Founder)
}

func (m *Move) fields(f *codec) {
	byteField(f, &m.Tier)
	f.uint32(&m.First)
	f.uint32(&m.Count)
	f.uint(&m.From)
	f.uint(&m.To)
	f.uint(&m.Epoch)
	byteField(f, &m.Phase)
}

func (n *Node) fields(f *codec) {
	f.uint(&n.ID)
	f.text(&n.Path, protocol.MaxPathLen)
	byteField(f, &n.Tier)
	byteField(f, &n.Phase)
	f.uint(&n.Revision)
	f.config(&n.Config)
	f.uint32(&n.SetFields)
	f.uint(&n.GraceFloor)
	f.uint(&n.CreatedAt)
}

// opRecord is a remembered op in a snapshot.
type opRecord struct {
	op OpID
	opEntry
}

func (o *opRecord) fields(f *codec) {
	f.uint(&o.number)
	f.fixed(o.op[:])
	o.result.fields(f)
}
