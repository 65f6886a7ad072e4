package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"

	"github.com/lni/vfs"
)

// mark is a small file beside the segments that has the synced end of the log. It is overwritten
// in place after each sync and before the call returns, without a sync of its own. A mark may be
// old, but never ahead of the log, so a log that ends before its mark has lost its end.
//
//	 0  identity of the log
//	 8  synced: everything before this position is on disk
//	16  CRC-32C of all that
type mark struct {
	id     uint64
	synced position
	found  bool // the file is there; if it is unreadable, synced is 0

	file vfs.File // nil until the log is written
	buf  [markLen]byte
}

const (
	markName = "synced"
	markLen  = 20
)

// readMark reads the mark in a file. One that cannot be understood says nothing: a loss of power may
// have torn it.
func readMark(fs vfs.FS, path string) (m mark, err error) {
	f, err := fs.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	m.found = true
	le := binary.LittleEndian
	n, _ := f.ReadAt(m.buf[:], 0)
	if n == markLen && crc32.Checksum(m.buf[:16], castagnoli) == le.Uint32(m.buf[16:]) {
		m.id, m.synced = le.Uint64(m.buf[0:]), position(le.Uint64(m.buf[8:]))
	}
	return m, nil
}

// write overwrites the file. One write of so few bytes is there as a whole or not at all if the
// process is killed.
func (m *mark) write() error {
	le := binary.LittleEndian
	le.PutUint64(m.buf[0:], m.id)
	le.PutUint64(m.buf[8:], uint64(m.synced))
	le.PutUint32(m.buf[16:], crc32.Checksum(m.buf[:16], castagnoli))
	_, err := m.file.WriteAt(m.buf[:], 0)
	return err
}
