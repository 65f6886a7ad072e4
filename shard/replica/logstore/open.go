package logstore

import (
	"errors"
	"fmt"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

const (
	walFolder    = "logdb-wal"
	newWALFolder = "new-wal" // while it is made
	copyChunk    = 8 << 20   // bytes of entries that are copied at once
)

// open opens the log and compares it with its marks.
func (s *Store) open(known map[key]mark, lacking []string) (*wal.Log, error) {
	dir := s.fs.PathJoin(s.dir, walFolder)
	if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, newWALFolder)); err != nil {
		return nil, err
	}
	if err := errors.Join(s.fs.MkdirAll(dir, 0o700), wal.SyncDir(s.fs, s.dir)); err != nil {
		return nil, err
	}
	db, err := s.openWAL(dir)
	if err != nil {
		return nil, err
	}
	if err := s.checkMarks(db, known, lacking); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// openWAL opens the store in a folder. If loss is accepted, the readable part of a damaged one is
// copied to a new one.
func (s *Store) openWAL(dir string) (*wal.Log, error) {
	cfg := wal.Config{Dir: dir, FS: s.fs, AcceptLoss: s.cfg.AcceptLoss,
		Synced: s.cfg.Saved, Failed: s.report, Logger: s.log}
	db, err := wal.Open(cfg)
	if err != nil || db.Damage() == nil {
		return db, err
	}
	nodes, err := db.ListNodeInfo()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, n := range nodes {
		s.noteLoss(key{n.ShardID, n.ReplicaID}, db.Damage().Error())
	}
	if err := errors.Join(s.copyLog(db, dir), db.Close()); err != nil {
		return nil, err
	}
	return wal.Open(cfg)
}

// copyLog copies the readable part of a store to a new one, and puts that in place of a folder's
// contents.
func (s *Store) copyLog(from *wal.Log, dir string) (err error) {
	made := s.fs.PathJoin(s.dir, newWALFolder)
	if err := errors.Join(s.fs.RemoveAll(made), s.fs.MkdirAll(made, 0o700), wal.SyncDir(s.fs, s.dir)); err != nil {
		return err
	}
	defer func() {
		if err != nil { // the disk may be full
			_ = s.fs.RemoveAll(made)
		}
	}()
	to, err := wal.Open(wal.Config{Dir: made, FS: s.fs, Logger: s.log})
	if err != nil {
		return err
	}
	if err := errors.Join(s.copyReplicas(from, to), to.Close()); err != nil {
		return err
	}
	if err := s.fs.RemoveAll(dir); err != nil {
		return err
	}
	if err := s.fs.Rename(made, dir); err != nil {
		return err
	}
	return wal.SyncDir(s.fs, s.dir)
}

func (s *Store) copyReplicas(from, to *wal.Log) error {
	nodes, err := from.ListNodeInfo()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		k := key{n.ShardID, n.ReplicaID}
		unreadable, err := copyReplica(from, to, k)
		if unreadable != nil && s.cfg.AcceptLoss {
			s.noteLoss(k, unreadable.Error())
			unreadable = nil
		}
		if unreadable != nil {
			return unreadable
		}
		if err != nil {
			return fmt.Errorf("copy the log of shard %d: %w", k.shard, err)
		}
	}
	return nil
}

// copyReplica copies a log from its snapshot on; the engine reads no earlier entries after a start.
// If a part is unreadable, it copies the entries before that.
func copyReplica(from, to *wal.Log, k key) (unreadable, err error) {
	b, unreadable := from.GetBootstrapInfo(k.shard, k.replica)
	if unreadable != nil {
		return unreadable, nil
	}
	if err := to.SaveBootstrapInfo(k.shard, k.replica, b); err != nil {
		return nil, err
	}
	snapshot, unreadable := from.GetSnapshot(k.shard, k.replica)
	if unreadable != nil {
		return unreadable, nil
	}
	saved, unreadable := from.ReadRaftState(k.shard, k.replica, snapshot.Index)
	if unreadable != nil && !errors.Is(unreadable, raftio.ErrNoSavedLog) {
		return unreadable, nil
	}
	save := func(u pb.Update, last uint64) error {
		u.ShardID, u.ReplicaID = k.shard, k.replica
		u.State = saved.State
		u.State.Commit = min(u.State.Commit, last) // the engine accepts no higher one
		return to.SaveRaftState([]pb.Update{u}, 1)
	}
	if err := save(pb.Update{Snapshot: snapshot}, snapshot.Index); err != nil {
		return nil, err
	}
	at, end := max(saved.FirstIndex, snapshot.Index+1), saved.FirstIndex+saved.EntryCount
	for at < end {
		entries, _, unreadable := from.IterateEntries(nil, 0, k.shard, k.replica, at, end, copyChunk)
		if unreadable != nil {
			return unreadable, nil
		}
		if len(entries) == 0 || entries[0].Index != at {
			return fmt.Errorf("entry %d is missing", at), nil
		}
		at += uint64(len(entries))
		if err := save(pb.Update{EntriesToSave: entries}, at-1); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
