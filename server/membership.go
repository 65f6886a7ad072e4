package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// admit makes the process that asks an instance of the cluster, and returns when it has a replica of the meta shard to start with.
func (s *Server) admit(ctx context.Context, r *cluster.JoinRequest) (reply cluster.JoinReply, err error) {
	if !s.ready.Load() {
		return reply, protocol.Errorf(protocol.StatusUnavailable, "this instance is starting; ask again")
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	if why := governor.NoQuorum(s.observe(ctx)); why != "" {
		return reply, protocol.Errorf(protocol.StatusUnavailable, "nobody can be taken in now: %s", why)
	}
	i, err := s.governor.Join(ctx, meta.Join{
		UUID: r.UUID, Name: r.Name, Replicaset: r.Replicaset, Address: r.Address, RaftAddress: r.RaftAddress, Tier: r.Tier, Domain: r.Domain, Version: r.Version,
		Cluster: r.Cluster,
	})
	if err != nil {
		return reply, err
	}
	err = s.governor.Await(ctx, func(state *meta.State) bool {
		group := state.MetaShard()
		own, ok := group.On(i.ID)
		reply.MetaReplica = own.Replica
		return ok
	})
	if err != nil {
		return reply, protocol.Errorf(protocol.StatusUnavailable, "the new instance has no replica of the meta shard yet (%v); ask again", err)
	}
	reply.Cluster, reply.Instance, reply.Name = s.meta.State().Cluster(), i.ID, i.Name
	s.log.Info("instance is taken in", "instance", i.ID, "name", i.Name, "raft", i.RaftAddress)
	return reply, nil
}

// joinTimeout is how long one request to join may take.
const joinTimeout = 10 * time.Second

// update notes in the meta shard that an instance comes or goes.
func (s *Server) update(ctx context.Context, instance uint64, target meta.Variant, reason string) error {
	if !s.meta.Leading() {
		return protocol.Errorf(protocol.StatusWrongShard, "this instance does not lead the meta shard; ask its leader")
	}
	_, err := s.governor.UpdateInstance(ctx, meta.InstanceUpdate{Instance: instance, Target: target, Reason: reason})
	return err
}

// comeOnline says that this process is there, and waits until the cluster has it Online, which is so when its replicas run. The founder of a cluster that was made just
// now is Online already.
func (s *Server) comeOnline(ctx context.Context) error {
	s.startup.waitForText("waiting for the cluster to have this instance Online; see the cluster's plan")
	var own meta.Instance
	var err error
	if s.founded {
		err = s.governor.Await(ctx, func(state *meta.State) (ok bool) {
			own, ok = state.Instance(s.instance)
			return ok && own.Target.Variant == meta.Online
		})
	} else {
		reason := meta.ReasonWakeup
		if i, ok := s.meta.State().Instance(s.instance); ok && i.Target.Incarnation == 0 {
			reason = meta.ReasonJoin
		}
		own, err = registerInstance(ctx, s.governor, meta.InstanceUpdate{
			Instance: s.instance, Target: meta.Online, Reason: reason, Start: true, Address: s.advertise(), RaftAddress: s.host.RaftAddress(), Domain: s.domain(),
			Version: s.cfg.version(),
		})
	}
	s.member.SetIncarnation(own.Target.Incarnation)
	s.registered.Store(true)
	if err != nil {
		return fmt.Errorf("tell the cluster that this instance is there: %w; %s", err, s.describeMeta())
	}
	s.member.SendHeartbeat()
	s.detector.activate()
	err = s.governor.Await(ctx, func(state *meta.State) bool {
		i, ok := state.Instance(s.instance)
		return ok && (i.Current == i.Target || i.Target.Variant != meta.Online)
	})
	if err != nil {
		return fmt.Errorf("wait for this instance to be Online: %w; %s", err, s.describeMeta())
	}
	return nil
}

// instanceUpdater is what the first words of a process go to. The governor is one: it answers when they are applied here, with what has become of them by then.
type instanceUpdater interface {
	UpdateInstance(ctx context.Context, c meta.InstanceUpdate) (meta.Instance, error)
}

// registerRetry is the pause before first words are said again.
const registerRetry = 100 * time.Millisecond

// registerInstance says a process's first words, and says them again when they were heard and the instance was taken for dead before this process could know: it may apply slowly while it
// starts, which is one of the signs of a dead one, and nobody but itself brings it back.
func registerInstance(ctx context.Context, to instanceUpdater, words meta.InstanceUpdate) (meta.Instance, error) {
	for {
		i, err := to.UpdateInstance(ctx, words)
		if err != nil || i.Target.Variant == meta.Online {
			return i, err
		}
		t := time.NewTimer(registerRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return i, fmt.Errorf("it is taken for dead each time it says so: %w", ctx.Err())
		}
	}
}

// describeMeta is how the meta shard looks from here, for who has to find out why a start did not end; how the others look is logged.
func (s *Server) describeMeta() string {
	all := s.host.Report()
	for _, r := range all {
		s.log.Warn("at the end of a start that failed", "shard", r.Shard, "replica", r.Replica, "role", r.Role.String(), "term", r.Term, "leader", r.Leader, "leading", r.Leading,
			"applied", r.Applied)
	}
	for _, r := range all {
		if r.Shard != replica.MetaShard {
			continue
		}
		leader := "hears no leader"
		if r.Leader != 0 {
			leader = fmt.Sprintf("its leader is replica %d", r.Leader)
		}
		return fmt.Sprintf("the meta shard's replica here, %v %d, is in term %d, has applied entry %d, and %s", r.Role, r.Replica, r.Term, r.Applied, leader)
	}
	return "no replica of the meta shard runs here"
}

var errNotGoverning = protocol.Errorf(protocol.StatusWrongShard, "this instance does not govern; ask the meta shard's leader")

// plan is what the governor here does next, as the document for operators.
func (s *Server) plan(ctx context.Context) ([]byte, error) {
	if !s.meta.Leading() {
		return nil, errNotGoverning
	}
	methods := s.clusterMethods()
	methods.AskGovernor = func(context.Context) ([]byte, error) { return nil, errNotGoverning }
	return methods.Serve(ctx, protocol.MethodPlan, nil)
}

// othersOnline says that another instance is Online.
func (s *Server) othersOnline() bool {
	return slices.ContainsFunc(s.meta.State().Instances(), func(i meta.Instance) bool { return i.ID != s.instance && i.Current.Variant == meta.Online })
}
