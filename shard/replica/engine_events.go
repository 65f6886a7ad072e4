package replica

import "github.com/lni/dragonboat/v4/raftio"

// engineEvents is a [Host] as the engine tells it things. All calls come from one goroutine, and whoever publishes waits for it, the engine's workers with their
// locks held: nothing in here may wait, or call the engine.
type engineEvents Host

var (
	_ raftio.IRaftEventListener   = (*engineEvents)(nil)
	_ raftio.ISystemEventListener = (*engineEvents)(nil)
)

// LeaderUpdated proves nothing: it only says when to try.
func (e *engineEvents) LeaderUpdated(info raftio.LeaderInfo) {
	(*Host)(e).noteLeader(info.ShardID, info.ReplicaID, info.Term, info.LeaderID)
	e.cfg.Changed()
}

// NodeReady comes when a replica has read its last snapshot.
func (e *engineEvents) NodeReady(info raftio.NodeInfo) { e.membershipApplied(info) }

// MembershipChanged comes at each change of members that is applied here, and when they were restored from a snapshot.
func (e *engineEvents) MembershipChanged(info raftio.NodeInfo) { e.membershipApplied(info) }

func (e *engineEvents) membershipApplied(info raftio.NodeInfo) {
	if e.campaigner != nil {
		e.campaigner.checkSingle(info.ShardID, info.ReplicaID)
	}
	e.cfg.Changed()
}

// NodeDeleted comes when a replica has applied its own removal. The engine stops it then.
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
