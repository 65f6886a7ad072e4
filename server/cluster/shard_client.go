package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Caller sends calls and messages to other instances. A [peer.Transport] is one.
type Caller interface {
	Call(ctx context.Context, address string, method uint8, body []byte) ([]byte, error)
	Send(address string, kind uint8, payload []byte)
}

// Local is the part of the cluster on this instance. For a shard that is not led here it returns
// WRONG_SHARD, so that the next instance is asked.
type Local interface {
	governor.Shards
	governor.Groups
	// Export reads a chunk of the frozen copy of a run of buckets. The first cursor is empty; an
	// empty next one says that this was the last chunk. The same cursor gives the same chunk for as
	// long as the copy is frozen under this epoch.
	Export(ctx context.Context, id uint64, run shard.BucketsBody, cursor []byte) (chunk, next []byte, err error)
	// Report returns the health of the replicas here.
	Report() map[uint64]governor.ShardReport
	// LeaderMessage takes a message from the leader of another shard.
	LeaderMessage(to, from uint64, msg []byte)
}

// attemptTimeout bounds one attempt at one instance, so that a dead one leaves time for the next.
const attemptTimeout = time.Second

// shardClient reaches shards and groups wherever they are led, here or on another instance. It
// implements governor.Shards, governor.Groups and governor.Instances.
type shardClient struct {
	self   func() uint64
	local  Local
	caller Caller
	state  func() *meta.State
	health *healthTable

	unreached func(address string) peer.Unreached
}

var (
	_ governor.Shards    = (*shardClient)(nil)
	_ governor.Groups    = (*shardClient)(nil)
	_ governor.Instances = (*shardClient)(nil)
)

// Health implements governor.Instances. This instance itself is always fresh.
func (a *shardClient) Health() map[uint64]governor.Heartbeat {
	all := maps.Clone(a.health.snapshot())
	if own, ok := all[a.self()]; ok {
		own.Heard = a.health.now()
		all[a.self()] = own
	}
	return all
}

// Unreached implements governor.Instances.
func (a *shardClient) Unreached() map[uint64]governor.Unreached {
	all := make(map[uint64]governor.Unreached)
	for _, i := range a.state().Instances() {
		if i.Expelled() || i.ID == a.self() {
			continue
		}
		if u := a.unreached(i.RaftAddress); u.Err != nil {
			all[i.ID] = governor.Unreached{Why: u.Err.Error(), From: u.From}
		}
	}
	return all
}

// Changed implements governor.Instances.
func (a *shardClient) Changed() <-chan struct{} { return a.health.Changed() }

// shardRecord returns a shard's record, the meta shard's included.
func shardRecord(s *meta.State, id uint64) (meta.Shard, bool) {
	if id == meta.MetaShardID {
		return s.MetaShard(), true
	}
	return s.Shard(id)
}

// candidates are the instances to ask for a shard's leader, the likeliest first: those that report
// themselves as leader, those that others report, the intended leader, then all with a replica.
func (a *shardClient) candidates(s *meta.State, id uint64) (list []uint64) {
	x, ok := shardRecord(s, id)
	if !ok {
		return nil
	}
	add := func(instance uint64) {
		if instance != 0 && !slices.Contains(list, instance) {
			list = append(list, instance)
		}
	}
	health := a.health.snapshot()
	var reported []uint64
	var newest uint64
	for _, r := range x.Replicas {
		h, ok := health[r.Instance].Shards[id]
		if r.Instance == a.self() {
			h, ok = a.local.Report()[id]
		}
		if !ok || h.Leader == 0 || h.Term < newest {
			continue
		}
		if h.Term > newest {
			newest, reported = h.Term, reported[:0]
		}
		for _, y := range x.Replicas {
			if y.Replica == h.Leader {
				reported = append(reported, y.Instance)
			}
		}
	}
	for _, instance := range reported {
		add(instance)
	}
	add(x.Master)
	add(x.TargetMaster)
	for _, r := range x.Replicas {
		add(r.Instance)
	}
	return list
}

// retryElsewhere reports whether another instance may do what this one could not.
func retryElsewhere(err error) bool {
	st := protocol.StatusOf(err)
	return st == protocol.StatusWrongShard || st == protocol.StatusUnavailable ||
		errors.Is(err, context.DeadlineExceeded)
}

// call runs a request at a shard's leader: here if it leads here, else by a call. It tries the next
// instance until one has done it or rejects it for good.
func (a *shardClient) call(
	ctx context.Context, id uint64, here func(ctx context.Context) error, method uint8, request any, answer any,
) error {
	s := a.state()
	list := a.candidates(s, id)
	if len(list) == 0 {
		return protocol.Errorf(protocol.StatusNotFound, "there is no shard %d", id)
	}
	if len(list) == 1 && list[0] == a.self() {
		return here(ctx)
	}
	var last error
	for _, instance := range list {
		if ctx.Err() != nil {
			break
		}
		err := a.callInstance(ctx, s, instance, here, method, request, answer)
		if err == nil || !retryElsewhere(err) {
			return err
		}
		// WRONG_SHARD says less than an error of the likeliest leader, whose outcome may be
		// unknown.
		if last == nil || protocol.StatusOf(last) == protocol.StatusWrongShard {
			last = err
		}
	}
	if ctx.Err() != nil {
		if last == nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w; the most probable leader returned: %w", ctx.Err(), last)
	}
	return last
}

func (a *shardClient) callInstance(
	ctx context.Context, s *meta.State, instance uint64, here func(ctx context.Context) error, method uint8, request,
	answer any,
) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if instance == a.self() {
		err := here(ctx)
		if err != nil && ctx.Err() != nil && caller.Err() == nil && protocol.StatusOf(err) != protocol.StatusWrongShard {
			err = protocol.Errorf(protocol.StatusUnavailable,
				"this instance did not answer within %v (%v); the outcome is unknown", attemptTimeout, err)
		}
		return err
	}
	i, ok := s.Instance(instance)
	if !ok || i.Expelled() {
		return protocol.Errorf(protocol.StatusUnavailable, "instance %d is no longer in the cluster", instance)
	}
	b, err := a.caller.Call(ctx, i.RaftAddress, method, encode(request))
	if err != nil {
		return fmt.Errorf("instance %q: %w", i.Name, err)
	}
	if answer == nil {
		return nil
	}
	return decode(b, answer)
}

// Propose implements governor.Shards.
func (a *shardClient) Propose(ctx context.Context, id uint64, c shard.Command) error {
	return a.call(ctx, id, func(ctx context.Context) error { return a.local.Propose(ctx, id, c) }, methodPropose,
		&proposeRequest{Shard: id, Kind: uint8(c.Kind), Node: c.Node, Epoch: c.Epoch, Client: c.Sender,
			Body: c.Body}, nil)
}

// Registers implements governor.Shards.
func (a *shardClient) Registers(ctx context.Context, id, node uint64) (at governor.Registers, err error) {
	err = a.call(ctx, id, func(ctx context.Context) (err error) {
		at, err = a.local.Registers(ctx, id, node)
		return err
	}, methodRegisters, &registersRequest{Shard: id, Node: node}, &at)
	return at, err
}

// Export reads a chunk of a frozen copy where the shard is led; see Local.
func (a *shardClient) Export(
	ctx context.Context, id uint64, run shard.BucketsBody, cursor []byte,
) (chunk, next []byte, err error) {
	var answer exportReply
	err = a.call(ctx, id, func(ctx context.Context) (err error) {
		answer.Chunk, answer.Next, err = a.local.Export(ctx, id, run, cursor)
		return err
	}, methodExport, &exportRequest{Shard: id, Tier: run.Tier, First: run.First, Count: run.Count,
		Epoch: run.Epoch, Cursor: cursor}, &answer)
	return answer.Chunk, answer.Next, err
}

// CopyBuckets implements governor.Shards.
func (a *shardClient) CopyBuckets(
	ctx context.Context, source, target uint64, run shard.BucketsBody,
) (done bool, err error) {
	var answer copyReply
	err = a.call(ctx, target, func(ctx context.Context) (err error) {
		answer.Done, err = a.local.CopyBuckets(ctx, source, target, run)
		return err
	}, methodCopyBuckets,
		&copyRequest{Shard: target, Source: source, Tier: run.Tier, Total: run.Total, First: run.First,
			Count: run.Count, Epoch: run.Epoch}, &answer)
	return answer.Done, err
}

// Members implements governor.Groups.
func (a *shardClient) Members(ctx context.Context, id uint64) (m governor.Membership, err error) {
	var answer membersReply
	err = a.call(ctx, id, func(ctx context.Context) (err error) {
		found, err := a.local.Members(ctx, id)
		if err == nil {
			answer = newMembersReply(&found)
		}
		return err
	}, methodMembers, &shardRequest{Shard: id}, &answer)
	if err != nil {
		return m, err
	}
	return answer.membership(), nil
}

func newMembersReply(m *governor.Membership) membersReply {
	answer := membersReply{ConfigChange: m.ConfigChange, Removed: m.Removed}
	for id, address := range m.Voters {
		answer.Voters = append(answer.Voters, memberAddress{Replica: id, Address: address})
	}
	for id, address := range m.NonVotings {
		answer.NonVotings = append(answer.NonVotings, memberAddress{Replica: id, Address: address})
	}
	return answer
}

func (m *membersReply) membership() governor.Membership {
	out := governor.Membership{
		ConfigChange: m.ConfigChange, Voters: make(map[uint64]string), NonVotings: make(map[uint64]string),
		Removed: m.Removed,
	}
	for _, x := range m.Voters {
		out.Voters[x.Replica] = x.Address
	}
	for _, x := range m.NonVotings {
		out.NonVotings[x.Replica] = x.Address
	}
	return out
}

func (a *shardClient) changeMembers(
	ctx context.Context, here func(ctx context.Context) error, w *changeMembersRequest,
) error {
	return a.call(ctx, w.Shard, here, methodChangeMembers, w, nil)
}

// AddNonVoting implements governor.Groups.
func (a *shardClient) AddNonVoting(
	ctx context.Context, id, replica uint64, address string, configChange uint64,
) error {
	return a.changeMembers(ctx,
		func(ctx context.Context) error { return a.local.AddNonVoting(ctx, id, replica, address, configChange) },
		&changeMembersRequest{Shard: id, What: changeAdd, Replica: replica, Address: address, ConfigChange: configChange})
}

// Promote implements governor.Groups.
func (a *shardClient) Promote(ctx context.Context, id, replica, configChange uint64) error {
	return a.changeMembers(ctx, func(ctx context.Context) error {
		return a.local.Promote(ctx, id, replica, configChange)
	},
		&changeMembersRequest{Shard: id, What: changePromote, Replica: replica, ConfigChange: configChange})
}

// Remove implements governor.Groups.
func (a *shardClient) Remove(ctx context.Context, id, replica, configChange uint64) error {
	return a.changeMembers(ctx, func(ctx context.Context) error {
		return a.local.Remove(ctx, id, replica, configChange)
	},
		&changeMembersRequest{Shard: id, What: changeRemove, Replica: replica, ConfigChange: configChange})
}

// Transfer implements governor.Groups.
func (a *shardClient) Transfer(ctx context.Context, id, replica, after uint64) error {
	return a.call(ctx, id, func(ctx context.Context) error {
		return a.local.Transfer(ctx, id, replica, after)
	}, methodTransfer,
		&transferRequest{Shard: id, Replica: replica, After: after}, nil)
}
