package replica

import "github.com/lni/dragonboat/v4/raftio"

// engineEvents is a [Host] as a listener to the engine. All calls come from one goroutine, for
// which the engine's workers wait with their locks held. So no method may wait or call the engine.
type engineEvents Host

var (
	_ raftio.IRaftEventListener   = (*engineEvents)(nil)
	_ raftio.ISystemEventListener = (*engineEvents)(nil)
)

// LeaderUpdated does not prove leadership: it says when to try a take-over.
func (e *engineEvents) LeaderUpdated(info raftio.LeaderInfo) {
	(*Host)(e).noteLeader(info.ShardID, info.ReplicaID, info.Term, info.LeaderID)
	e.cfg.Changed()
}

// NodeReady comes when a replica has restored its last snapshot.
func (e *engineEvents) NodeReady(info raftio.NodeInfo) { e.membershipApplied(info) }

// MembershipChanged comes when a change of members is applied here, or restored from a snapshot.
func (e *engineEvents) MembershipChanged(info raftio.NodeInfo) { e.membershipApplied(info) }

func (e *engineEvents) membershipApplied(info raftio.NodeInfo) {
	if e.campaigner != nil {
		e.campaigner.checkSingle(info.ShardID, info.ReplicaID)
	}
	e.cfg.Changed()
}

// NodeDeleted comes when a replica has applied its own removal. The engine then stops it.
func (e *engineEvents) NodeDeleted(info raftio.NodeInfo) {
	(*Host)(e).noteRemoved(info.ShardID, info.ReplicaID)
}

func (e *engineEvents) NodeHostShuttingDown()                       {}
func (e *engineEvents) NodeUnloaded(raftio.NodeInfo)                {}
func (e *engineEvents) ConnectionEstablished(raftio.ConnectionInfo) {}
func (e *engineEvents) ConnectionFailed(raftio.ConnectionInfo)      {}
func (e *engineEvents) SendSnapshotStarted(raftio.SnapshotInfo)     {}
func (e *engineEvents) SendSnapshotCompleted(raftio.SnapshotInfo)   {}
func (e *engineEvents) SendSnapshotAborted(raftio.SnapshotInfo)     {}
func (e *engineEvents) SnapshotReceived(raftio.SnapshotInfo)        {}
func (e *engineEvents) SnapshotRecovered(raftio.SnapshotInfo)       {}
func (e *engineEvents) SnapshotCreated(raftio.SnapshotInfo)         {}
func (e *engineEvents) SnapshotCompacted(raftio.SnapshotInfo)       {}
func (e *engineEvents) LogCompacted(raftio.EntryInfo)               {}
func (e *engineEvents) LogDBCompacted(raftio.EntryInfo)             {}
