package engine

import (
	"context"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"
)

// Engine is dragonboat's part of a host. Its methods may be called beside close and after it:
// dragonboat's own Close frees memory that a call beside it still uses, and the process would end
// in a nil dereference.
type Engine struct {
	nodeHost *dragonboat.NodeHost
	rtt      time.Duration

	calls sync.RWMutex // held for reading by each call, and for good by close
	// closing ends with close, so that no call waits any longer.
	closing context.Context
	cancel  context.CancelFunc
}

// New returns an engine that is not open.
func New(rtt time.Duration) *Engine {
	e := &Engine{rtt: rtt}
	e.closing, e.cancel = context.WithCancel(context.Background())
	return e
}

// Close waits for the calls under way. It is called once.
func (e *Engine) Close() {
	e.cancel()
	e.calls.Lock()
	e.nodeHost.Close()
}

// Call calls dragonboat, unless it is being closed: [dragonboat.ErrClosed].
func Call[T any](e *Engine, fn func(*dragonboat.NodeHost) (T, error)) (T, error) {
	if !e.calls.TryRLock() {
		var none T
		return none, dragonboat.ErrClosed
	}
	defer e.calls.RUnlock()
	return fn(e.nodeHost)
}

// Wait is Call for a call that waits until ctx ends.
func Wait[T any](
	ctx context.Context, e *Engine, fn func(context.Context, *dragonboat.NodeHost) (T, error),
) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()
	return Call(e, func(nh *dragonboat.NodeHost) (T, error) { return fn(ctx, nh) })
}

// Session is the session of a group's proposals, which dragonboat does not deduplicate. It uses
// nothing that Close takes away.
func (e *Engine) Session(shard uint64) *client.Session { return e.nodeHost.GetNoOPSession(shard) }

// HasReplica reports whether the log has a replica, running or not.
func (e *Engine) HasReplica(shard, replica uint64) (bool, error) {
	return Call(e, func(nh *dragonboat.NodeHost) (bool, error) { return nh.HasNodeInfo(shard, replica), nil })
}

// StartReplica starts a replica of a group.
func (e *Engine) StartReplica(
	members map[uint64]string, join bool, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config,
) error {
	return e.Do(func(nh *dragonboat.NodeHost) error { return nh.StartConcurrentReplica(members, join, create, cfg) })
}

// StopReplica stops it; its log stays.
func (e *Engine) StopReplica(shard, replica uint64) error {
	return e.Do(func(nh *dragonboat.NodeHost) error { return nh.StopReplica(shard, replica) })
}

// RemoveData removes the log and the snapshots of a replica that does not run.
func (e *Engine) RemoveData(shard, replica uint64) error {
	return e.Do(func(nh *dragonboat.NodeHost) error { return nh.RemoveData(shard, replica) })
}

// TransferLeader asks the leader here to make another replica the leader.
func (e *Engine) TransferLeader(shard, to uint64) error {
	return e.Do(func(nh *dragonboat.NodeHost) error { return nh.RequestLeaderTransfer(shard, to) })
}

// Do is Call for a call that returns only an error.
func (e *Engine) Do(fn func(*dragonboat.NodeHost) error) error {
	_, err := Call(e, func(nh *dragonboat.NodeHost) (struct{}, error) { return struct{}{}, fn(nh) })
	return err
}

// ReadTimeout bounds one attempt of a linearizable read. One forwarded to a leader that has died
// uses all of it; an election takes 10 to 20 round trip times.
func (e *Engine) ReadTimeout() time.Duration { return max(500*time.Millisecond, 15*e.rtt) }

// ChangeTimeout bounds the wait for a change of members.
func (e *Engine) ChangeTimeout() time.Duration {
	return ProposeTimeout(e.rtt)
}

// TransferTimeout is how long a leader waits for the target of a transfer, dropping all proposals.
func (e *Engine) TransferTimeout() time.Duration { return (electionRTT + 1) * e.rtt }

// ReadIndex waits until the replica here has applied the index that its group had committed at a
// moment after the call. It returns false if the engine refuses or does not answer in time, if ctx
// or stop ends, or if over is true when changed comes. A nil stop or changed never comes.
//
// The engine can lose a read: a leader waits for its voters to confirm it, even after the last of
// them was removed from the group. So an unanswered read is repeated after the time of a heartbeat,
// and then after twice as long each time. Any answer will do, because all reads began after the
// call.
func (e *Engine) ReadIndex(
	ctx context.Context, shard uint64, timeout time.Duration, stop, changed <-chan struct{}, over func() bool,
) bool {
	end := time.Now().Add(timeout)
	first, err := e.requestRead(shard, timeout)
	if err != nil {
		return false
	}
	last, wait := first, e.rtt
	again := time.NewTimer(wait)
	defer again.Stop()
	for {
		select {
		case res := <-first.AppliedC():
			first.Release()
			return res.Completed()
		case res := <-last.AppliedC():
			last.Release()
			return res.Completed()
		case <-again.C:
			left := time.Until(end)
			if left <= 0 {
				continue // the engine is about to report the timeout
			}
			if r, err := e.requestRead(shard, left); err == nil {
				last = r
			}
			wait *= 2
			again.Reset(wait)
		case <-changed:
			if over() {
				return false
			}
		case <-ctx.Done():
			return false
		case <-stop:
			return false // the engine ends the read when the replica stops
		}
	}
}

func (e *Engine) requestRead(shard uint64, timeout time.Duration) (*dragonboat.RequestState, error) {
	return Call(e, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) {
		return nh.ReadIndex(shard, timeout)
	})
}

// Info describes a replica here, as the engine knows it.
type Info struct {
	Replica, ConfigChange uint64
	Voters                map[uint64]string
	NonVoting             bool
}

// Infos has no entry for a replica that has not applied or restored any membership.
func (e *Engine) Infos() map[uint64]Info {
	all := e.HostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true})
	if all == nil {
		return nil // closed
	}
	infos := make(map[uint64]Info, len(all.ShardInfoList))
	for i := range all.ShardInfoList {
		if x := &all.ShardInfoList[i]; !x.Pending {
			infos[x.ShardID] = Info{Replica: x.ReplicaID, ConfigChange: x.ConfigChangeIndex,
				Voters: x.Replicas, NonVoting: x.IsNonVoting}
		}
	}
	return infos
}

// HostInfo describes the engine's replicas; nil once the engine is being closed.
func (e *Engine) HostInfo(o dragonboat.NodeHostInfoOption) *dragonboat.NodeHostInfo {
	info, _ := Call(e, func(nh *dragonboat.NodeHost) (*dragonboat.NodeHostInfo, error) {
		return nh.GetNodeHostInfo(o), nil
	})
	return info
}
