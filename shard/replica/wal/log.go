package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"

	"github.com/signalbox-dev/signalbox/shard/replica/timerslack"
)

// ErrDamaged: the log differs from its writes.
var ErrDamaged = errors.New("the log is damaged")

// Config configures a log. Dir is required.
type Config struct {
	// Dir is the log's folder, which exists. Nothing else is in it.
	Dir string
	// FS is the file system; default that of the operating system.
	FS vfs.FS
	// Segment is the length of a segment's file; default 16 MiB, and 1 MiB on other file systems
	// than the operating system's. It is rounded up to 4 KiB. It may differ from one run to the
	// next.
	Segment int64
	// AcceptLoss opens a damaged log as far as it is whole; see [Log.Damage].
	AcceptLoss bool
	// Synced is called with the duration of each write of records, its sync included, by the
	// goroutine that wrote. It must be quick. May be nil.
	Synced func(time.Duration)
	// Failed is called when the log finds, on its own goroutine, that it cannot go on. The log
	// takes nothing more then. May be nil.
	Failed func(error)
	// Logger takes warnings; default slog.Default().
	Logger *slog.Logger

	// openDirect opens a file for writes that bypass the page cache. If it fails, writes go through
	// the cache. Default: the operating system's direct I/O.
	openDirect func(path string) (directFile, error)
}

const (
	defaultSegment = 16 << 20
	memorySegment  = 1 << 20
	minSegment     = 2 * headerSize
	maxSegment     = 1 << 30
)

// Log is a log store. Its methods may be called concurrently.
//
// Locks are taken in this order: mu, spareMu, ix, segment.use. No lock is held during a write. The
// fields of the writer belong to the goroutine that has set writing.
type Log struct {
	cfg Config
	fs  vfs.FS
	log *slog.Logger

	mu      sync.Mutex
	written *sync.Cond // writing has become false
	writing bool
	queue   []*op // of the next frame
	unused  []*op // room for the next queue

	// Of the writer.
	active    *segment // nil before the first write: a segment of a former run is never continued
	id        uint64
	end       position // of the newest frame; 0: there is no segment
	chain     uint32   // CRC of the newest frame
	out       writer   // of the active segment
	synced    position // everything before is on disk
	mark      mark     // says so in a file
	unclaimed bool     // no frame on disk says so of the newest one there
	first     uint32   // the first segment that is needed
	ops       []*op    // of the frame that is written
	broken    error    // a write failed

	ix sync.RWMutex // guards the index and segments
	index
	segments []*segment // of rising numbers without a gap; the last one is active, or of a former run

	damage error // see AcceptLoss

	spareMu sync.Mutex
	spare   bool // the file of the next segment is ready

	changed atomic.Bool // there is a new segment, or something was removed
	woken   atomic.Bool
	wakeC   chan struct{}

	movePause time.Duration
	stopC     chan struct{}
	stopped   sync.WaitGroup
}

var _ raftio.ILogDB = (*Log)(nil)

// Open opens a log, or begins one in an empty folder. It reads all of it. The error of a damaged
// log is [ErrDamaged]. Nothing is written before the first call that writes, but the newest frames
// once more.
func Open(cfg Config) (*Log, error) {
	l, err := open(cfg)
	if err != nil {
		return nil, err
	}
	l.stopped.Go(l.maintain)
	return l, nil
}

// open opens a log without maintenance.
func open(cfg Config) (*Log, error) {
	cfg.FS = cmp.Or(cfg.FS, vfs.Default)
	if cfg.Segment == 0 {
		cfg.Segment = defaultSegment
		if cfg.FS != vfs.Default {
			cfg.Segment = memorySegment
		}
	}
	if cfg.Segment < minSegment || cfg.Segment > maxSegment {
		return nil, fmt.Errorf("length of a segment of the log is %d, but must be %d to %d",
			cfg.Segment, minSegment, maxSegment)
	}
	cfg.Segment = blocks(cfg.Segment)
	if cfg.openDirect == nil && cfg.FS == vfs.Default {
		cfg.openDirect = openDirect
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	l := &Log{cfg: cfg, fs: cfg.FS, log: cfg.Logger, index: index{replicas: make(map[key]*replica)},
		wakeC: make(chan struct{}, 1), stopC: make(chan struct{}), movePause: movePause}
	l.written = sync.NewCond(&l.mu)
	if err := l.recover(); err != nil {
		l.closeFiles()
		return nil, err
	}
	return l, nil
}

// Damage returns why a damaged log was opened only in part; nil for a whole one. A damaged log
// cannot be written.
func (l *Log) Damage() error { return l.damage }

// Size is the room that a log takes.
type Size struct {
	Segments int   // files with records
	Bytes    int64 // length of all files
	Live     int64 // length of the entries that were not removed
}

// Size returns the room that the log takes.
func (l *Log) Size() (s Size) {
	l.spareMu.Lock()
	if l.spare {
		s.Bytes = l.cfg.Segment
	}
	l.spareMu.Unlock()
	l.ix.RLock()
	defer l.ix.RUnlock()
	for _, g := range l.segments {
		s.Bytes += g.length
	}
	s.Segments, s.Live = len(l.segments), l.live
	return s
}

// Name is the name of this kind of log store.
func (l *Log) Name() string { return "signalbox-wal" }

// BinaryFormat is the number that the engine records for a store with one record per entry.
func (l *Log) BinaryFormat() uint32 { return raftio.PlainLogDBBinVersion }

// Close syncs and closes the log. No other call may be running, and none may follow.
func (l *Log) Close() error {
	close(l.stopC)
	l.stopped.Wait()
	var err error
	if l.active != nil && l.broken == nil && (l.out.pending() || l.unclaimed) {
		// What is pending is synced; the frame says that everything before it was.
		err = l.write([]*op{{sync: true}})
	}
	return errors.Join(err, l.closeFiles())
}

func (l *Log) closeFiles() error {
	err := l.out.close()
	if l.mark.file != nil {
		err = errors.Join(err, l.mark.file.Close())
	}
	for _, s := range l.segments {
		if s.file != nil {
			err = errors.Join(err, s.file.Close())
		}
	}
	return err
}

// ListNodeInfo lists the replicas that have a bootstrap record.
func (l *Log) ListNodeInfo() ([]raftio.NodeInfo, error) {
	l.ix.RLock()
	defer l.ix.RUnlock()
	list := []raftio.NodeInfo{}
	for k, p := range l.replicas {
		if p.bootstrapAt != 0 {
			list = append(list, raftio.NodeInfo{ShardID: k.shard, ReplicaID: k.replica})
		}
	}
	slices.SortFunc(list, func(a, b raftio.NodeInfo) int {
		return cmp.Or(cmp.Compare(a.ShardID, b.ShardID), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
	return list, nil
}

// SaveBootstrapInfo saves a replica's bootstrap record durably.
func (l *Log) SaveBootstrapInfo(shard, replica uint64, b pb.Bootstrap) error {
	o := newOp()
	defer o.release()
	o.records, o.sync =
		appendDocument(o.records, bootstrapRecord, key{shard, replica}, 0, 0, pb.MustMarshal(&b)), true
	return l.commit(o)
}

// GetBootstrapInfo returns a replica's bootstrap record, or [raftio.ErrNoBootstrapInfo].
func (l *Log) GetBootstrapInfo(shard, replica uint64) (b pb.Bootstrap, err error) {
	l.ix.RLock()
	defer l.ix.RUnlock()
	p := l.replicas[key{shard, replica}]
	if p == nil || p.bootstrapAt == 0 {
		return b, raftio.ErrNoBootstrapInfo
	}
	return b, b.Unmarshal(p.bootstrap)
}

// fewCommands is the length in bytes of the records of one to three commands without data.
const fewCommands = 256

// SaveRaftState saves entries, hard states and leaders' snapshots of several replicas, all of it or
// nothing. It syncs unless only commit indexes have changed: a replica that forgets one learns it
// again, and no snapshot is newer than the known commit index.
func (l *Log) SaveRaftState(updates []pb.Update, _ uint64) error {
	o := newOp()
	defer o.release()
	wokenEarly := false // the engine has woken its apply worker for entries that commit only when they are saved
	l.ix.RLock()
	for i := range updates {
		u := &updates[i]
		if err := l.appendUpdate(o, u); err != nil {
			l.ix.RUnlock()
			return err
		}
		wokenEarly = wokenEarly || len(u.CommittedEntries) > 0 && !u.FastApply
	}
	l.ix.RUnlock()
	if len(o.records) == 0 {
		return nil
	}
	if wokenEarly && o.sync && len(o.records) > fewCommands {
		// That worker waits for this thread, and so for the sync, or until the runtime's monitor
		// takes the thread's processor away and starts another thread. So it runs now, and finds
		// nothing. On a server with so little to do as a few commands, the thread that the last of
		// them woke up takes the worker. It is not to find this goroutine instead: it would sync
		// later, by the time that waking up takes.
		runtime.Gosched()
	}
	if o.sync { // the next step may be stolen by this thread
		timerslack.Exact()
	}
	return l.commit(o)
}

// appendUpdate encodes an update. The caller holds ix for reading.
func (l *Log) appendUpdate(o *op, u *pb.Update) error {
	k := key{u.ShardID, u.ReplicaID}
	p := l.replicaOf(k)
	if !pb.IsEmptyState(u.State) && (p.stateAt == 0 || !pb.IsStateEqual(u.State, p.state)) {
		o.records = appendState(o.records, k, u.State)
		o.sync = o.sync || p.stateAt == 0 || u.State.Term != p.state.Term || u.State.Vote != p.state.Vote
	}
	installed := !pb.IsEmptySnapshot(u.Snapshot) && u.Snapshot.Index > p.snapshotIndex
	if installed {
		o.records = appendDocument(o.records, installedRecord, k, u.Snapshot.Index,
			u.Snapshot.Term, pb.MustMarshal(&u.Snapshot))
		o.sync = true
	}
	n := len(u.EntriesToSave)
	if n == 0 {
		return nil
	}
	first := u.EntriesToSave[0].Index
	if first == 0 || u.EntriesToSave[n-1].Index != first+uint64(n)-1 ||
		installed && u.EntriesToSave[n-1].Index < u.Snapshot.Index {
		return fmt.Errorf(
			"entries %d to %d of shard %d cannot be saved: they are not in order, or older than the snapshot %d",
			first, u.EntriesToSave[n-1].Index, u.ShardID, u.Snapshot.Index)
	}
	if !installed && !p.entries.empty() && first > p.entries.last+1 {
		o.records = appendCut(o.records, k, first-1) // the log has no gaps
	}
	o.records, o.sync = appendEntries(o.records, k, u.EntriesToSave), true
	return nil
}

// ReadRaftState returns a replica's hard state and the range of its entries from the snapshot's
// index on, or [raftio.ErrNoSavedLog].
func (l *Log) ReadRaftState(shard, replica, snapshot uint64) (raftio.RaftState, error) {
	l.ix.RLock()
	defer l.ix.RUnlock()
	p := l.replicaOf(key{shard, replica})
	if p.stateAt == 0 {
		return raftio.RaftState{}, raftio.ErrNoSavedLog
	}
	s := raftio.RaftState{State: p.state, FirstIndex: snapshot}
	// A snapshot may have been saved before the commit index that it follows from.
	s.State.Commit = max(s.State.Commit, p.snapshotIndex)
	if x := &p.entries; !x.empty() && x.last > snapshot {
		s.FirstIndex = max(x.first, snapshot)
		s.EntryCount = x.last - s.FirstIndex + 1
	}
	return s, nil
}

// readSpan is the most that is read from a segment at once.
const readSpan = 256 << 10

type place struct {
	at   position
	size uint32
}

// IterateEntries appends the entries from low to before high, until their size is above maxSize or
// one is missing.
func (l *Log) IterateEntries(
	list []pb.Entry, size, shard, replica, low, high, maxSize uint64,
) ([]pb.Entry, uint64, error) {
	var buf []byte
	for any := false; low < high && (!any || size <= maxSize); any = true {
		var places [64]place
		n, s, release := l.span(places[:], key{shard, replica}, low, high)
		if n == 0 {
			return list, size, nil
		}
		from := places[0].at.offset()
		length := places[n-1].at.offset() + entryHead + int64(places[n-1].size) - from
		if int64(cap(buf)) < length {
			buf = make([]byte, length)
		}
		buf = buf[:length]
		read, err := l.readAt(s, buf, from)
		release()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, fmt.Errorf("read the log: %w", err)
		}
		buf = buf[:read]
		for _, p := range places[:n] {
			e, err := l.entry(buf, p.at.offset()-from, p, low)
			if err != nil {
				return nil, 0, err
			}
			list, size, low = append(list, e), size+uint64(e.SizeUpperLimit()), low+1
			if size > maxSize {
				break
			}
		}
	}
	return list, size, nil
}

// span finds the next entries that can be read at once: those in one segment, one behind another.
func (l *Log) span(places []place, k key, low, high uint64) (n int, s *segment, release func()) {
	l.ix.RLock()
	defer l.ix.RUnlock()
	x := &l.replicaOf(k).entries
	for ; n < len(places) && low < high; low++ {
		at, size := x.get(low)
		if at == 0 {
			break
		}
		if n > 0 {
			before := places[n-1].at
			if at.segment() != before.segment() || at < before || at+position(size)-places[0].at > readSpan {
				break
			}
		}
		places[n] = place{at, size}
		n++
	}
	if n == 0 {
		return 0, nil, nil
	}
	s, release = l.segmentOf(places[0].at.segment())
	if s == nil {
		return 0, nil, nil
	}
	return n, s, release
}

// entry decodes the entry at an offset of b.
func (l *Log) entry(b []byte, offset int64, p place, index uint64) (e pb.Entry, err error) {
	body, ok := entryBody(b, offset, p.size)
	if !ok {
		return e, l.damaged(p.at, fmt.Sprintf("entry %d is not what was written", index))
	}
	if err := e.Unmarshal(body); err != nil || e.Index != index {
		return e, l.damaged(p.at, fmt.Sprintf("entry %d cannot be decoded", index))
	}
	return e, nil
}

// entryBody returns the encoding of the entry whose head is at an offset; false if it is damaged.
func entryBody(b []byte, offset int64, size uint32) ([]byte, bool) {
	if offset+entryHead+int64(size) > int64(len(b)) {
		return nil, false
	}
	b = b[offset:]
	body := b[entryHead : entryHead+int64(size)]
	return body,
		binary.LittleEndian.Uint32(b[4:]) == size && crc32.Checksum(body, castagnoli) == binary.LittleEndian.Uint32(b)
}

// damaged is [ErrDamaged] with the place.
func (l *Log) damaged(p position, what string) error {
	return fmt.Errorf("%w: %q at byte %d: %s", ErrDamaged, l.path(p.segment()), p.offset(), what)
}

// RemoveEntriesTo removes the entries of a replica up to an index. The removal is durable at the
// latest when a segment is dropped that had them.
func (l *Log) RemoveEntriesTo(shard, replica, index uint64) error {
	k := key{shard, replica}
	l.ix.RLock()
	x := &l.replicaOf(k).entries
	nothing := x.empty() || index < x.first
	l.ix.RUnlock()
	if nothing {
		return nil
	}
	o := newOp()
	defer o.release()
	o.records = appendCut(o.records, k, index)
	return l.removed(l.commit(o))
}

// CompactEntriesTo lets removed entries' room be reused soon.
func (l *Log) CompactEntriesTo(uint64, uint64, uint64) (<-chan struct{}, error) {
	_ = l.removed(nil)
	done := make(chan struct{})
	close(done)
	return done, nil
}

// SaveSnapshots saves records of snapshots durably. An older one than the newest is ignored.
func (l *Log) SaveSnapshots(updates []pb.Update) error {
	o := newOp()
	defer o.release()
	l.ix.RLock()
	for i := range updates {
		u := &updates[i]
		k := key{u.ShardID, u.ReplicaID}
		if u.Snapshot.Index > l.replicaOf(k).snapshotIndex {
			o.records = appendDocument(o.records, snapshotRecord, k, u.Snapshot.Index,
				u.Snapshot.Term, pb.MustMarshal(&u.Snapshot))
		}
	}
	l.ix.RUnlock()
	if len(o.records) == 0 {
		return nil
	}
	o.sync = true
	return l.commit(o)
}

// GetSnapshot returns the record of a replica's newest snapshot, or an empty one.
func (l *Log) GetSnapshot(shard, replica uint64) (s pb.Snapshot, err error) {
	l.ix.RLock()
	defer l.ix.RUnlock()
	p := l.replicaOf(key{shard, replica})
	if p.snapshotAt == 0 {
		return s, nil
	}
	return s, s.Unmarshal(p.snapshot)
}

// RemoveNodeData removes everything of a replica, durably.
func (l *Log) RemoveNodeData(shard, replica uint64) error {
	o := newOp()
	defer o.release()
	o.records, o.sync = appendRemoved(o.records, key{shard, replica}), true
	return l.removed(l.commit(o))
}

// ImportSnapshot replaces everything of a replica by a snapshot, durably.
func (l *Log) ImportSnapshot(s pb.Snapshot, replica uint64) error {
	if s.Type == pb.UnknownStateMachine {
		return fmt.Errorf("snapshot %d of shard %d has no type; it was not exported by this program",
			s.Index, s.ShardID)
	}
	k := key{s.ShardID, replica}
	b := pb.Bootstrap{Join: true, Type: s.Type}
	o := newOp()
	defer o.release()
	o.records = appendRemoved(o.records, k)
	o.records = appendDocument(o.records, bootstrapRecord, k, 0, 0, pb.MustMarshal(&b))
	o.records = appendState(o.records, k, pb.State{Term: s.Term, Commit: s.Index})
	o.records = appendDocument(o.records, installedRecord, k, s.Index, s.Term, pb.MustMarshal(&s))
	o.sync = true
	return l.removed(l.commit(o))
}

// removed lets the maintenance look for segments that are not needed any more.
func (l *Log) removed(err error) error {
	l.changed.Store(true)
	l.wake()
	return err
}
