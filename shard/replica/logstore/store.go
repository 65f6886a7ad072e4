package logstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"

	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// ErrRolledBack: a log has lost entries that it had.
var ErrRolledBack = errors.New("the log has gone back")

// ErrNoWatermark: a log has no watermark, so nothing shows whether it is complete.
var ErrNoWatermark = errors.New("the log has no watermark")

// ErrDamaged: the log cannot be read.
var ErrDamaged = wal.ErrDamaged

// ErrStuck: the disk does not finish a write.
var ErrStuck = errors.New("the disk does not finish a write")

// ErrNoSpace: there is too little free space.
var ErrNoSpace = errors.New("the disk is full")

// Config configures a store. Dir and Fatal are required.
type Config struct {
	// Dir is the folder of the watermark's files, the engine's folder.
	Dir string
	// FS is the file system below the engine's; default the engine's.
	FS vfs.FS
	// Fatal is called once, on its own goroutine, when the store cannot go on: the error is
	// [ErrStuck], [ErrNoSpace], or the store's. Nothing more is acknowledged then, and a failed
	// write never returns. The process must end.
	Fatal func(error)
	// Low is called, on its own goroutine, when free space falls below the low mark while the store
	// is open; see [Marks]. A start below it is a warning in the log.
	Low func(Space)
	// Saved is called with the duration of each write to the log that was synced, its sync
	// included, by the goroutine that wrote. May be nil.
	Saved func(time.Duration)
	// Stuck is how long a write may take; default 30 s.
	Stuck time.Duration
	// AcceptLoss opens a log that was rolled back, or has no watermark; see [Store.Loss]. It is for
	// a copy that is read because nothing else is left.
	AcceptLoss bool
	// ReturnDamage returns [ErrDamaged] to a caller who reads damaged entries. Otherwise the caller
	// is the engine, which would panic, and Fatal is called.
	ReturnDamage bool
	// Logger takes warnings; default slog.Default().
	Logger *slog.Logger
}

const (
	defaultStuck = 30 * time.Second
	period       = 100 * time.Millisecond // of writing the watermark, and of checking the disk, while the log is written
	idlePeriod   = time.Second            // of checking the disk else
	syncPeriod   = 10 * time.Second       // of syncing the watermark: its older file is older by at most this
)

// Store is the engine's factory of its log store, and watches over it. One engine uses it once.
type Store struct {
	cfg Config
	log *slog.Logger

	*wal.Log
	dir   string // of snapshots and the log
	fs    vfs.FS
	wrap  func(vfs.FS) vfs.FS // for tests
	space spaceWatch

	replication replication

	fileMu    sync.Mutex // taken before mu; held during a write of the watermark
	file      watermarkFiles
	synced    time.Time     // of the watermark
	syncEvery time.Duration // of the watermark
	loss      map[key]string
	mu        sync.Mutex
	marks     map[key]mark
	dirty     bool
	dirtied   chan struct{} // dirty became true

	began       time.Time    // times below are since then
	saving      atomic.Int64 // start of the running write to the log, 0: none
	maintaining atomic.Int64 // the same for the watermark and the check of free space

	fatal  sync.Once
	failed chan struct{} // a failed call waits for it; only tests close it
	stopC  chan struct{}
	done   sync.WaitGroup

	closeErr error
}

// New returns a store.
func New(cfg Config) *Store {
	cfg.Stuck = cmp.Or(cfg.Stuck, defaultStuck)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return &Store{cfg: cfg, log: cfg.Logger, marks: make(map[key]mark), syncEvery: syncPeriod,
		began: time.Now(), dirtied: make(chan struct{}, 1), stopC: make(chan struct{}), failed: make(chan struct{})}
}

// Name is recorded by the engine in a folder, which accepts no store of another name later.
func (s *Store) Name() string { return "signalbox-wal" }

// Create is called by the engine when it starts, before any replica runs. It returns
// [ErrRolledBack] if a log ends before its mark, and [ErrNoSpace] if there is too little space.
func (s *Store) Create(
	c config.NodeHostConfig, _ config.LogDBCallback, dirs, _ []string,
) (raftio.ILogDB, error) {
	if s.cfg.FS != nil {
		c.Expert.FS = s.cfg.FS
	}
	s.fs = c.Expert.FS
	s.fs = cmp.Or(s.fs, vfs.Default)
	if s.wrap != nil {
		s.fs = s.wrap(s.fs)
	}
	s.space = spaceWatch{fs: s.fs, dir: s.cfg.Dir}
	if sp, ok := s.space.look(); ok && sp.full() {
		return nil, fullError(sp)
	} else if ok && sp.Low() {
		s.log.Warn("the disk of the log is nearly full; make room", "space", sp.String())
	}
	s.file = watermarkFiles{fs: s.fs, dir: s.cfg.Dir}
	known, lacking, err := s.file.read()
	if err != nil {
		return nil, err
	}
	if known != nil && len(lacking) > 0 {
		s.log.Warn("watermark file unreadable", "why", strings.Join(lacking, " and "), "folder", s.cfg.Dir)
	}
	s.dir = dirs[0]
	if s.Log, err = s.open(known, lacking); err != nil {
		return nil, err
	}
	s.done.Go(s.maintain)
	s.done.Go(s.watchStuck)
	return s, nil
}

// checkMarks compares the logs with their marks, and continues from the logs.
func (s *Store) checkMarks(db *wal.Log, known map[key]mark, lacking []string) error {
	found, err := findMarks(db)
	if err != nil {
		return err
	}
	// The first marks are durable before the first log.
	if known == nil && len(found) > 0 {
		err := fmt.Errorf("%w: %s; nothing else shows whether the log is whole",
			ErrNoWatermark, strings.Join(lacking, " and "))
		if !s.cfg.AcceptLoss {
			return err
		}
		for k := range found {
			s.noteLoss(k, "it has no watermark")
		}
	}
	for k, was := range known {
		if is := found[k]; is.behind(was) {
			if !s.cfg.AcceptLoss {
				return fmt.Errorf(
					"%w: that of shard %d in %q is at %v, and was at %v: the disk has lost what it had written, or an old copy was put back",
					ErrRolledBack, k.shard, s.cfg.Dir, is, was)
			}
			s.noteLoss(k, fmt.Sprintf("it was at %v", was))
		}
	}
	s.marks = found
	return s.writeMarks(true)
}

func (s *Store) noteLoss(k key, how string) {
	if s.loss == nil {
		s.loss = make(map[key]string)
	}
	s.loss[k] = how
}

// Loss describes the damage of a log that was opened only because of [Config.AcceptLoss]; empty:
// none.
func (s *Store) Loss(shard, replica uint64) string { return s.loss[key{shard, replica}] }

// findMarks reads the position of each log in a store.
func findMarks(db *wal.Log) (found map[key]mark, err error) {
	nodes, err := db.ListNodeInfo()
	if err != nil {
		return nil, err
	}
	found = make(map[key]mark, len(nodes))
	for _, n := range nodes {
		k := key{n.ShardID, n.ReplicaID}
		if found[k], err = markOf(db, k); err != nil {
			return nil, fmt.Errorf("read the log of shard %d: %w", k.shard, err)
		}
	}
	return found, nil
}

// writeMarks writes the watermark. Through is for the first marks, and for lowered ones.
func (s *Store) writeMarks(through bool) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	s.mu.Lock()
	s.file.encode(s.marks)
	s.dirty = false
	s.mu.Unlock()
	var err error
	due := time.Since(s.synced) >= s.syncEvery
	if through {
		err = s.file.writeThrough()
	} else {
		err = s.file.write(due)
	}
	if err == nil && (through || due) {
		s.synced = time.Now()
	}
	if err != nil {
		s.mu.Lock()
		s.setDirty()
		s.mu.Unlock()
		return fmt.Errorf("write the log's watermark: %w", err)
	}
	return nil
}

func markOf(db *wal.Log, k key) (mark, error) {
	snapshot, err := db.GetSnapshot(k.shard, k.replica)
	if err != nil {
		return mark{}, err
	}
	m := mark{lastTerm: snapshot.Term, lastIndex: snapshot.Index}
	state, err := db.ReadRaftState(k.shard, k.replica, snapshot.Index)
	if errors.Is(err, raftio.ErrNoSavedLog) {
		return m, nil
	}
	if err != nil {
		return mark{}, err
	}
	m.term = state.State.Term
	if state.EntryCount == 0 {
		return m, nil
	}
	last := state.FirstIndex + state.EntryCount - 1
	entries, _, err := db.IterateEntries(nil, 0, k.shard, k.replica, last, last+1, 1<<62)
	if err != nil {
		return mark{}, err
	}
	if len(entries) == 1 {
		m.lastTerm, m.lastIndex = entries[0].Term, entries[0].Index
	}
	return m, nil
}

// SaveRaftState writes to the log and returns when it is synced. The engine's interface has the
// rules for its callers.
func (s *Store) SaveRaftState(updates []pb.Update, worker uint64) error {
	s.saving.Store(int64(time.Since(s.began)) | 1)
	if s.lower(updates) {
		if err := s.writeMarks(true); err != nil {
			return s.fail(err)
		}
	}
	if err := s.Log.SaveRaftState(updates, worker); err != nil {
		return s.fail(fmt.Errorf("write the log: %w", err))
	}
	s.saving.Store(0)
	s.raise(updates)
	return nil
}

// SaveSnapshots saves records of snapshots.
func (s *Store) SaveSnapshots(updates []pb.Update) error {
	return s.written(s.Log.SaveSnapshots(updates))
}

// SaveBootstrapInfo saves a replica's bootstrap record.
func (s *Store) SaveBootstrapInfo(shard, replica uint64, b pb.Bootstrap) error {
	return s.written(s.Log.SaveBootstrapInfo(shard, replica, b))
}

// RemoveEntriesTo removes entries up to an index.
func (s *Store) RemoveEntriesTo(shard, replica, index uint64) error {
	return s.written(s.Log.RemoveEntriesTo(shard, replica, index))
}

func (s *Store) written(err error) error {
	if err != nil {
		return s.fail(fmt.Errorf("write the log: %w", err))
	}
	return nil
}

// IterateEntries reads entries; see the engine's interface.
func (s *Store) IterateEntries(
	list []pb.Entry, size, shard, replica, low, high, maxSize uint64,
) ([]pb.Entry, uint64, error) {
	var err error
	if maxSize == MessageSize {
		// The engine's list has room for all entries up to the end of the log, 4 MiB of it.
		list, size, err = s.readMessage(shard, replica, low, high)
	} else {
		list, size, err = s.Log.IterateEntries(list, size, shard, replica, low, high, maxSize)
	}
	if err != nil && !s.cfg.ReturnDamage {
		return nil, 0, s.fail(fmt.Errorf("read the log: %w", err))
	}
	return list, size, err
}

// lower lowers the marks of logs that are about to be truncated, and reports whether there are any.
// They are written first, since a mark may be too low but never too high. A truncated log usually
// ends in a later term. It does not if the first of many new entries are old ones that a deposed
// leader never had.
func (s *Store) lower(updates []pb.Update) (lowered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range updates {
		k, was := s.markOfUpdate(&updates[i])
		if next := after(&updates[i], was); next.lastBehind(was) {
			was.lastTerm, was.lastIndex = next.lastTerm, next.lastIndex
			s.marks[k] = was
			lowered = true
		}
	}
	return lowered
}

// raise records written updates. The file follows after a period.
func (s *Store) raise(updates []pb.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range updates {
		k, was := s.markOfUpdate(&updates[i])
		if next := after(&updates[i], was); next != was {
			s.marks[k] = next
			s.setDirty()
		}
	}
}

// setDirty has the watermark written within a period. The caller holds mu.
func (s *Store) setDirty() {
	if s.dirty {
		return
	}
	s.dirty = true
	select {
	case s.dirtied <- struct{}{}:
	default:
	}
}

func (s *Store) markOfUpdate(u *pb.Update) (key, mark) {
	k := key{u.ShardID, u.ReplicaID}
	return k, s.marks[k]
}

// after is the mark of a log once it has an update.
func after(u *pb.Update, m mark) mark {
	if !pb.IsEmptyState(u.State) {
		m.term = u.State.Term
	}
	if !pb.IsEmptySnapshot(u.Snapshot) {
		m.lastTerm, m.lastIndex = u.Snapshot.Term, u.Snapshot.Index
	}
	if n := len(u.EntriesToSave); n > 0 {
		m.lastTerm, m.lastIndex = u.EntriesToSave[n-1].Term, u.EntriesToSave[n-1].Index
	}
	return m
}

// GetSnapshot reads the record of a replica's newest snapshot. The engine records the absolute path
// of the file, and opens it to send the snapshot to another replica. In a folder that was moved or
// copied the file is missing, which ends the process, or is another folder's. So the path is
// replaced by the present one.
func (s *Store) GetSnapshot(shard, replica uint64) (pb.Snapshot, error) {
	snapshot, err := s.Log.GetSnapshot(shard, replica)
	if err != nil {
		return snapshot, err
	}
	snapshot.Filepath = s.relocate(snapshot.Filepath)
	files := snapshot.Files
	snapshot.Files = nil
	for _, f := range files {
		moved := *f
		moved.Filepath = s.relocate(f.Filepath)
		snapshot.Files = append(snapshot.Files, &moved)
	}
	return snapshot, nil
}

// partFolder is the prefix of the engine's folders with snapshots of many replicas; the files are
// three levels below.
const partFolder = "snapshot-part-"

// relocate is the path of a snapshot's file in this folder, whatever the folder's former name.
func (s *Store) relocate(path string) string {
	names := strings.Split(filepath.ToSlash(path), "/")
	for i := len(names) - 1; i >= 0; i-- {
		if strings.HasPrefix(names[i], partFolder) {
			return s.fs.PathJoin(append([]string{s.dir}, names[i:]...)...)
		}
	}
	return path
}

// SavedSnapshots are the shard and id of each replica with snapshots in the folder, whether the log
// knows it or not.
func (s *Store) SavedSnapshots() (list [][2]uint64) {
	for _, part := range s.folders(s.dir, partFolder) {
		for _, folder := range s.folders(part, "snapshot-") {
			var k [2]uint64
			_, err := fmt.Sscanf(s.fs.PathBase(folder), "snapshot-%d-%d", &k[0], &k[1])
			if err == nil && len(s.folders(folder, "snapshot-")) > 0 {
				list = append(list, k)
			}
		}
	}
	return list
}

// folders returns the paths in a folder whose names have a prefix; none if the folder does not
// exist.
func (s *Store) folders(dir, prefix string) (list []string) {
	names, _ := s.fs.List(dir)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			list = append(list, s.fs.PathJoin(dir, name))
		}
	}
	return list
}

// RemoveNodeData removes a replica's mark, and then its log.
func (s *Store) RemoveNodeData(shard, replica uint64) error {
	if err := s.forget(key{shard, replica}); err != nil {
		return err
	}
	return s.written(s.Log.RemoveNodeData(shard, replica))
}

// ImportSnapshot replaces a replica's log by a snapshot, which may be older.
func (s *Store) ImportSnapshot(snapshot pb.Snapshot, replica uint64) error {
	if err := s.forget(key{snapshot.ShardID, replica}); err != nil {
		return err
	}
	return s.written(s.Log.ImportSnapshot(snapshot, replica))
}

func (s *Store) forget(k key) error {
	s.mu.Lock()
	_, ok := s.marks[k]
	delete(s.marks, k)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	return s.writeMarks(true)
}

// Close writes the watermark and closes the log. It returns nil to the engine, which would panic
// with an error: [Store.CloseError] has it.
func (s *Store) Close() error {
	close(s.stopC)
	s.done.Wait()
	err := s.writeMarks(false)
	s.closeErr = errors.Join(s.Log.Close(), err)
	return nil
}

// CloseError returns the error of Close. Acknowledged writes are on the disk all the same.
func (s *Store) CloseError() error { return s.closeErr }

// Disk is the file system of the log.
func (s *Store) Disk() vfs.FS { return s.fs }

// Fail reports an error for which the process must end, and does not return.
func (s *Store) Fail(err error) { _ = s.fail(err) }

// fail reports an error for which the process must end, and does not return: the engine would panic
// before the error is reported.
func (s *Store) fail(err error) error {
	s.report(err)
	<-s.failed
	return err
}

func (s *Store) report(err error) {
	if errors.Is(err, syscall.ENOSPC) {
		err = fmt.Errorf("%w: %w", ErrNoSpace, err)
		if sp, ok := s.space.look(); ok {
			err = fmt.Errorf("%w; %v", err, sp)
		}
	}
	s.fatal.Do(func() { go s.cfg.Fatal(err) })
}
