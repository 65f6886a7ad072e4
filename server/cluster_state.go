package server

import (
	"context"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Instance is the instance's number in its cluster.
func (s *Server) Instance() uint64 { return s.instance }

// ClusterState is the cluster map, with instances, replicasets and shards, as this instance has it now.
func (s *Server) ClusterState() *meta.State { return s.meta.State() }

// AwaitState waits until f is true of the cluster map as this instance has it. The error is ctx's.
func (s *Server) AwaitState(ctx context.Context, f func(*meta.State) bool) error {
	return s.governor.Await(ctx, f)
}

// Leads says whether this instance serves a data shard as its master.
func (s *Server) Leads(shard uint64) bool {
	d := s.shards.get(shard)
	return d != nil && d.raft.Leading()
}

// LeadsMeta says whether this instance leads the meta shard, and so governs the cluster.
func (s *Server) LeadsMeta() bool { return s.meta.Leading() }
