package server

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/server/governor"
)

// observeTimeout bounds the wait for a majority of the meta shard to confirm the map. Without one operators get
// what is known here.
const observeTimeout = time.Second

// observe is what this instance sees of the cluster. It asks the meta shard whether the map is up to date.
func (s *Server) observe(ctx context.Context) governor.Observation {
	s.member.SendHeartbeat() // what runs here, as it is now
	sync, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	confirmed := s.meta.Sync(sync) == nil
	o := s.observeNow()
	o.Confirmed = confirmed
	return o
}

// observeNow is look without asking anybody. The map counts as confirmed if that was so a moment ago: each
// instance of several makes sure of it every two seconds.
func (s *Server) observeNow() governor.Observation {
	o := governor.Observation{
		View: governor.View{State: s.meta.State(), Now: s.clock.Now(), Health: s.member.Instances().Health(), OfflineAfter: governor.FreshLimit},
		Self: s.instance, Age: s.meta.age(), Wall: s.clock.Wall(),
	}
	o.Confirmed = o.Age <= metaCheckPeriod+metaCheckTimeout
	if rep := s.meta.current(); rep != nil {
		group := o.State.MetaShard()
		leader, _ := group.Replica(rep.LeaderReplica())
		o.Leader = leader.Instance
	}
	return o
}
