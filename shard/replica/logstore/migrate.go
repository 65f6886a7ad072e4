package logstore

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

const (
	formerFolder = "logdb-[0-9]*" // of the engine's own store
	walFolder    = "logdb-wal"
	newWALFolder = "new-wal" // while it is made
	copyChunk    = 8 << 20   // bytes of entries that are copied at once
)

// open opens the log. Release 0.1.0 kept it in the engine's own store, which former opens. Such a
// log is moved first, in these steps, each durable before the next:
//
//  1. The engine's store is opened, and compared with the watermark.
//  2. A new log is written beside it, and renamed.
//  3. The watermark is written in a format that says where the log is. This is the decision.
//  4. The engine's store is removed.
//
// If the process ends before the third step, the move begins again.
func (s *Store) open(former func() (raftio.ILogDB, error), known map[key]mark, lacking []string) (*wal.Log, error) {
	dir := s.fs.PathJoin(s.dir, walFolder)
	if err := s.fs.RemoveAll(s.fs.PathJoin(s.dir, newWALFolder)); err != nil {
		return nil, err
	}
	old := list(s.fs, s.dir, formerFolder)
	moved := s.file.version == fileVersion || known == nil && len(list(s.fs, s.dir, walFolder)) > 0
	if len(old) > 0 && !moved {
		err := s.moveLog(dir, former, known, lacking)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w; make room for a copy of it, then start again", ErrNoSpace, err)
		}
		if err != nil {
			return nil, fmt.Errorf("move the log to its new format: %w", err)
		}
		known = s.marks
	}
	if err := errors.Join(s.fs.MkdirAll(dir, 0o700), wal.SyncDir(s.fs, s.dir)); err != nil {
		return nil, err
	}
	db, err := s.openWAL(dir)
	if err != nil {
		return nil, err
	}
	if err := s.checkMarks(db, fileVersion, known, lacking); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, path := range old {
		if err := s.fs.RemoveAll(path); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// openWAL opens the store in a folder. If loss is accepted, what is left of a damaged one is copied
// to a new one.
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

// moveLog moves a log of the engine's own store. A goroutine on which that store panics stands
// still afterwards, and the store cannot be closed: the process must end.
func (s *Store) moveLog(
	dir string, former func() (raftio.ILogDB, error), known map[key]mark, lacking []string,
) error {
	panicked := make(chan error, 1)
	if s.cfg.EnginePanics != nil {
		remove := s.cfg.EnginePanics(func(err error) {
			select {
			case panicked <- err:
			default:
			}
			select {}
		})
		defer remove()
	}
	moved := make(chan error, 1)
	go func() { moved <- s.copyFormer(dir, former, known, lacking) }()
	select {
	case err := <-moved:
		return err
	case err := <-panicked:
		return damaged(s.fs, s.dir, err)
	}
}

func (s *Store) copyFormer(
	dir string, former func() (raftio.ILogDB, error), known map[key]mark, lacking []string,
) error {
	db, err := former()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := selfCheck(db); err != nil {
		return err
	}
	if err := s.checkMarks(db, formerVersion, known, lacking); err != nil {
		return err
	}
	if err := s.copyLog(db, dir); err != nil {
		return err
	}
	s.log.Info("log moved to its new format", "folder", dir)
	return nil
}

// copyLog makes a store that has what another one has, and puts it in place of whatever is in a
// folder.
func (s *Store) copyLog(from raftio.ILogDB, dir string) (err error) {
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

func (s *Store) copyReplicas(from raftio.ILogDB, to *wal.Log) error {
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
			return damaged(s.fs, s.dir, unreadable)
		}
		if err != nil {
			return fmt.Errorf("copy the log of shard %d: %w", k.shard, err)
		}
	}
	return nil
}

// copyReplica copies a log from its snapshot on. The engine does not read what is before it after a
// start. If a part is unreadable, it copies what comes before.
func copyReplica(from raftio.ILogDB, to *wal.Log, k key) (unreadable, err error) {
	defer recoverPanic(&unreadable) // of the engine's store
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
