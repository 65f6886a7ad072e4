package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// Membership is the members of a raft group as of one change.
type Membership struct {
	// ConfigChange is the log index of the last change. A change names the one that it builds on,
	// and is rejected if another came first.
	ConfigChange uint64
	// Voters and NonVotings are raft addresses by replica id.
	Voters, NonVotings map[uint64]string
	// Removed are the replica ids that were members and may never be again, in order.
	Removed []uint64
}

// ErrUnknown is wrapped by the error of a change of members that may still come about. It has
// StatusUnavailable.
var ErrUnknown = errors.New("outcome of the change of members is unknown; read the members again")

var errNoReplica = protocol.Errorf(protocol.StatusUnavailable,
	"no replica of this shard runs here; ask another instance")

// errHostClosed: the host is closed, or about to be.
var errHostClosed = protocol.Errorf(protocol.StatusUnavailable, "this instance is stopping; ask another")

// retry repeats fn until it succeeds, ctx ends, or the host is closed, with pauses of 10 ms to 100
// ms.
func (h *Host) retry(ctx context.Context, fn func(ctx context.Context) error) error {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		try, cancel := context.WithTimeout(ctx, h.engine.ReadTimeout())
		err := fn(try)
		cancel()
		if err == nil || errors.Is(err, errNoReplica) {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return protocol.Errorf(protocol.StatusUnavailable, "the shard's leader did not answer: %v; ask again",
				err)
		case <-h.stopC:
			t.Stop()
			return errHostClosed
		}
	}
}

// Members reads the members of a group, with every change acknowledged before the call. Any replica
// of the group can answer. It retries until ctx ends.
func (h *Host) Members(ctx context.Context, shard uint64) (m Membership, err error) {
	err = h.retry(ctx, func(ctx context.Context) error {
		if h.groups.get(shard) == nil {
			return errNoReplica
		}
		x, err := engine.Wait(ctx, h.engine, func(ctx context.Context, nh *dragonboat.NodeHost) (*dragonboat.Membership,
			error) {
			return nh.SyncGetShardMembership(ctx, shard)
		})
		if err != nil {
			return err
		}
		m = Membership{
			ConfigChange: x.ConfigChangeID, Voters: x.Nodes, NonVotings: x.NonVotings,
			Removed: slices.Sorted(maps.Keys(x.Removed)),
		}
		return nil
	})
	return m, err
}

// AddNonVoting adds a replica, with a new id, as a member that gets the log and does not vote. It
// is started afterwards, with Join, on the host with this address, which must have no other replica
// of the shard. ConfigChange is the id of the [Membership] on which the decision was made.
//
// This and the other changes of members return nil if the requested state is reached, or was
// reached before. After StatusAborted, StatusPreconditionFailed and StatusNotFound this call has no
// effect. After StatusUnavailable it has none either, unless the error wraps [ErrUnknown]: then the
// change may still come. It may be requested again with the same or a newer ConfigChange, because
// at most one of the changes that build on a membership is made.
func (h *Host) AddNonVoting(ctx context.Context, shard, replica uint64, address string, configChange uint64) error {
	return h.change(ctx, shard, configChange, func(m *Membership) (bool, error) {
		if _, ok := m.Voters[replica]; ok {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"replica %d of shard %d is a voter already", replica, shard)
		}
		if a, ok := m.NonVotings[replica]; ok {
			if a == address {
				return true, nil
			}
			return false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"replica %d of shard %d is at %s; a new replica needs a new id", replica, shard, a)
		}
		if slices.Contains(m.Removed, replica) {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"replica %d of shard %d was removed; a new replica needs a new id", replica, shard)
		}
		for _, list := range []map[uint64]string{m.Voters, m.NonVotings} {
			for id, a := range list {
				if a == address {
					return false, protocol.Errorf(protocol.StatusPreconditionFailed,
						"address %s has replica %d of shard %d; remove it first", a, id, shard)
				}
			}
		}
		return false, nil
	}, func(nh *dragonboat.NodeHost, timeout time.Duration) (*dragonboat.RequestState, error) {
		return nh.RequestAddNonVoting(shard, replica, address, configChange, timeout)
	})
}

// Promote makes a non-voting member a voter. It should have caught up. For the outcomes see
// [Host.AddNonVoting].
func (h *Host) Promote(ctx context.Context, shard, replica, configChange uint64) error {
	var address string
	return h.change(ctx, shard, configChange, func(m *Membership) (bool, error) {
		if _, ok := m.Voters[replica]; ok {
			return true, nil
		}
		a, ok := m.NonVotings[replica]
		if !ok {
			return false, protocol.Errorf(protocol.StatusNotFound,
				"replica %d is not a member of shard %d; add it first", replica, shard)
		}
		address = a
		return false, nil
	}, func(nh *dragonboat.NodeHost, timeout time.Duration) (*dragonboat.RequestState, error) {
		return nh.RequestAddReplica(shard, replica, address, configChange, timeout)
	})
}

// Remove removes a replica from its group for good: its id cannot be added again. The last voter
// cannot be removed. Removing the leader costs an election, so transfer leadership first; see
// [Host.Transfer]. A removed replica that lags may not notice: stop it, then remove its data. For
// the outcomes see [Host.AddNonVoting].
func (h *Host) Remove(ctx context.Context, shard, replica, configChange uint64) error {
	g := h.groups.get(shard)
	err := h.change(ctx, shard, configChange, func(m *Membership) (bool, error) {
		if slices.Contains(m.Removed, replica) {
			return true, nil
		}
		if _, ok := m.Voters[replica]; ok && len(m.Voters) == 1 {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"replica %d is the last voter of shard %d; promote another first", replica, shard)
		}
		return false, nil
	}, func(nh *dragonboat.NodeHost, timeout time.Duration) (*dragonboat.RequestState, error) {
		return nh.RequestDeleteReplica(shard, replica, configChange, timeout)
	})
	// The engine stops a replica that applies its own removal, perhaps before it reports the
	// result.
	if errors.Is(err, ErrUnknown) && g != nil && g.id == replica {
		if await(ctx, h.stopC, h.engine.ReadTimeout(), func() bool { return h.groups.isRemoved(shard, replica) }) {
			return nil
		}
	}
	return err
}

// change makes one change of members. Look returns done if it is made already, or an error if it
// can never be.
func (h *Host) change(ctx context.Context, shard, configChange uint64, look func(*Membership) (done bool, err error),
	request func(nh *dragonboat.NodeHost, timeout time.Duration) (*dragonboat.RequestState, error),
) error {
	g := h.groups.get(shard)
	if g == nil {
		return errNoReplica
	}
	// The engine drops a change while another is under way, and the change id admits only one of
	// them. This check only makes the error clear.
	if !g.changeMu.TryLock() {
		return protocol.Errorf(protocol.StatusAborted,
			"another change of shard %d's members is under way; read the members again", shard)
	}
	defer g.changeMu.Unlock()
	m, err := h.Members(ctx, shard)
	if err != nil {
		return err
	}
	if done, err := look(&m); done || err != nil {
		return err
	}
	if m.ConfigChange != configChange {
		return errChanged(shard, m.ConfigChange)
	}
	r, err := engine.Call(h.engine, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) {
		return request(nh, h.engine.ChangeTimeout())
	})
	if err != nil {
		if protocol.StatusOf(err) != protocol.StatusInternal {
			return err
		}
		return protocol.Errorf(protocol.StatusUnavailable,
			"change of shard %d's members was not proposed: %v; ask again", shard, err)
	}
	// A leader elsewhere does not report that it dropped the change. Another change that is applied
	// here shows it.
	overtaken := func() bool { return h.engine.Infos()[shard].ConfigChange > configChange }
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for waiting := true; waiting; {
		select {
		case res := <-r.AppliedC():
			switch {
			case res.Completed():
				return nil
			case res.Dropped():
				return protocol.Errorf(protocol.StatusUnavailable,
					"change of shard %d's members was dropped: no leader, or another change is under way; ask again",
					shard)
			}
			waiting = false
		case <-t.C:
			waiting = !overtaken()
		case <-ctx.Done():
			waiting = false
		case <-h.stopC:
			waiting = false
		}
	}
	// Rejected, or unknown here: the members show it. They are read for a short time even if ctx
	// has ended.
	recheckCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.engine.ReadTimeout())
	defer cancel()
	m, err = h.Members(recheckCtx, shard)
	if err != nil {
		return &unknownChange{err}
	}
	if done, err := look(&m); done || err != nil {
		return err
	}
	if m.ConfigChange != configChange {
		// the proposal can no longer be applied, since it builds on an older change
		return errChanged(shard, m.ConfigChange)
	}
	return &unknownChange{}
}

func errChanged(shard, now uint64) error {
	return protocol.Errorf(protocol.StatusAborted,
		"members of shard %d have changed meanwhile, to change %d; read them again", shard, now)
}

// unknownChange is [ErrUnknown] with a status.
type unknownChange struct{ cause error }

func (u *unknownChange) Error() string {
	if u.cause != nil {
		return fmt.Sprintf("%v: %v", ErrUnknown, u.cause)
	}
	return ErrUnknown.Error()
}

func (u *unknownChange) Unwrap() []error {
	return []error{ErrUnknown, protocol.Errorf(protocol.StatusUnavailable, "%v", ErrUnknown)}
}

// RemoveData deletes the log and snapshots of a removed replica on this host. The replica must not
// run, and must have been removed from its group: a member without its log breaks the group. It may
// be repeated. The replica cannot be started again.
func (h *Host) RemoveData(ctx context.Context, shard, replica uint64) error {
	for {
		if g := h.groups.get(shard); g != nil && g.id == replica {
			return protocol.Errorf(protocol.StatusPreconditionFailed,
				"replica %d of shard %d still runs; stop it first", replica, shard)
		}
		err := h.engine.RemoveData(shard, replica)
		if !errors.Is(err, dragonboat.ErrShardNotStopped) {
			if err == nil {
				h.groups.forgetRemoved(shard, replica)
			}
			return err
		}
		if !beat.Sleep(ctx, time.Millisecond) { // the engine releases a stopped replica a moment later
			return ctx.Err()
		}
	}
}
