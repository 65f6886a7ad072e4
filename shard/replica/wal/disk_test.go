package wal

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/lni/vfs"
)

// disk is a file system in memory that loses what was not synced. Of what was written since a
// file's last sync, any part may have reached the disk. Of the changes of the folder since its last
// sync, the first ones may have.
type disk struct {
	vfs.FS // not used

	mu     sync.Mutex
	now    map[string]*inode // the folder as it is
	synced map[string]*inode // as it was at the last sync of the folder
	folder []map[string]*inode

	ops      int        // that have changed something
	dieAt    int        // the disk is gone when ops gets there; 0: never
	room     int        // bytes that may still be written; negative: no bound
	direct   bool       // it takes writes past the page cache
	badSync  error      // of each sync from now on
	holdSync chan error // a sync waits for it
	syncs    int
	writes   int
	open     int // files
}

// inode is a file. Old contents are those since the last sync.
type inode struct {
	data    []byte
	durable []byte
	pending []pendingWrite
}

type pendingWrite struct {
	at   int
	data []byte
}

var errDead = errors.New("the disk is gone")

func newDisk() *disk {
	return &disk{now: make(map[string]*inode), synced: make(map[string]*inode), room: -1, direct: true}
}

// op counts an operation that changes something. The caller holds mu.
func (d *disk) op() error {
	d.ops++
	if d.dieAt != 0 && d.ops >= d.dieAt {
		return errDead
	}
	return nil
}

func clone(m map[string]*inode) map[string]*inode {
	c := make(map[string]*inode, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

func (d *disk) change(f func()) error {
	if err := d.op(); err != nil {
		return err
	}
	f()
	d.folder = append(d.folder, clone(d.now))
	return nil
}

// crash is a disk as it may be after a loss of power.
func (d *disk) crash(r *rand.Rand) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := newDisk()
	after.direct = d.direct
	folder := d.synced
	if n := r.IntN(len(d.folder) + 1); n > 0 {
		folder = d.folder[n-1]
	}
	all := r.IntN(8) == 0 // a process that was killed: the kernel has everything
	if all {
		folder = d.now
	}
	done := make(map[*inode]*inode)
	for name, n := range folder {
		if done[n] == nil {
			data := append([]byte(nil), n.durable...)
			for _, w := range n.pending {
				data = w.tear(data, r, all)
			}
			done[n] = &inode{data: data, durable: append([]byte(nil), data...)}
		}
		after.now[name] = done[n]
	}
	after.synced = clone(after.now)
	return after
}

// tear applies some of a write.
func (w *pendingWrite) tear(data []byte, r *rand.Rand, all bool) []byte {
	put := func(from, to int) {
		for len(data) < w.at+to {
			data = append(data, 0)
		}
		copy(data[w.at+from:], w.data[from:to])
	}
	how := r.IntN(5)
	if all {
		how = 0
	}
	switch how {
	case 0:
		put(0, len(w.data))
	case 1: // nothing
	case 2: // up to any byte
		put(0, r.IntN(len(w.data)+1))
	case 3: // from any byte on
		put(r.IntN(len(w.data)+1), len(w.data))
	case 4: // some sectors
		for from := 0; from < len(w.data); {
			to := min((w.at+from)/512*512+512-w.at, len(w.data))
			if r.IntN(2) == 0 {
				put(from, to)
			}
			from = to
		}
	}
	return data
}

func (d *disk) PathJoin(elem ...string) string { return path.Join(elem...) }

func (d *disk) Create(name string) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := new(inode)
	if err := d.change(func() { d.now[name] = n }); err != nil {
		return nil, err
	}
	d.open++
	return &handle{d: d, n: n}, nil
}

func (d *disk) openFile(name string) (vfs.File, error) {
	n := d.now[name]
	if n == nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	d.open++
	return &handle{d: d, n: n}, nil
}

func (d *disk) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.openFile(name)
}

func (d *disk) ReuseForWrite(from, to string) (vfs.File, error) {
	if from != to {
		if err := d.Rename(from, to); err != nil {
			return nil, err
		}
	}
	return d.Open(to)
}

func (d *disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.now[from]
	if n == nil {
		return os.ErrNotExist
	}
	return d.change(func() { delete(d.now, from); d.now[to] = n })
}

func (d *disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now[name] == nil {
		return os.ErrNotExist
	}
	return d.change(func() { delete(d.now, name) })
}

func (d *disk) List(string) (names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.now {
		names = append(names, path.Base(name))
	}
	return names, nil
}

func (d *disk) OpenDir(string) (vfs.File, error) { return &handle{d: d}, nil }

// handle is an open file; without an inode the folder.
type handle struct {
	d      *disk
	n      *inode
	closed bool
}

func (h *handle) Close() error {
	if h.closed {
		return os.ErrClosed
	}
	h.closed = true
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.n != nil {
		h.d.open--
	}
	return nil
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.closed {
		return 0, os.ErrClosed
	}
	if off >= int64(len(h.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.closed {
		return 0, os.ErrClosed
	}
	h.d.writes++
	err := h.d.op()
	if h.d.room >= 0 && len(p) > h.d.room {
		p, err = p[:h.d.room], syscall.ENOSPC
	}
	if h.d.room >= 0 {
		h.d.room -= len(p)
	}
	// A write that fails may have been done in part.
	w := pendingWrite{at: int(off), data: append([]byte(nil), p...)}
	h.n.pending = append(h.n.pending, w)
	for len(h.n.data) < w.at+len(p) {
		h.n.data = append(h.n.data, 0)
	}
	copy(h.n.data[off:], p)
	return len(p), err
}

func (h *handle) Sync() error {
	h.d.mu.Lock()
	hold, bad := h.d.holdSync, h.d.badSync
	h.d.syncs++
	h.d.mu.Unlock()
	if hold != nil {
		if err := <-hold; err != nil {
			return err
		}
	}
	if bad != nil { // the kernel takes the pages for clean, and the disk does not have them
		if h.n != nil {
			h.d.mu.Lock()
			h.n.pending = nil
			h.d.mu.Unlock()
		}
		return bad
	}
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if err := h.d.op(); err != nil {
		return err
	}
	if h.n == nil {
		h.d.synced, h.d.folder = clone(h.d.now), nil
		return nil
	}
	h.n.durable, h.n.pending = append([]byte(nil), h.n.data...), nil
	return nil
}

// openDirect opens a file to be written past the page cache.
func (d *disk) openDirect(name string) (directFile, error) {
	if !d.direct {
		return nil, errors.ErrUnsupported
	}
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	return &directHandle{f.(*handle)}, nil
}

// directHandle is a file that is open to be written past the page cache.
type directHandle struct{ h *handle }

func (f *directHandle) Close() error { return f.h.Close() }

func (f *directHandle) WriteAt(p []byte, off int64) (int, error) {
	memory := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	if off%4096 != 0 || len(p)%4096 != 0 || memory%4096 != 0 {
		panic(fmt.Sprintf("%d bytes at %x are written directly at %d", len(p), memory, off))
	}
	f.h.d.mu.Lock()
	dirty := len(f.h.n.pending) > 0
	f.h.d.mu.Unlock()
	if dirty {
		panic("a file is written directly that has writes in the page cache")
	}
	return f.h.WriteAt(p, off)
}

func (h *handle) Stat() (os.FileInfo, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return fileInfo{size: int64(len(h.n.data))}, nil
}

func (h *handle) Read([]byte) (int, error)       { return 0, errors.ErrUnsupported }
func (h *handle) Write([]byte) (int, error)      { return 0, errors.ErrUnsupported }
func (h *handle) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

type fileInfo struct{ size int64 }

func (i fileInfo) Name() string       { return "" }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() os.FileMode  { return 0o600 }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return false }
func (i fileInfo) Sys() any           { return nil }
