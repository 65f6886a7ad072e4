package replica

import (
	"context"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/statemachine"
)

// engine is dragonboat's part of a host. Its methods may be called beside close and after it:
// dragonboat's own Close takes away what a call beside it still uses, and the process would end in
// a nil dereference.
type engine struct {
	nodeHost *dragonboat.NodeHost
	rtt      time.Duration

	calls sync.RWMutex // held for reading by each call, and for good by close
	// closing ends with close, so that no call waits any longer.
	closing context.Context
	cancel  context.CancelFunc
}

func newEngine(rtt time.Duration) *engine {
	e := &engine{rtt: rtt}
	e.closing, e.cancel = context.WithCancel(context.Background())
	return e
}

// close waits for the calls under way. It is called once.
func (e *engine) close() {
	e.cancel()
	e.calls.Lock()
	e.nodeHost.Close()
}

// call calls dragonboat, unless it is being closed: [dragonboat.ErrClosed].
func call[T any](e *engine, fn func(*dragonboat.NodeHost) (T, error)) (T, error) {
	if !e.calls.TryRLock() {
		var none T
		return none, dragonboat.ErrClosed
	}
	defer e.calls.RUnlock()
	return fn(e.nodeHost)
}

// wait is call for what waits until ctx ends.
func wait[T any](
	ctx context.Context, e *engine, fn func(context.Context, *dragonboat.NodeHost) (T, error),
) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()
	return call(e, func(nh *dragonboat.NodeHost) (T, error) { return fn(ctx, nh) })
}

// session of a group's proposals, which dragonboat does not deduplicate. It uses nothing that Close
// takes away.
func (e *engine) session(shard uint64) *client.Session { return e.nodeHost.GetNoOPSession(shard) }

func (e *engine) propose(s *client.Session, entry []byte, timeout time.Duration) (*dragonboat.RequestState, error) {
	return call(e, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) {
		return nh.Propose(s, entry, timeout)
	})
}

// hasReplica reports whether the log has a replica, running or not.
func (e *engine) hasReplica(shard, replica uint64) (bool, error) {
	return call(e, func(nh *dragonboat.NodeHost) (bool, error) { return nh.HasNodeInfo(shard, replica), nil })
}

func (e *engine) startReplica(
	members map[uint64]string, join bool, create statemachine.CreateConcurrentStateMachineFunc, cfg config.Config,
) error {
	return e.do(func(nh *dragonboat.NodeHost) error { return nh.StartConcurrentReplica(members, join, create, cfg) })
}

func (e *engine) stopReplica(shard, replica uint64) error {
	return e.do(func(nh *dragonboat.NodeHost) error { return nh.StopReplica(shard, replica) })
}

func (e *engine) removeData(shard, replica uint64) error {
	return e.do(func(nh *dragonboat.NodeHost) error { return nh.RemoveData(shard, replica) })
}

func (e *engine) transferLeader(shard, to uint64) error {
	return e.do(func(nh *dragonboat.NodeHost) error { return nh.RequestLeaderTransfer(shard, to) })
}

// do is call for what returns only an error.
func (e *engine) do(fn func(*dragonboat.NodeHost) error) error {
	_, err := call(e, func(nh *dragonboat.NodeHost) (struct{}, error) { return struct{}{}, fn(nh) })
	return err
}

// readTimeout bounds one attempt of a linearizable read. One forwarded to a leader that has died
// uses all of it; an election takes 10 to 20 round trip times.
func (e *engine) readTimeout() time.Duration { return max(500*time.Millisecond, 15*e.rtt) }

// changeTimeout bounds the wait for a change of members.
func (e *engine) changeTimeout() time.Duration {
	return max(minProposeTimeout, proposeTimeoutRTTs*e.rtt)
}

// transferTimeout is how long a leader waits for the target of a transfer, dropping all proposals.
func (e *engine) transferTimeout() time.Duration { return (electionRTT + 1) * e.rtt }

// readIndex waits until the replica here has applied what its group had committed at some moment
// after the call. It returns false if the engine refuses or does not answer in time, if ctx or stop
// ends, or if over is true when changed comes. A nil stop or changed never comes.
//
// The engine can lose a read: a leader waits for its voters to confirm it, even after the last of
// them was removed from the group. So an unanswered read is repeated after the time of a heartbeat,
// and then after twice as long each time. Any answer will do, because all reads began after the
// call.
func (e *engine) readIndex(
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

func (e *engine) requestRead(shard uint64, timeout time.Duration) (*dragonboat.RequestState, error) {
	return call(e, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) {
		return nh.ReadIndex(shard, timeout)
	})
}

// engineInfo is what the engine knows of a replica here.
type engineInfo struct {
	Replica, ConfigChange uint64
	Voters                map[uint64]string
	NonVoting             bool
}

// infos has no entry for a replica that has not applied or restored any membership.
func (e *engine) infos() map[uint64]engineInfo {
	all := e.info(dragonboat.NodeHostInfoOption{SkipLogInfo: true})
	if all == nil {
		return nil // closed
	}
	infos := make(map[uint64]engineInfo, len(all.ShardInfoList))
	for i := range all.ShardInfoList {
		if x := &all.ShardInfoList[i]; !x.Pending {
			infos[x.ShardID] = engineInfo{Replica: x.ReplicaID, ConfigChange: x.ConfigChangeIndex,
				Voters: x.Replicas, NonVoting: x.IsNonVoting}
		}
	}
	return infos
}

// info is what the engine knows of its replicas; nil once it is being closed.
func (e *engine) info(o dragonboat.NodeHostInfoOption) *dragonboat.NodeHostInfo {
	info, _ := call(e, func(nh *dragonboat.NodeHost) (*dragonboat.NodeHostInfo, error) {
		return nh.GetNodeHostInfo(o), nil
	})
	return info
}
