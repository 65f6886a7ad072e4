package wal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/lni/vfs"
)

const (
	segmentSuffix = ".segment"
	spareName     = "spare"     // a file for the next segment
	newSpareName  = "spare.new" // the same while it is made
)

// segment is a file of the log. It is written while it is the newest one.
type segment struct {
	number uint32
	file   vfs.File // nil: it is opened to read it
	end    int64    // of its last frame
	length int64    // of the file

	use sync.RWMutex // held for reading while the file is read, for writing while it is closed
}

// maxOpen is the number of segments whose files stay open, the newest ones. With many shards there
// may be thousands. Older ones are read at a start, and for replicas that lag.
const maxOpen = 64

func segmentName(number uint32) string { return fmt.Sprintf("%08x%s", number, segmentSuffix) }

func segmentNumber(name string) (uint32, bool) {
	hex, ok := strings.CutSuffix(name, segmentSuffix)
	n, err := strconv.ParseUint(hex, 16, 32)
	return uint32(n), ok && err == nil && len(hex) == 8 && n > 0
}

func (l *Log) path(number uint32) string { return l.fs.PathJoin(l.cfg.Dir, segmentName(number)) }

// createFile makes a file of full length.
func (l *Log) createFile(path string, length int64) (vfs.File, error) {
	f, err := l.fs.Create(path)
	if err != nil {
		return nil, err
	}
	if _, ok := f.(*os.File); !ok { // other file systems open a new file for writing only
		if err := f.Close(); err != nil {
			return nil, err
		}
		if f, err = l.openFile(path); err != nil {
			return nil, err
		}
	}
	if err := preallocate(f, length); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openFile opens a file for reading and writing.
func (l *Log) openFile(path string) (vfs.File, error) { return l.fs.ReuseForWrite(path, path) }

// readAll reads a file into b, which is made longer if need be.
func readAll(f vfs.File, b []byte) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return b, err
	}
	n := int(info.Size())
	if cap(b) < n {
		b = make([]byte, n)
	}
	b = b[:n]
	if n == 0 {
		return b, nil
	}
	read, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:read], err
}

// SyncDir makes the names in a folder durable.
func SyncDir(fs vfs.FS, path string) error {
	d, err := fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// rotate begins a new segment with room for a frame of the given size. The caller is the writer.
//
// Everything before the new segment is synced first: its header says where the former one ends, and
// less than that is damage. The header is written with the first frame. The folder is synced here.
func (l *Log) rotate(size int64) error {
	if l.active != nil {
		if err := l.sync(); err != nil {
			return err
		}
	}
	if l.mark.file == nil {
		if err := l.openMark(); err != nil {
			return err
		}
	}
	h := header{number: 1, id: l.id, prevEnd: l.end, prevSum: l.chain, first: 1}
	if l.end != 0 {
		h.number, h.first = l.end.segment()+1, l.first
	}
	if h.number == 0 || h.number == 1<<32-1 {
		return errors.New("the log has no numbers left for segments")
	}
	s := &segment{number: h.number, end: headerSize, length: l.cfg.Segment}
	var err error
	if s.length < headerSize+size {
		s.length = blocks(headerSize + size)
		if s.length > maxOffset {
			return fmt.Errorf("%d bytes at once are more than a segment takes", size)
		}
	} else if s.file, err = l.takeSpare(s.number); err != nil {
		return err
	}
	if s.file == nil {
		if s.file, err = l.createFile(l.path(s.number), s.length); err != nil {
			return err
		}
	}
	var direct directFile
	if l.cfg.openDirect != nil {
		if direct, err = l.cfg.openDirect(l.path(s.number)); err != nil {
			direct = nil
		}
	}
	if err = errors.Join(l.out.begin(s.file, direct), SyncDir(l.fs, l.cfg.Dir)); err != nil {
		return errors.Join(err, s.file.Close())
	}
	copy(l.out.extend(headerSize), h.encode())
	var former *segment
	l.ix.Lock()
	if n := len(l.segments); l.active == nil && n > 0 {
		former = l.segments[n-1]
	}
	l.segments = append(l.segments, s)
	l.ix.Unlock()
	if former != nil { // the newest one of a former run keeps no room
		l.shorten(former)
	}
	l.active, l.first = s, h.first
	l.end, l.chain = at(s.number, s.end), h.sum
	l.synced = l.end
	l.changed.Store(true)
	return nil
}

// openMark opens the mark's file for writing. That of a new log is on disk before the log's first
// segment is, once the folder is synced.
func (l *Log) openMark() (err error) {
	path := l.fs.PathJoin(l.cfg.Dir, markName)
	m := &l.mark
	m.id, m.synced = l.id, l.end
	if l.end != 0 {
		m.file, err = l.openFile(path)
		return err
	}
	if m.file, err = l.createFile(path, markLen); err != nil {
		return err
	}
	return errors.Join(m.write(), m.file.Sync())
}

// shorten gives the room behind a segment's last frame back to the disk.
func (l *Log) shorten(s *segment) {
	if f, ok := s.file.(*os.File); ok && f.Truncate(s.end) == nil {
		l.ix.Lock()
		s.length = s.end
		l.ix.Unlock()
	}
}

// segmentOf returns a segment for reading: release must be called. The caller holds ix.
func (l *Log) segmentOf(number uint32) (s *segment, release func()) {
	if len(l.segments) == 0 || number < l.segments[0].number ||
		number-l.segments[0].number >= uint32(len(l.segments)) {
		return nil, nil
	}
	s = l.segments[number-l.segments[0].number]
	s.use.RLock()
	return s, s.use.RUnlock
}

// readAt reads from a segment. The caller holds use, or is the maintenance.
func (l *Log) readAt(s *segment, b []byte, offset int64) (int, error) {
	f := s.file
	if f == nil {
		var err error
		if f, err = l.fs.Open(l.path(s.number)); err != nil {
			return 0, err
		}
		defer f.Close()
	}
	return f.ReadAt(b, offset)
}

// close closes the file. Nothing is written to it any more.
func (s *segment) close() (err error) {
	s.use.Lock()
	defer s.use.Unlock()
	if s.file != nil {
		err = s.file.Close()
		s.file = nil
	}
	return err
}

// closeOld closes the files of all but the newest segments. The maintenance calls it.
func (l *Log) closeOld() (err error) {
	l.ix.RLock()
	old := slices.Clone(l.segments[:max(0, len(l.segments)-maxOpen)])
	l.ix.RUnlock()
	for _, s := range slices.Backward(old) {
		if s.file == nil {
			break
		}
		err = errors.Join(err, s.close())
	}
	return err
}

// dispose closes a dropped segment and removes its file, or keeps the file for the next segment:
// to write into blocks that were written before takes the file system the least work. What is in
// it carries the number of the old segment, so it is not taken for frames of the new one.
func (l *Log) dispose(s *segment) error {
	if err := s.close(); err != nil {
		return err
	}
	l.spareMu.Lock()
	defer l.spareMu.Unlock()
	if s.length == l.cfg.Segment && !l.spare {
		err := l.fs.Rename(l.path(s.number), l.sparePath(spareName))
		l.spare = err == nil
		return err
	}
	return l.fs.Remove(l.path(s.number))
}

func (l *Log) sparePath(name string) string { return l.fs.PathJoin(l.cfg.Dir, name) }

// takeSpare makes the spare file a segment; it returns nil without one.
func (l *Log) takeSpare(number uint32) (vfs.File, error) {
	l.spareMu.Lock()
	defer l.spareMu.Unlock()
	if !l.spare {
		return nil, nil
	}
	l.spare = false
	return l.fs.ReuseForWrite(l.sparePath(spareName), l.path(number))
}

// prepareSpare makes the file of the next segment, so that the writer need not. The maintenance
// calls it, as it calls dispose. If it fails, the writer tries.
func (l *Log) prepareSpare() {
	l.spareMu.Lock()
	ready := l.spare
	l.spareMu.Unlock()
	if ready {
		return
	}
	if err := l.makeSpare(); err != nil {
		l.log.Warn("no file prepared for the log", "err", err)
		_ = l.fs.Remove(l.sparePath(newSpareName))
	}
}

func (l *Log) makeSpare() error {
	f, err := l.createFile(l.sparePath(newSpareName), l.cfg.Segment)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	l.spareMu.Lock()
	defer l.spareMu.Unlock()
	err = l.fs.Rename(l.sparePath(newSpareName), l.sparePath(spareName))
	l.spare = err == nil
	return err
}
