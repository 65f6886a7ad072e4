package meta

import (
	"hash/crc64"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Records of the state as snapshots and digests have them. The order of the fields is format
// version 1.

// headFields are all but nodes, ops, trusts and the applied index.
func (s *State) headFields(f *varint.Fields) {
	f.Uint(&s.revision, &s.mapVersion)
	f.Text(&s.cluster, maxName)
	f.Text(&s.clusterName, maxName)
	f.Text(&s.clientCluster, maxName)
	s.clusterVersion.fields(f)
	f.Bool(&s.upgradeHeld)
	for i := range s.keys {
		f.Uint(&s.keys[i].ID)
		f.Fixed(s.keys[i].Secret[:])
	}
	varint.List(f, &s.instances, maxInstances, (*Instance).fields)
	varint.List(f, &s.replicasets, maxInstances, (*Replicaset).fields)
	varint.List(f, &s.tiers, MaxTiers, (*Tier).fields)
	varint.List(f, &s.shards, MaxShards, (*Shard).fields)
	varint.List(f, &s.moves, maxMoves, (*Move).fields)
	s.metaShard.fields(f)
	f.Uint(&s.nextInstance, &s.nextReplicaset, &s.nextShard, &s.nextNode, &s.tokenFloor)
	varint.List(f, &s.rights, maxRights, (*Right).fields)
	f.Uint(&s.rightsRevision)
	f.Bool(&s.authOn)
	varint.List(f, &s.tokens, maxTokens, (*Token).fields)
	f.Uint(&s.authRevision, &s.opCount)
}

// Digest is a hash of everything but the applied index: equal states have equal digests on every
// instance, restored or not.
func (s *State) Digest() uint64 {
	digest := crc64.New(ecma)
	s.records(func(_ byte, record []byte) bool {
		_, _ = digest.Write(record)
		return true
	})
	return digest.Sum64()
}

// records yields the state's records in the order of a snapshot. A record is valid until the next
// one.
func (s *State) records(yield func(section byte, record []byte) bool) {
	b := varint.Encode(nil, s.headFields)
	if !yield(sectionHead, b) {
		return
	}
	for _, n := range s.nodes.all() {
		b = varint.Encode(b[:0], n.fields)
		if !yield(sectionNodes, b) {
			return
		}
	}
	for _, op := range s.opOrder.all() {
		e, _ := s.ops.get(op)
		o := opRecord{OpID([]byte(op)), e}
		b = varint.Encode(b[:0], o.fields)
		if !yield(sectionOps, b) {
			return
		}
	}
	for i := range s.trusts {
		b = varint.Encode(b[:0], s.trusts[i].fields)
		if !yield(sectionTrust, b) {
			return
		}
	}
}

func (i *Instance) fields(f *varint.Fields) {
	f.Uint(&i.ID)
	f.Text(&i.UUID, maxUUID)
	f.Text(&i.Name, maxGeneratedName)
	f.Text(&i.Address, maxAddress)
	f.Text(&i.RaftAddress, maxAddress)
	varint.Byte(f, &i.Tier)
	f.Uint(&i.Replicaset)
	varint.List(f, &i.Domain, maxLabels, (*Label).fields)
	i.Version.fields(f)
	i.Current.fields(f)
	i.Target.fields(f)
	f.Text(&i.Reason, maxReason)
	f.Uint(&i.ChangedAt)
	f.Bool(&i.Drained)
	f.Uint(&i.Revision)
}

func (s *InstanceState) fields(f *varint.Fields) {
	varint.Byte(f, &s.Variant)
	f.Uint(&s.Incarnation)
}

func (r *Replicaset) fields(f *varint.Fields) {
	f.Uint(&r.ID)
	f.Text(&r.UUID, maxUUID)
	f.Text(&r.Name, maxGeneratedName)
	varint.Byte(f, &r.Tier)
	varint.Byte(f, &r.Phase)
	f.Uint32(&r.Weight)
	f.Bool(&r.WeightByUser)
	f.Uint(&r.Revision)
}

func (t *Tier) fields(f *varint.Fields) {
	varint.Byte(f, &t.ID)
	f.Text(&t.Name, maxName)
	f.Uint32(&t.Buckets, &t.ReplicationFactor, &t.ShardsPerReplicaset)
	f.Bool(&t.CanVote, &t.Bootstrapped)
	varint.List(f, &t.RaisedAt, maxReplicationFactor, func(at *uint64, f *varint.Fields) { f.Uint(at) })
	f.Uint(&t.Restore.Backup, &t.Restore.Epoch, &t.Restore.Wall)
	first := uint32(0)
	varint.List(f, &t.Runs, MaxBuckets, func(run *Run, f *varint.Fields) {
		f.Uint32(&run.Count)
		f.Uint(&run.Shard, &run.Epoch)
		if f.Reading() {
			run.First = first
			first += run.Count
		}
	})
}

func (x *Shard) fields(f *varint.Fields) {
	f.Uint(&x.ID)
	varint.Byte(f, &x.Tier)
	f.Uint(&x.Replicaset)
	varint.List(f, &x.Replicas, maxInstances, (*Replica).fields)
	f.Uint(&x.NextReplica, &x.Master, &x.TargetMaster)
	f.Bool(&x.Ready)
	f.Uint(&x.Revision)
}

func (x *Replica) fields(f *varint.Fields) {
	f.Uint(&x.Instance, &x.Replica)
	varint.Byte(f, &x.Role)
	varint.Byte(f, &x.TargetRole)
	f.Bool(&x.Founder)
}

func (m *Move) fields(f *varint.Fields) {
	varint.Byte(f, &m.Tier)
	f.Uint32(&m.First, &m.Count)
	f.Uint(&m.From, &m.To, &m.Epoch)
	varint.Byte(f, &m.Phase)
}

func (n *Node) fields(f *varint.Fields) {
	f.Uint(&n.ID)
	f.Text(&n.Path, protocol.MaxPathLen)
	varint.Byte(f, &n.Tier)
	varint.Byte(f, &n.Phase)
	f.Uint(&n.Revision)
	configFields(f, &n.Config)
	f.Uint32(&n.SetFields)
	f.Uint(&n.GraceFloor, &n.CreatedAt, &n.TokenFloor)
}

// opRecord is a remembered op in a snapshot.
type opRecord struct {
	op OpID
	opEntry
}

func (o *opRecord) fields(f *varint.Fields) {
	f.Uint(&o.number)
	f.Fixed(o.op[:])
	o.result.fields(f)
}
