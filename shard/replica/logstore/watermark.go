package logstore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/lni/vfs"
	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// key identifies a replica's log.
type key struct{ shard, replica uint64 }

func (k key) compare(o key) int {
	return cmp.Or(cmp.Compare(k.shard, o.shard), cmp.Compare(k.replica, o.replica))
}

// mark is the position of a log. The term of the last entry is compared first: a new leader may
// truncate a log, and the new entries have a later term.
type mark struct {
	term      uint64 // of the hard state: a vote in it must not be forgotten
	lastTerm  uint64
	lastIndex uint64
}

// behind reports whether the log at m has lost something that the log at o had.
func (m mark) behind(o mark) bool {
	return m.term < o.term || m.lastBehind(o)
}

func (m mark) lastBehind(o mark) bool {
	return cmp.Or(cmp.Compare(m.lastTerm, o.lastTerm), cmp.Compare(m.lastIndex, o.lastIndex)) < 0
}

func (m mark) String() string {
	return fmt.Sprintf("term %d, last entry %d of term %d", m.term, m.lastIndex, m.lastTerm)
}

// A file of marks has magic, version, sequence number, count, marks in order of their keys, and a
// CRC-32C of all that.
const (
	fileMagic = 0x7369_676d // "sigm"
	headLen   = 4 + 4 + 8 + 4
	markLen   = 5 * 8
	maxMarks  = 1 << 16
)

// FileVersion is the version of the file of marks.
const FileVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendMarks(b []byte, seq uint64, marks map[key]mark) []byte {
	b = binary.LittleEndian.AppendUint32(b, fileMagic)
	b = binary.LittleEndian.AppendUint32(b, FileVersion)
	b = binary.LittleEndian.AppendUint64(b, seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(marks)))
	for _, k := range slices.SortedFunc(maps.Keys(marks), key.compare) {
		m := marks[k]
		for _, v := range [...]uint64{k.shard, k.replica, m.term, m.lastTerm, m.lastIndex} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var errNoMarks = errors.New("no marks")

// parseMarks reads the output of appendMarks. Other bytes give errNoMarks, or an error about a
// later version.
func parseMarks(b []byte) (seq uint64, marks map[key]mark, err error) {
	if len(b) < headLen+4 || binary.LittleEndian.Uint32(b) != fileMagic {
		return 0, nil, errNoMarks
	}
	version := binary.LittleEndian.Uint32(b[4:])
	n := binary.LittleEndian.Uint32(b[16:])
	end := len(b) - 4
	if version == FileVersion { // the rest is of a longer file that was here before
		if n > maxMarks || headLen+int(n)*markLen > end {
			return 0, nil, errNoMarks
		}
		end = headLen + int(n)*markLen
	}
	if crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]) {
		return 0, nil, errNoMarks
	}
	if version != FileVersion {
		return 0, nil, laterVersion(version)
	}
	marks = make(map[key]mark, n)
	for rest := b[headLen:end]; len(rest) > 0; rest = rest[markLen:] {
		u := func(i int) uint64 { return binary.LittleEndian.Uint64(rest[8*i:]) }
		marks[key{u(0), u(1)}] = mark{u(2), u(3), u(4)}
	}
	return binary.LittleEndian.Uint64(b[8:]), marks, nil
}

func laterVersion(version uint32) error {
	return fmt.Errorf("the log's watermark has format %d, this program knows %d at most; start the program that wrote it, or a later one",
		version, FileVersion)
}

// watermarkFiles keeps marks in two files. One is rewritten; the other was synced and stays, so
// that it is whole after a loss of power. A synced write swaps them.
type watermarkFiles struct {
	fs   vfs.FS
	dir  string
	seq  uint64
	slot int // of the next write
	buf  []byte
}

func (f *watermarkFiles) path(slot int) string {
	return f.fs.PathJoin(f.dir, fmt.Sprintf("watermark.%d", slot))
}

// read returns the newest marks, nil if no file has any. Lacking says for each unreadable file why;
// in a new folder both are missing.
func (f *watermarkFiles) read() (marks map[key]mark, lacking []string, err error) {
	for slot := range 2 {
		b, err := readFile(f.fs, f.path(slot))
		if err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				return nil, nil, fmt.Errorf("read the log's watermark: %w", err)
			}
			lacking = append(lacking, fmt.Sprintf("%q is missing", f.path(slot)))
			continue
		}
		seq, m, err := parseMarks(b)
		switch {
		case errors.Is(err, errNoMarks):
			lacking = append(lacking, fmt.Sprintf("%q is damaged", f.path(slot)))
		case err != nil:
			return nil, nil, err
		case marks == nil || seq > f.seq:
			marks, f.seq, f.slot = m, seq, 1-slot
		}
	}
	return marks, lacking, nil
}

// encode prepares the next write.
func (f *watermarkFiles) encode(marks map[key]mark) {
	f.buf = appendMarks(f.buf[:0], f.seq+1, marks)
}

// write replaces one of the two files by the encoded marks. Without a sync, either content on disk
// holds for the log, as long as marks rise.
func (f *watermarkFiles) write(sync bool) error {
	if err := f.writeSlot(sync); err != nil {
		return err
	}
	f.seq++
	if sync {
		f.slot = 1 - f.slot
	}
	return nil
}

// writeThrough replaces both files durably. It is for the first marks, and for lowered ones: no
// older mark may remain.
func (f *watermarkFiles) writeThrough() error {
	for range 2 {
		if err := f.writeSlot(true); err != nil {
			return err
		}
		f.slot = 1 - f.slot
	}
	f.seq++
	return wal.SyncDir(f.fs, f.dir)
}

// writeSlot overwrites the marks in place, in one write. A process that is killed meanwhile leaves
// the former marks or these; in a file that is truncated first it would leave none.
func (f *watermarkFiles) writeSlot(sync bool) error {
	path := f.path(f.slot)
	file, err := f.fs.ReuseForWrite(path, path)
	if errors.Is(err, os.ErrNotExist) {
		file, err = f.fs.Create(path)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteAt(f.buf, 0)
	if err == nil && sync {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, headLen+maxMarks*markLen+4+1))
}
