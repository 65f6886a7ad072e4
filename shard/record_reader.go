package shard

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// maxRecord bounds a record; the largest are the header and the memory of a very busy session.
const maxRecord = 64 << 20

var errSnapshot = errors.New("shard: snapshot is damaged; take another one")

func damaged(what string) error { return fmt.Errorf("%w (%s)", errSnapshot, what) }

// recordReader takes chunks apart into records.
type recordReader struct {
	r   *bufio.Reader
	buf []byte // bytes of checked chunks
	pos int
}

// open reads the beginning of a snapshot, and returns its format version.
func (r *recordReader) open() (format uint8, err error) {
	var head [introLen]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, readError(err)
	}
	format = head[len(snapshotMagic)]
	if string(head[:len(snapshotMagic)]) != snapshotMagic || format == 0 {
		return 0, damaged("it does not begin like one")
	}
	if format > FormatVersion {
		return 0, ErrFormat
	}
	return format, nil
}

func (r *recordReader) more() error {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return readError(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > chunkBytes {
		return damaged("chunk length")
	}
	if r.pos > 0 {
		r.buf = r.buf[:copy(r.buf, r.buf[r.pos:])]
		r.pos = 0
	}
	at := len(r.buf)
	r.buf = slices.Grow(r.buf, int(n))[:at+int(n)]
	if _, err := io.ReadFull(r.r, r.buf[at:]); err != nil {
		return readError(err)
	}
	if crc32.Checksum(r.buf[at:], castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return damaged("checksum")
	}
	return nil
}

// next reads a record; its fields are valid until the next call.
func (r *recordReader) next() (recordKind, []byte, error) {
	for {
		if rest := r.buf[r.pos:]; len(rest) > 1 {
			n, width := binary.Uvarint(rest[1:])
			if width < 0 || n > maxRecord {
				return 0, nil, damaged("record length")
			}
			if end := 1 + width + int(n); width > 0 && end <= len(rest) {
				r.pos += end
				return recordKind(rest[0]), rest[1+width : end], nil
			}
		}
		if err := r.more(); err != nil {
			return 0, nil, err
		}
	}
}

func (r *recordReader) close() error {
	if r.pos != len(r.buf) {
		return damaged("bytes behind its end")
	}
	return nil
}

func readError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return damaged("it is cut short")
	}
	return err
}
