package governor

import (
	"context"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The calls below change the cluster. Each returns once the change is decided and applied here; a
// decided change continues without its caller. Errors are *protocol.Error: refusals of the meta
// shard, which name the condition that would allow the change; ABORTED when ctx ended while another
// change was in the way; UNAVAILABLE when ctx ended before the meta shard answered: read the
// cluster's status before trying again.

// Join adds a process to the cluster and returns its record: the same record if it asks again. Wall
// is filled in.
func (svc Service) Join(ctx context.Context, c meta.Join) (meta.Instance, error) {
	c.Wall = svc.wall()
	res, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return &c, nil })
	if err != nil {
		return meta.Instance{}, err
	}
	i, _ := svc.State().Instance(res.Instance)
	return i, nil
}

// UpdateInstance changes an instance's target state: at its start and shutdown, and by failure
// detectors; see meta.InstanceUpdate. It returns the new record. Wall is filled in.
func (svc Service) UpdateInstance(ctx context.Context, c meta.InstanceUpdate) (meta.Instance, error) {
	c.Wall = svc.wall()
	if _, err := svc.proposeAndWait(ctx, func(s *meta.State) (meta.Command, error) {
		// A decision by an older record is not retried until it fits: it may not be true any more.
		if i, ok := s.Instance(c.Instance); ok && c.Expected != 0 && i.Revision > c.Expected {
			return nil, protocol.Errorf(protocol.StatusAborted,
				"instance %s was changed in the meantime; look again and retry", i.Name)
		}
		return &c, nil
	}); err != nil {
		return meta.Instance{}, err
	}
	i, _ := svc.State().Instance(c.Instance)
	return i, nil
}

// Drain moves an instance's leaderships and votes to others, as far as others can take them, and
// gives it no new ones. Undo, or its next start, ends that. PRECONDITION_FAILED if no instance
// could take its leaderships.
func (svc Service) Drain(ctx context.Context, instance uint64, undo bool) (meta.Instance, error) {
	if _, err := svc.proposeAndWait(ctx, func(s *meta.State) (meta.Command, error) {
		if i, ok := s.Instance(instance); ok && !undo && !i.Expelled() && !i.Drained {
			if err := checkSuccessors(s, &i); err != nil {
				return nil, err
			}
		}
		return &meta.InstanceDrain{Instance: instance, Drained: !undo}, nil
	}); err != nil {
		return meta.Instance{}, err
	}
	i, _ := svc.State().Instance(instance)
	return i, nil
}

// checkSuccessors refuses the drain of an instance that leads a shard which no other instance could
// lead.
func checkSuccessors(s *meta.State, i *meta.Instance) error {
	for _, x := range s.Shards() {
		if x.Master != i.ID {
			continue
		}
		able := false
		var drained []string
		for _, r := range x.Replicas {
			other, ok := s.Instance(r.Instance)
			if !ok || r.Instance == i.ID || r.Role != meta.RoleVoter || r.TargetRole != meta.RoleVoter ||
				!online(&other) {
				continue
			}
			if able = able || stays(&other); other.Drained {
				drained = append(drained, other.Name)
			}
		}
		switch {
		case able:
		case len(drained) > 0:
			slices.Sort(drained)
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"instance %s leads shard %d, and all others that could are drained: %s; take back one drain first: signalbox cluster undrain %s",
				i.Name, x.ID, strings.Join(drained, ", "), drained[0])
		default:
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"instance %s leads shard %d, and no other instance with a vote in it is online; start one of its replicaset, or let one join, first",
				i.Name, x.ID)
		}
	}
	return nil
}

// HoldUpgrade keeps the cluster's version as it is, or ends that.
func (svc Service) HoldUpgrade(ctx context.Context, hold bool) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) {
		return &meta.UpgradeHold{Held: hold}, nil
	})
	return err
}

// TransferMaster decides which instance is to lead a shard. The governor may move another shard of
// the replicaset in exchange, so that leaderships stay evenly spread. PRECONDITION_FAILED if the
// instance cannot lead it.
func (svc Service) TransferMaster(ctx context.Context, shard, instance uint64) error {
	_, err := svc.proposeAndWait(ctx, func(s *meta.State) (meta.Command, error) {
		x, ok := s.Shard(shard)
		i, known := s.Instance(instance)
		r, has := x.On(instance)
		refuse := func(format string, args ...any) (meta.Command, error) {
			return nil, protocol.Errorf(protocol.StatusPreconditionFailed, format, args...)
		}
		switch {
		case !ok || shard == meta.MetaShardID:
			return nil, protocol.Errorf(protocol.StatusNotFound, "there is no data shard %d; the cluster's status lists them", shard)
		case !known:
			return nil, protocol.Errorf(protocol.StatusNotFound, "there is no instance %d", instance)
		case !has:
			set, _ := s.Replicaset(x.Replicaset)
			return refuse("instance %s has no replica of shard %d; choose one of replicaset %s", i.Name, shard, set.Name)
		case !online(&i):
			return refuse("instance %s is %s; start it, or choose another one", i.Name, i.Current.Variant)
		case i.Drained:
			return refuse("instance %s is drained; undo that first, or choose another one", i.Name)
		case r.Role != meta.RoleVoter || r.TargetRole != meta.RoleVoter:
			return refuse("instance %s has no vote in shard %d; wait until it has one, or choose another one", i.Name, shard)
		}
		return &meta.MasterTarget{Shard: shard, Instance: instance}, nil
	})
	return err
}

// SetWeight sets a replicaset's weight in thousandths: its share of the tier's buckets. 0 moves all
// its buckets away.
func (svc Service) SetWeight(ctx context.Context, replicaset uint64, weight uint32) error {
	_, err := svc.proposeAndWait(ctx, func(s *meta.State) (meta.Command, error) {
		set, ok := s.Replicaset(replicaset)
		if ok && weight == 0 && !otherHasWeight(s, &set) {
			return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
				"replicaset %s is the only one of its tier that is ready and has a weight; its buckets have nowhere to go; give another one a weight first",
				set.Name)
		}
		return &meta.WeightSet{Replicaset: replicaset, Weight: weight, ByUser: true}, nil
	})
	return err
}

// otherHasWeight reports whether another replicaset of the tier can have buckets.
func otherHasWeight(s *meta.State, set *meta.Replicaset) bool {
	return slices.ContainsFunc(s.Replicasets(), func(o meta.Replicaset) bool {
		return o.ID != set.ID && o.Tier == set.Tier && o.Phase == meta.ReplicasetReady && o.Weight > 0
	})
}

// SetReplicationFactor changes how many instances the replicasets of a tier are filled up to: with
// spare instances, and with those that join later.
func (svc Service) SetReplicationFactor(ctx context.Context, tier uint8, factor uint32) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) {
		return &meta.TierReplicationFactor{Tier: tier, ReplicationFactor: factor, Wall: svc.wall()}, nil
	})
	return err
}

// SetShards changes how many data shards each replicaset of a tier is to have.
func (svc Service) SetShards(ctx context.Context, tier uint8, shards uint32) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) {
		return &meta.TierShards{Tier: tier, Shards: shards}, nil
	})
	return err
}

// FinishRestore gives the buckets of a tier to shards that were filled from its backup: see
// meta.TierRestored.
func (svc Service) FinishRestore(ctx context.Context, c meta.TierRestored) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return &c, nil })
	return err
}

// FindInstance finds an instance by name or uuid. The error is NOT_FOUND if no instance has it, or
// only an expelled instance has that name.
func FindInstance(s *meta.State, text string) (meta.Instance, error) {
	if i, ok := s.InstanceByName(text); ok {
		return i, nil
	}
	if i, ok := s.InstanceByUUID(text); ok && text != "" {
		return i, nil
	}
	return meta.Instance{}, protocol.Errorf(protocol.StatusNotFound,
		"there is no instance with name or uuid %q; the cluster's status lists them", text)
}

// FindReplicaset finds a replicaset by name or uuid.
func FindReplicaset(s *meta.State, text string) (meta.Replicaset, error) {
	if set, ok := s.ReplicasetByName(text); ok {
		return set, nil
	}
	for _, set := range s.Replicasets() {
		if set.UUID == text && text != "" {
			return set, nil
		}
	}
	return meta.Replicaset{}, protocol.Errorf(protocol.StatusNotFound,
		"there is no replicaset with name or uuid %q; the cluster's status lists them", text)
}
