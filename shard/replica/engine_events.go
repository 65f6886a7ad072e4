package replica

import "github.com/lni/dragonboat/v4/raftio"

// engineEvents listens to the engine. All calls come from one goroutine, for which the engine's
// workers wait with their locks held. So no method may wait or call the engine.
type engineEvents struct {
	groups     *groupTable
	campaigner *campaigner
	removed    func(shard, replica uint64)
	changed    func()
}

var (
	_ raftio.IRaftEventListener   = (*engineEvents)(nil)
	_ raftio.ISystemEventListener = (*engineEvents)(nil)
)

// LeaderUpdated does not prove leadership: it says when to try a take-over.
func (e *engineEvents) LeaderUpdated(info raftio.LeaderInfo) {
	e.groups.noteLeader(info.ShardID, info.ReplicaID, info.Term, info.LeaderID)
	e.changed()
}

// NodeReady comes when a replica has restored its last snapshot.
func (e *engineEvents) NodeReady(info raftio.NodeInfo) { e.membershipApplied(info) }

// MembershipChanged comes when a change of members is applied here, or restored from a snapshot.
func (e *engineEvents) MembershipChanged(info raftio.NodeInfo) { e.membershipApplied(info) }

func (e *engineEvents) membershipApplied(info raftio.NodeInfo) {
	e.campaigner.checkSingle(info.ShardID, info.ReplicaID)
	e.changed()
}

// NodeDeleted comes when a replica has applied its own removal. The engine then stops it.
func (e *engineEvents) NodeDeleted(info raftio.NodeInfo) {
	e.removed(info.ShardID, info.ReplicaID)
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
