package wal

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// recover reads the log. DESIGN.md has the rules.
func (l *Log) recover() error {
	files, err := l.listFiles()
	if err != nil {
		return err
	}
	heads := make(map[uint32]header, len(files))
	for _, n := range files {
		if heads[n], err = l.readHeader(n); err != nil {
			return err
		}
	}
	markPath := l.fs.PathJoin(l.cfg.Dir, markName)
	if l.mark, err = readMark(l.fs, markPath); err != nil {
		return err
	}
	if l.mark.found && l.mark.id == 0 {
		l.log.Warn("log's mark unreadable", "file", markPath)
	}
	last, err := l.newest(files, heads)
	if err != nil {
		return err
	}
	l.id, l.first = rand.Uint64(), 1
	if last == 0 {
		if err := cmp.Or(l.damage, l.checkMark()); err != nil {
			if !l.cfg.AcceptLoss {
				return err
			}
			l.openDamaged(err)
			return nil
		}
		return l.removeFiles(files, 1, 0)
	}
	l.id = heads[last].id
	// The newest segment names the first that is needed.
	var content []byte
	tail, err := l.read(last, heads[last], &content, nil)
	if err != nil && !l.cfg.AcceptLoss {
		return err
	}
	l.first = tail.first
	if err := l.readSegments(heads, last, &content); err != nil {
		if !l.cfg.AcceptLoss || !errors.Is(err, ErrDamaged) {
			return err
		}
		l.openDamaged(err)
		return nil
	}
	if err := cmp.Or(l.checkHoles(), l.checkMark(), l.checkCopies(files, heads, last)); err != nil {
		if !l.cfg.AcceptLoss {
			return err
		}
		l.openDamaged(err)
		return nil
	}
	if err := l.syncTail(tail, content); err != nil {
		return err
	}
	return l.removeFiles(files, l.first, last)
}

// listFiles returns the numbers of the segments' files in order.
func (l *Log) listFiles() (numbers []uint32, err error) {
	names, err := l.fs.List(l.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if n, ok := segmentNumber(name); ok {
			numbers = append(numbers, n)
		}
		if name == spareName || name == newSpareName {
			if err := l.fs.Remove(l.sparePath(name)); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// removeFiles removes the files outside of first to last.
func (l *Log) removeFiles(files []uint32, first, last uint32) error {
	for _, n := range files {
		if n < first || n > last {
			if err := l.fs.Remove(l.path(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readHeader reads the header in a segment's file. Its number is 0 without a header, and another
// segment's if the file was that segment's.
func (l *Log) readHeader(number uint32) (header, error) {
	f, err := l.fs.Open(l.path(number))
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	b := make([]byte, headerLen)
	n, _ := f.ReadAt(b, 0) // an unreadable header counts as no header
	h, ok := parseHeader(b[:n])
	switch {
	case !ok:
		return header{}, nil
	case h.version != FormatVersion:
		return h, fmt.Errorf("the log has format %d, this program knows %d only; start the program that wrote it (%w)",
			h.version, FormatVersion, errors.ErrUnsupported)
	}
	return h, nil
}

// newest returns the number of the newest segment, or 0. The last file may be without a header if
// nothing in it was acknowledged: the process ended while creating it.
func (l *Log) newest(files []uint32, heads map[uint32]header) (uint32, error) {
	for i := len(files) - 1; i >= 0; i-- {
		n := files[i]
		if heads[n].number == n {
			return n, nil
		}
		f, err := l.fs.Open(l.path(n))
		if err != nil {
			return 0, err
		}
		content, err := readAll(f, nil)
		if err = errors.Join(err, f.Close()); err != nil {
			return 0, err
		}
		later, ok := acknowledged(content, n, 0, at(n, headerSize))
		switch {
		case ok:
			l.damage = l.damaged(at(n, 0),
				fmt.Sprintf("the header is not what was written, and a frame follows at byte %d", later.at.offset()))
		case i < len(files)-1:
			l.damage = l.damaged(at(n, 0), "the header is not what was written")
		}
		if l.damage != nil && !l.cfg.AcceptLoss {
			return 0, l.damage
		}
	}
	return 0, nil
}

// acknowledged looks for a frame from an offset on that says that something from end on was synced.
func acknowledged(content []byte, number uint32, offset int64, end position) (frame, bool) {
	for ; offset+frameHead <= int64(len(content)); offset += frameAlign {
		if position(binary.LittleEndian.Uint64(content[offset+8:])) != at(number, offset) {
			continue
		}
		if f, ok := openFrame(content, number, offset); ok && f.synced > end {
			return f, true
		}
	}
	return frame{}, false
}

// tail is the end of a segment.
type tail struct {
	end    position // of its last frame
	sum    uint32   // of that frame
	synced position // the highest that a frame claims
	first  uint32
}

// read reads a segment into content, and calls apply with its frames. It returns [ErrDamaged] if
// frames behind the end prove that it is not the end.
func (l *Log) read(number uint32, h header, content *[]byte, apply func(f *frame) error) (tail, error) {
	t := tail{end: at(number, headerSize), sum: h.sum, synced: at(number, headerSize), first: h.first}
	file, err := l.fs.Open(l.path(number))
	if err != nil {
		return t, err
	}
	*content, err = readAll(file, *content)
	if err = errors.Join(err, file.Close()); err != nil {
		return t, fmt.Errorf("%w: %q: %w", ErrDamaged, l.path(number), err)
	}
	for {
		f, ok := openFrame(*content, number, t.end.offset())
		if !ok {
			break
		}
		if f.prev != t.sum {
			return t, l.damaged(t.end, "the frame does not follow the one before it")
		}
		if apply != nil {
			if err := apply(&f); err != nil {
				return t, l.damaged(t.end, err.Error())
			}
		}
		t.end, t.sum, t.first, t.synced = t.end+position(f.size), f.sum, f.first, max(t.synced, f.synced)
	}
	if f, ok := acknowledged(*content, number, t.end.offset()+frameAlign, t.end); ok {
		return t, l.damaged(t.end,
			fmt.Sprintf("the frame is not what was written, and one follows at byte %d", f.at.offset()))
	}
	return t, nil
}

// readSegments reads the segments that are needed, and builds the index. It opens the files that
// stay open.
func (l *Log) readSegments(heads map[uint32]header, last uint32, content *[]byte) error {
	if l.first > last {
		return l.damaged(at(last, 0), fmt.Sprintf("it needs segment %d, which does not exist", l.first))
	}
	cutShort := false // the segment before was not read to its end
	for n := l.first; n <= last; n++ {
		h := heads[n]
		if h.number != n {
			err := l.damaged(at(n, 0), "the segment is missing, or its header is not what was written")
			if !l.cfg.AcceptLoss || n == last {
				return err
			}
			l.skip(err)
			cutShort = true
			l.segments = append(l.segments, &segment{number: n}) // they are found by their place
			continue
		}
		if h.id != l.id {
			return l.damaged(at(n, 0), "the segment is of another log")
		}
		if n > l.first && !cutShort && (h.prevEnd != l.end || h.prevSum != l.chain) {
			if h.prevEnd <= l.end {
				return l.damaged(at(n, 0), "the segment does not follow the one before it")
			}
			err := l.damaged(l.end,
				fmt.Sprintf("the frame is not what was written; the segment ends at byte %d", h.prevEnd.offset()))
			if !l.cfg.AcceptLoss {
				return err
			}
			l.skip(err)
		}
		t, err := l.read(n, h, content, func(f *frame) error {
			return records(f.payload, f.at+frameHead, l.apply)
		})
		l.end, l.chain = t.end, t.sum
		s := &segment{number: n, end: t.end.offset(), length: int64(len(*content))}
		l.segments = append(l.segments, s)
		cutShort = err != nil && l.cfg.AcceptLoss && n < last && errors.Is(err, ErrDamaged)
		if cutShort {
			l.skip(err)
		} else if err != nil {
			return err
		}
		if last-n < maxOpen {
			if s.file, err = l.openFile(l.path(n)); err != nil {
				return err
			}
		}
	}
	return l.damage
}

// syncTail makes the frames read durable. A killed process leaves frames in the kernel's memory
// that the disk does not have yet; and after a failed sync the kernel may take them for written. So
// the frames that no frame calls synced are written once more.
func (l *Log) syncTail(t tail, content []byte) error {
	s := l.segments[len(l.segments)-1]
	from := min(t.synced, t.end).offset()
	if from == headerSize {
		from = 0 // the header is not known to be synced either
	}
	to := min(t.end.offset(), int64(len(content))) // the file may end before the last frame's padding
	if b := content[from:to]; len(b) > 0 {
		if _, err := s.file.WriteAt(b, from); err != nil {
			return err
		}
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	l.synced = l.end
	return SyncDir(l.fs, l.cfg.Dir)
}

// checkHoles returns [ErrDamaged] if an entry is missing in a log.
func (l *Log) checkHoles() error {
	for k, p := range l.replicas {
		if i, ok := p.entries.hole(); ok {
			return fmt.Errorf("%w: in %q entry %d of shard %d is missing", ErrDamaged, l.cfg.Dir, i, k.shard)
		}
	}
	return nil
}

// checkMark returns [ErrDamaged] if the log that was read is not all that was synced.
func (l *Log) checkMark() error {
	m := &l.mark
	switch {
	case !m.found && l.end != 0:
		return fmt.Errorf("%w: %q is missing", ErrDamaged, l.fs.PathJoin(l.cfg.Dir, markName))
	case m.synced == 0: // a new log's, or unreadable
		return nil
	case l.end == 0:
		return l.damaged(m.synced, "this was on disk, and no segment is there")
	case m.id != l.id:
		return l.damaged(at(l.end.segment(), 0), "the segment is of another log")
	case m.synced > l.end:
		return l.damaged(l.end, fmt.Sprintf("the log ends here, but everything up to byte %d of %q was on disk",
			m.synced.offset(), segmentName(m.synced.segment())))
	}
	return nil
}

// checkCopies returns [ErrDamaged] if a file behind the last segment is a copy of a segment that is
// needed. A file that was prepared to become a segment may have the header of a dropped one.
func (l *Log) checkCopies(files []uint32, heads map[uint32]header, last uint32) error {
	for _, n := range files {
		if h := heads[n]; n > last && h.id == l.id && h.number >= l.first {
			return l.damaged(at(n, 0), fmt.Sprintf("the file is a copy of %q", segmentName(h.number)))
		}
	}
	return nil
}

// skip goes on behind a damaged part. That may have removed entries, or replaced them, so those
// before it are never joined with later ones.
func (l *Log) skip(err error) {
	if l.damage == nil {
		l.damage = err
	}
	for _, p := range l.replicas {
		l.keepWhole(p)
		p.before, p.entries = p.entries, entryIndex{}
	}
}

// openDamaged keeps the whole records of each log. Nothing can be written.
func (l *Log) openDamaged(err error) {
	l.damage, l.broken = err, err
	for _, p := range l.replicas {
		l.keepWhole(p)
	}
}

// keepWhole leaves in a log the entries that follow its snapshot, without a hole. If there are none
// behind a part that was skipped, they are those from before it.
func (l *Log) keepWhole(p *replica) {
	x := &p.entries
	x.cut(p.snapshotIndex)
	if i, ok := x.hole(); ok {
		x.truncate(i)
	}
	if !x.empty() && x.first > p.snapshotIndex+1 {
		x.clear()
	}
	if x.empty() && l.followSnapshot(p, &p.before) {
		*x = p.before
		x.cut(p.snapshotIndex)
	}
	p.before.clear()
}

// followSnapshot reports whether entries from before a skipped part follow the snapshot, which may
// be newer than they are. They do if the one that the snapshot ends with is among them: entries of
// one index and term have the same ones before them in all logs.
func (l *Log) followSnapshot(p *replica, entries *entryIndex) bool {
	if entries.empty() || entries.first == p.snapshotIndex+1 {
		return !entries.empty()
	}
	at, size := entries.get(p.snapshotIndex)
	if at == 0 {
		return false
	}
	s, release := l.segmentOf(at.segment())
	if s == nil {
		return false
	}
	defer release()
	b := make([]byte, entryHead+size)
	n, _ := l.readAt(s, b, at.offset())
	e, err := l.entry(b[:n], 0, place{at, size}, p.snapshotIndex)
	return err == nil && e.Term == p.snapshotTerm
}
