package wal

import (
	"errors"
	"io"
	"math/bits"
	"syscall"
	"unsafe"

	"github.com/lni/vfs"
)

// blockSize is the unit of writes past the page cache. The kernel asks for multiples of the disk's
// sector, which is no longer on the disks and file systems that are in use.
const blockSize = 4096

// directFile is a file that is written past the page cache. Offset, length and memory of a write
// are multiples of blockSize. A sync of the file is needed all the same: the disk has a cache, too.
type directFile interface {
	io.WriterAt
	io.Closer
}

// writer writes the end of a segment, which it has in memory from the last block on that is not
// whole in the file. It belongs to the writer of the log.
type writer struct {
	file   vfs.File
	direct directFile // nil: writes go through the page cache

	buf     []byte // begins at a multiple of blockSize in memory, too
	base    int64  // where it begins in the file, a multiple of blockSize
	written int    // bytes of it on disk
}

// begin goes over to the beginning of another file. Direct may be nil.
func (w *writer) begin(file vfs.File, direct directFile) error {
	err := w.close()
	*w = writer{file: file, direct: direct, buf: w.buf[:0]}
	return err
}

// close frees all but the file.
func (w *writer) close() (err error) {
	if w.direct != nil {
		err = w.direct.Close()
		w.direct = nil
	}
	return err
}

// pending reports whether something is in memory only.
func (w *writer) pending() bool { return w.written < len(w.buf) }

// extend appends n bytes, which the caller fills in. They are valid until the next call.
func (w *writer) extend(n int) []byte {
	if whole := w.written / blockSize * blockSize; whole > 0 {
		w.buf = w.buf[:copy(w.buf, w.buf[whole:])]
		w.base, w.written = w.base+int64(whole), w.written-whole
	}
	length := len(w.buf)
	// The last block is filled up when it is written.
	if need := blocks(length + n); need > cap(w.buf) || cap(w.buf) > maxKept && need <= maxKept {
		w.buf = append(alignedBuffer(need), w.buf...)
	}
	w.buf = w.buf[:length+n]
	return w.buf[length:]
}

// flush writes and syncs the frames that are in memory only.
func (w *writer) flush() error {
	if !w.pending() {
		return nil
	}
	if err := w.write(); err != nil {
		return err
	}
	if err := syncData(w.file); err != nil {
		return err
	}
	w.written = len(w.buf)
	return nil
}

func (w *writer) write() error {
	if w.direct != nil {
		whole := w.buf[:blocks(len(w.buf))]
		clear(whole[len(w.buf):])
		_, err := w.direct.WriteAt(whole, w.base)
		if !errors.Is(err, syscall.EINVAL) {
			return err
		}
		// The file system does not take this.
		if err := w.close(); err != nil {
			return err
		}
	}
	_, err := w.file.WriteAt(w.buf[w.written:], w.base+int64(w.written))
	return err
}

// blocks rounds a length up to whole blocks.
func blocks[T int | int64](n T) T { return (n + blockSize - 1) / blockSize * blockSize }

// alignedBuffer returns an empty buffer for at least n bytes that begins at a multiple of
// blockSize. The collector moves no memory.
func alignedBuffer(n int) []byte {
	if n <= maxKept { // it is kept, and so serves longer writes, too
		n = 1 << bits.Len(uint(n-1))
	}
	b := make([]byte, n+blockSize-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockSize)
	return b[skip : skip : skip+n]
}
