package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// metaCheckPeriod is how often an instance checks that it belongs to the meta shard's group. A
	// replica that lagged, or was cut off, when it was removed does not hear of it.
	metaCheckPeriod = 2 * time.Second
	// metaCheckTimeout bounds one check: the group may be silent that long before the other
	// instances are asked.
	metaCheckTimeout = 2 * time.Second
	// metaRemoveTimeout bounds the removal of the data of a former replica.
	metaRemoveTimeout = 5 * time.Second
)

// startMeta starts the replica of the meta shard that the identity names. The founder's first
// replica is the group's first member; every other one has joined.
func (m *Member) startMeta() error {
	id := m.entry.Identity()
	if old := id.MetaLogged; old != 0 && old != id.MetaReplica {
		ctx, cancel := context.WithTimeout(m.ctx, metaRemoveTimeout)
		defer cancel()
		if err := m.host.RemoveData(ctx, replica.MetaShard, old); err != nil {
			return fmt.Errorf("remove the data of replica %d of the meta shard: %w", old, err)
		}
	}
	cfg := replica.MetaConfig{Replica: id.MetaReplica, Join: true, Applied: m.applied}
	if id.Founder && id.MetaReplica == 1 {
		cfg.Members, cfg.Join = map[uint64]string{1: m.host.RaftAddress()}, false
	}
	if len(id.Known) > 0 {
		m.host.SuppressElections(replica.MetaShard)
	}
	rep, err := m.host.StartMeta(cfg)
	if err != nil {
		return err
	}
	m.Go(m.Meta.setReplica(m.ctx, rep))
	return m.entry.SetMetaLogged()
}

// MetaRemoved notes that a replica of the meta shard here has applied its own removal.
func (m *Member) MetaRemoved(id uint64) {
	select {
	case m.removedMeta <- id:
	case <-m.ctx.Done():
	}
}

// followMeta keeps this instance's replica of the meta shard the one that the cluster has given it.
// It starts a new replica in the place of one that was removed with its vote, and finds out when no
// other instance could tell. It runs until the context ends.
func (m *Member) followMeta() {
	t := time.NewTimer(beat.Next(metaCheckPeriod))
	defer t.Stop()
	var removed uint64 // the last one whose removal was seen here
	for {
		select {
		case <-m.ctx.Done():
			return
		case id := <-m.removedMeta:
			m.Logger.Info("replica of the meta shard was removed", "replica", id)
			m.Meta.replicaRemoved(id)
			removed = max(removed, id)
		case <-t.C:
		}
		if len(m.entry.Identity().Known) == 0 || m.metaAnswers() {
			t.Reset(beat.Next(metaCheckPeriod))
			continue
		}
		again, err := m.replaceMeta(removed)
		switch {
		case errors.Is(err, cluster.ErrExpelled):
			m.leave()
			return
		case err != nil && m.ctx.Err() == nil:
			m.Logger.Info("the meta shard is out of reach, and nothing new is known of this instance's replica of it",
				"error", err)
		}
		if again {
			t.Reset(metaCheckTimeout / 10)
		} else {
			t.Reset(beat.Next(metaCheckPeriod))
		}
	}
}

// metaAnswers reports whether the meta shard answers this instance's replica.
func (m *Member) metaAnswers() bool {
	ctx, cancel := context.WithTimeout(m.ctx, metaCheckTimeout)
	defer cancel()
	return m.Meta.Sync(ctx) == nil
}

// replaceMeta asks the other instances which replica of the meta shard is this instance's, and
// starts it in the place of an older one. The group has removed the older one: it gives out a new id
// only afterwards. If again, a replica is on its way.
func (m *Member) replaceMeta(removed uint64) (again bool, err error) {
	id, err := m.entry.InstanceStatus(m.ctx)
	if err != nil || id <= removed {
		return err == nil, err // it is not there yet, or the instance that replied lags
	}
	if now := m.Meta.Replica(); now != nil {
		old := now.Replica()
		if old >= id {
			return false, nil // it is the right one: the group has no leader, or this replica is slow to catch up
		}
		m.Meta.replicaRemoved(old)
		if err := m.host.StopShard(replica.MetaShard); err != nil {
			return true, err
		}
	}
	if err := m.entry.SetMetaReplica(id); err != nil {
		return true, err
	}
	if err := m.startMeta(); err != nil {
		return true, err
	}
	m.Logger.Info("replica of the meta shard was replaced", "replica", id)
	return false, nil
}
