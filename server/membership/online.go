package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// joinTimeout bounds one request to join.
const joinTimeout = 10 * time.Second

// Admit makes the process that asks an instance of the cluster. It returns when the instance has a
// replica of the meta shard to start with.
func (m *Member) Admit(ctx context.Context, r *cluster.JoinRequest) (reply cluster.JoinReply, err error) {
	if !m.Started() {
		return reply, protocol.Errorf(protocol.StatusUnavailable, "this instance is starting; ask again")
	}
	if own, ok := m.Meta.State().Instance(m.instance); ok && cluster.LeadsNowhere(own.RaftAddress) {
		return reply, protocol.Errorf(protocol.StatusPreconditionFailed,
			"nobody can be taken in: the raft address of `%s` is %s, which is that of every machine; make a cluster whose "+
				"instances have --raft-advertise from their first start on, from a backup of this one", own.Name, own.RaftAddress)
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	seen := m.Observe(ctx)
	if why := governor.NoQuorum(seen); why != "" {
		return reply, protocol.Errorf(protocol.StatusUnavailable, "nobody can be taken in now: %s", why)
	}
	state := m.Meta.State()
	if err := checkTier(state, r.Tier); err != nil {
		return reply, err
	}
	// It would leave again, and its vote would be missed. A mark that is not there never comes.
	if t, ok := state.TierByName(r.Tier); ok && r.Restores != 0 {
		if err := t.CheckRestore(r.Restores); err != nil {
			return reply, err
		}
	}
	if len(holders(state, r)) > 0 {
		// Join refuses it, and names the instance that it clashes with.
	} else if why, err := m.service.CheckApplicant(ctx, r.Name, r.RaftAddress); err != nil {
		return reply, err
	} else if why != "" {
		return reply, protocol.Errorf(protocol.StatusUnavailable,
			"the cluster does not reach this instance at %s, the raft address that it advertises (%s); "+
				"open the way to that address, or start it on a new folder with another --raft-advertise", r.RaftAddress, why)
	}
	i, err := m.governor.Join(ctx, meta.Join{
		UUID: r.UUID, Name: r.Name, Replicaset: r.Replicaset, Address: r.Address, RaftAddress: r.RaftAddress,
		Tier: r.Tier, Domain: r.Domain, Version: r.Version, LastOfPreviousMajor: r.LastOfPreviousMajor,
		Cluster: r.Cluster,
	})
	if err != nil {
		return reply, explainTaken(err, seen, r)
	}
	err = m.governor.Await(ctx, func(state *meta.State) bool {
		group := state.MetaShard()
		own, ok := group.On(i.ID)
		reply.MetaReplica = own.Replica
		return ok
	})
	if err != nil {
		return reply, protocol.Errorf(protocol.StatusUnavailable,
			"the new instance has no replica of the meta shard yet (%v); ask again", err)
	}
	reply.Cluster, reply.Instance, reply.Name = m.Meta.State().Cluster(), i.ID, i.Name
	m.Logger.Info("instance admitted", "instance", i.ID, "name", i.Name, "raft", i.RaftAddress)
	return reply, nil
}

// CheckApplicant reports why this instance, if it leads the meta shard, does not reach a process
// that wants to join; empty: it does. The plan names those that it does not reach.
func (m *Member) CheckApplicant(ctx context.Context, name, address string) (why string, err error) {
	if !m.Meta.Leading() {
		return "", protocol.Errorf(protocol.StatusWrongShard, "this instance does not lead the meta shard; ask its leader")
	}
	why = m.service.Reach(ctx, address)
	m.governor.NoteApplicant(name, address, why)
	return why, nil
}

// explainTaken adds to the refusal of a name or an address that another instance has why that
// instance cannot be expelled, as the refusal advises, if so it is.
func explainTaken(err error, seen governor.Observation, r *cluster.JoinRequest) error {
	var refused *protocol.Error
	if !errors.As(err, &refused) || refused.Status != protocol.StatusAlreadyExists {
		return err
	}
	for _, i := range holders(seen.State, r) {
		if why := governor.CannotExpel(seen, i.ID); why != "" {
			return protocol.Errorf(refused.Status, "%s; `%s` cannot be expelled now: %s", refused.Message, i.Name, why)
		}
	}
	return err
}

// holders are the other instances that have the name or the address of a process that wants to join.
func holders(state *meta.State, r *cluster.JoinRequest) []meta.Instance {
	return slices.DeleteFunc(slices.Clone(state.Instances()), func(i meta.Instance) bool {
		return i.Expelled() || i.UUID == r.UUID || i.Name != r.Name && i.RaftAddress != r.RaftAddress
	})
}

// checkTier refuses a tier that the cluster does not have. Tiers are made with the cluster.
func checkTier(state *meta.State, tier string) error {
	var names []string
	for _, t := range state.Tiers() {
		names = append(names, t.Name)
	}
	if tier == "" || slices.Contains(names, tier) {
		return nil
	}
	return protocol.Errorf(protocol.StatusNotFound,
		"there is no tier %q; the cluster was made with the tiers %s: choose one of them", tier, strings.Join(names, ", "))
}

// SetTarget notes in the meta shard, which must be led here, that an instance comes or goes.
func (m *Member) SetTarget(ctx context.Context, u meta.InstanceUpdate) error {
	if !m.Meta.Leading() {
		return protocol.Errorf(protocol.StatusWrongShard, "this instance does not lead the meta shard; ask its leader")
	}
	if i, ok := m.Meta.State().Instance(u.Instance); ok && u.Target == meta.Online {
		if i.Target.Variant == meta.Expelled && !i.Expelled() { // what it wants it may have said before it knew
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"instance `%s` is to be expelled; only a start of its process makes it Online", i.Name)
		}
		u.Expected = i.Revision
	}
	_, err := m.governor.UpdateInstance(ctx, u)
	return err
}

// ComeOnline tells the cluster that this process is there, and waits until the cluster has it
// Online: its replicas run then. The founder of a cluster that was made just now is Online already.
// Process has its addresses, failure domain and version.
func (m *Member) ComeOnline(ctx context.Context, founded bool, process meta.InstanceUpdate) error {
	var own meta.Instance
	var err error
	if founded {
		err = m.governor.Await(ctx, func(state *meta.State) (ok bool) {
			own, ok = state.Instance(m.instance)
			return ok && own.Target.Variant == meta.Online
		})
	} else {
		process.Instance, process.Target, process.Reason, process.Start = m.instance, meta.Online, meta.ReasonWakeup, true
		if i, ok := m.Meta.State().Instance(m.instance); ok && i.Target.Incarnation == 0 {
			process.Reason = meta.ReasonJoin
		}
		own, err = registerInstance(ctx, m.governor, process)
	}
	m.service.SetIncarnation(own.Target.Incarnation)
	m.registered.Store(true)
	if err != nil {
		return fmt.Errorf("tell the cluster that this instance is there: %w; %s", err, m.describeMeta())
	}
	m.service.SendHeartbeat()
	m.detector.activate()
	err = m.governor.Await(ctx, func(state *meta.State) bool {
		i, ok := state.Instance(m.instance)
		return ok && (i.Current == i.Target || i.Target.Variant != meta.Online)
	})
	if err != nil {
		return fmt.Errorf("wait for this instance to be Online: %w; %s", err, m.describeMeta())
	}
	return nil
}

// instanceUpdater takes the registration of a process. A governor is one: it returns the instance
// as it is when the update is applied here.
type instanceUpdater interface {
	UpdateInstance(ctx context.Context, c meta.InstanceUpdate) (meta.Instance, error)
}

// registerRetry is the pause before a registration is repeated.
const registerRetry = 100 * time.Millisecond

// registerInstance registers a process. It repeats that if the instance was taken for dead before
// this process could know of its registration: it may apply slowly while it starts, which is one of
// the signs of a dead one, and no other instance brings it back.
func registerInstance(ctx context.Context, to instanceUpdater, process meta.InstanceUpdate) (meta.Instance, error) {
	for {
		i, err := to.UpdateInstance(ctx, process)
		if err != nil || i.Target.Variant == meta.Online {
			return i, err
		}
		if !beat.Sleep(ctx, registerRetry) {
			return i, fmt.Errorf("the cluster marks it offline again each time that it comes online: %w", ctx.Err())
		}
	}
}

// describeMeta is the state of the meta shard as seen from here, for the error of a start that did
// not end. The states of the other shards are logged.
func (m *Member) describeMeta() string {
	text := "no replica of the meta shard runs here"
	for _, r := range m.host.Report() {
		m.Logger.Warn("replica when the start failed", "shard", r.Shard, "replica", r.Replica,
			"role", r.Role.String(), "term", r.Term, "leader", r.Leader, "leading", r.Leading,
			"applied", r.Applied)
		if r.Shard != replica.MetaShard {
			continue
		}
		leader := "hears no leader"
		if r.Leader != 0 {
			leader = fmt.Sprintf("its leader is replica %d", r.Leader)
		}
		text = fmt.Sprintf("the meta shard's replica here, %v %d, is in term %d, has applied entry %d, and %s",
			r.Role, r.Replica, r.Term, r.Applied, leader)
	}
	return text
}
