package governor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// BootstrapConfig is the start of a new cluster.
type BootstrapConfig struct {
	Instance    uint64 // id of the first instance; default 1
	Name        string
	Address     string   // where clients connect
	RaftAddress string   //
	Shards      []uint64 // ids of the first replicaset's data shards, rising, from 1 up; none without data
	Buckets     uint32   // default protocol.DefaultBuckets, if there are shards

	ClusterName       string
	UUID              string       // of the first instance; default a random one
	Domain            []meta.Label // of the first instance
	Version           meta.Version // of its binary, and of the cluster
	Tier              string       // of the first instance; default "default"
	TierID            uint8        // of that tier: its place among all
	ReplicationFactor uint32       // default 1
	Tiers             []meta.TierSpec

	// See meta.Bootstrap. The shards of a restored cluster are made afterwards, ShardsPerReplicaset
	// of them.
	Restored                      []byte
	RestoredEpoch, RestoredBackup uint64
	ShardsPerReplicaset           uint32
	KeepClients                   bool
}

// Bootstrap makes the cluster unless it exists; otherwise it records this instance's addresses.
// With replication factor 1, and while there is one instance, it returns when all shards have their
// buckets and the default node is there; those of a restored cluster are still to come. A cluster
// of one instance may call it at every start; other instances start with Join and UpdateInstance.
func (svc Service) Bootstrap(ctx context.Context, c BootstrapConfig) error {
	c.Instance = cmp.Or(c.Instance, 1)
	if c.Buckets == 0 && len(c.Shards) > 0 {
		c.Buckets = protocol.DefaultBuckets
	}
	c.Tier = cmp.Or(c.Tier, "default")
	c.UUID = cmp.Or(c.UUID, NewUUID())
	cluster := NewUUID()
	var secret [meta.KeySecretLen]byte
	_, _ = rand.Read(secret[:]) // it never fails
	build := func(s *meta.State) (meta.Command, error) {
		if s.Bootstrapped() {
			i, ok := s.Instance(c.Instance)
			if !ok {
				return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
					"cluster %s has no instance %d; let it join", s.Cluster(), c.Instance)
			}
			return &meta.InstanceAddress{Instance: i.ID, Expected: i.Revision, Address: c.Address, RaftAddress: c.RaftAddress},
				nil
		}
		return &meta.Bootstrap{
			Cluster: cluster, ClusterName: c.ClusterName, Secret: secret,
			Instance: c.Instance, UUID: c.UUID, Name: c.Name, Address: c.Address, RaftAddress: c.RaftAddress,
			Domain: c.Domain, Version: c.Version,
			Tier: c.Tier, TierID: c.TierID, Buckets: c.Buckets, ReplicationFactor: max(1, c.ReplicationFactor), CanVote: true,
			Tiers: c.Tiers, Shards: c.Shards, ShardsPerReplicaset: c.ShardsPerReplicaset,
			NodeConfig: protocol.DefaultNodeConfig(), Wall: svc.wall(),
			Restored: c.Restored, RestoredEpoch: c.RestoredEpoch, RestoredBackup: c.RestoredBackup,
			KeepClients: c.KeepClients,
		}, nil
	}
	res, err := svc.proposeOnce(ctx, build)
	if errors.Is(err, protocol.StatusAlreadyExists) {
		// The replayed log had not reached the bootstrap when the command was made; now it has.
		res, err = svc.proposeOnce(ctx, build)
	}
	if err != nil {
		return err
	}
	return svc.awaitApplied(ctx, res, func(s *meta.State) bool {
		if len(s.Instances()) > 1 || max(1, c.ReplicationFactor) > 1 {
			return true
		}
		for _, x := range s.Shards() {
			if !x.Ready {
				return false
			}
		}
		n, ok := s.NodeAt(meta.DefaultPath) // gone: somebody dropped it
		return !ok || n.Phase != meta.Creating
	})
}

// NewUUID returns a random version 4 UUID.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
