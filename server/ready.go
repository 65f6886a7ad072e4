package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Ready says why clients should not be sent here now; nil when the cluster has this instance Online, the meta shard and every shard here have a leader as far as is known
// here, the buckets of its tier are assigned, the disk takes writes, and requests are taken.
func (s *Server) Ready() error {
	switch {
	case s.Err() != nil:
		return s.Err()
	case s.leaving.Load() || s.draining.Load():
		return errors.New("server is stopping")
	case !s.ready.Load():
		if why := s.startup.reason(); why != "" {
			return fmt.Errorf("server is starting: %s", why)
		}
		return errors.New("server is starting")
	}
	if d := s.host.DiskWaiting(); d > slowDiskAfter {
		return fmt.Errorf("a write to the disk of the log has been under way for %v", d.Round(time.Second))
	}
	rep := s.meta.current()
	if rep == nil || rep.LeaderReplica() == 0 {
		return errors.New("the meta shard has no leader that is known here")
	}
	state := s.meta.State()
	i, ok := state.Instance(s.instance)
	if !ok || i.Current.Variant != meta.Online {
		return fmt.Errorf("this instance is %s in the cluster, not Online", i.Current)
	}
	if t, ok := state.Tier(i.Tier); ok && t.Buckets > 0 && !t.Bootstrapped {
		return bucketsUnassigned(state, &i, &t)
	}
	for _, d := range s.shards.all() {
		if d.leader.Load() == 0 {
			return fmt.Errorf("shard %d has no leader", d.id)
		}
	}
	return nil
}

// bucketsUnassigned says what the buckets of an instance's tier wait for. Once they are assigned, an instance whose own replicaset waits for members is ready: it knows the way to
// those that have the buckets.
func bucketsUnassigned(state *meta.State, i *meta.Instance, t *meta.Tier) error {
	set, _ := state.Replicaset(i.Replicaset)
	members := 0
	for _, o := range state.Instances() {
		if o.Replicaset == set.ID && !o.Expelled() {
			members++
		}
	}
	if members < int(t.ReplicationFactor) {
		return fmt.Errorf("replicaset %s waits for more members: it has %d of %d; start more instances", set.Name, members, t.ReplicationFactor)
	}
	return fmt.Errorf("the buckets of tier %s are not assigned yet", t.Name)
}
