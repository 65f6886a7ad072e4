package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

const (
	// metaCheckPeriod is how often an instance makes sure that it belongs to the meta shard's group. A replica that lagged, or was cut off, when it was removed is told by nobody.
	metaCheckPeriod = 2 * time.Second
	// metaCheckTimeout bounds one look, and so is how long the group may be silent before the others are asked.
	metaCheckTimeout = 2 * time.Second
)

// startMeta starts the replica of the meta shard that the identity names. The founder's first replica is the group's first member, every other one has joined.
func (s *Server) startMeta() error {
	id := s.entry.Identity()
	if old := id.MetaLogged; old != 0 && old != id.MetaReplica {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		defer cancel()
		if err := s.host.RemoveData(ctx, replica.MetaShard, old); err != nil {
			return fmt.Errorf("remove the data of replica %d of the meta shard: %w", old, err)
		}
	}
	cfg := replica.MetaConfig{Replica: id.MetaReplica, Join: true}
	if id.Founder && id.MetaReplica == 1 {
		cfg.Members, cfg.Join = map[uint64]string{1: s.host.RaftAddress()}, false
	}
	if s.audit.log != nil {
		cfg.Applied = s.audit.metaApplied
	}
	if len(id.Known) > 0 {
		s.host.SuppressElections(replica.MetaShard)
	}
	rep, err := s.host.StartMeta(cfg)
	if err != nil {
		return err
	}
	s.running.Go(s.meta.setReplica(s.ctx, rep))
	return s.entry.SetMetaLogged()
}

// followMeta keeps this instance's replica of the meta shard the one that the cluster has given it: it starts a new one in the place of one that was removed with its vote,
// and finds out when nobody could say so. It runs until the server stops.
func (s *Server) followMeta() {
	t := time.NewTicker(metaCheckPeriod)
	defer t.Stop()
	var removed uint64 // the last one whose removal was seen here
	for {
		select {
		case <-s.ctx.Done():
			return
		case id := <-s.hosting.removedMeta:
			s.log.Info("replica of the meta shard was removed", "replica", id)
			s.meta.replicaRemoved(id)
			removed = max(removed, id)
		case <-t.C:
		}
		if len(s.entry.Identity().Known) == 0 || s.metaAnswers() {
			continue
		}
		again, err := s.replaceMeta(removed)
		switch {
		case errors.Is(err, cluster.ErrExpelled):
			s.leave()
			return
		case err != nil && s.ctx.Err() == nil:
			s.log.Info("the meta shard is out of reach, and nothing new is known of this instance's replica of it", "error", err)
		}
		if again {
			t.Reset(metaCheckTimeout / 10)
		} else {
			t.Reset(metaCheckPeriod)
		}
	}
}

// metaAnswers says that the meta shard answers this instance's replica.
func (s *Server) metaAnswers() bool {
	if s.meta.current() == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, metaCheckTimeout)
	defer cancel()
	return s.meta.Sync(ctx) == nil
}

// replaceMeta asks the others which replica of the meta shard is this instance's, and starts it in the place of an older one, which the group has removed: it gave the id of the
// new one after that. Again says that one is on its way.
func (s *Server) replaceMeta(removed uint64) (again bool, err error) {
	id, err := s.entry.InstanceStatus(s.ctx)
	if err != nil || id <= removed {
		return err == nil, err // it is not there yet, or who has answered lags
	}
	if now := s.meta.current(); now != nil {
		old := now.Replica()
		if old >= id {
			return false, nil // it is the right one: the group has no leader, or this replica is slow to catch up
		}
		s.meta.replicaRemoved(old)
		if err := s.host.StopShard(replica.MetaShard); err != nil {
			return true, err
		}
	}
	if err := s.entry.SetMetaReplica(id); err != nil {
		return true, err
	}
	if err := s.startMeta(); err != nil {
		return true, err
	}
	s.log.Info("replica of the meta shard was renewed", "replica", id)
	return false, nil
}
