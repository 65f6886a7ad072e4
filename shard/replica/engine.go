package replica

import (
	"context"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
)

// engine is dragonboat's part of a host. Its methods may be called until it is closed.
type engine struct {
	*dragonboat.NodeHost
	rtt time.Duration

	mu      sync.RWMutex // held for reading while it is asked about its replicas
	closing bool         // it must not be asked any more
}

func (e *engine) close() {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.NodeHost.Close()
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
	first, err := e.ReadIndex(shard, timeout)
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
			if r, err := e.ReadIndex(shard, left); err == nil {
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

// info asks the engine about its replicas; nil once it is being closed. The engine's Close is
// not safe beside this call.
func (e *engine) info(o dragonboat.NodeHostInfoOption) *dragonboat.NodeHostInfo {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closing {
		return nil
	}
	return e.GetNodeHostInfo(o)
}
