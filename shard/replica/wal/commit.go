package wal

import (
	"fmt"
	"sync"
	"time"
)

// op is a call's part of a frame.
type op struct {
	records []byte
	sync    bool        // the call returns when it is on disk
	check   func() bool // called by the writer; false: the op is dropped; may be nil
	first   uint32      // the first segment that is needed from now on; 0: as before

	done bool // guarded by Log.mu, as err
	err  error
}

var ops = sync.Pool{New: func() any { return new(op) }}

func newOp() *op {
	o := ops.Get().(*op)
	*o = op{records: o.records[:0]}
	return o
}

func (o *op) release() {
	if cap(o.records) > maxKept {
		o.records = nil
	}
	ops.Put(o)
}

// maxKept is the largest buffer that is kept for the next call.
const maxKept = 1 << 20

// commit writes an op and returns when it is written, and synced if it asks for that. A call that
// finds nobody writing writes on its own goroutine. Others wait; what has gathered then is one
// frame, and one of them writes it.
func (l *Log) commit(o *op) error {
	l.mu.Lock()
	l.queue = append(l.queue, o)
	for l.writing && !o.done {
		l.written.Wait()
	}
	if o.done {
		l.mu.Unlock()
		return o.err
	}
	l.writing = true
	batch := l.queue
	l.queue = l.unused
	l.mu.Unlock()

	err := l.write(batch)

	l.mu.Lock()
	for i, o := range batch {
		o.done, o.err = true, err
		batch[i] = nil
	}
	l.unused = batch[:0]
	l.writing = false
	l.written.Broadcast()
	l.mu.Unlock()
	return err
}

// write writes a frame and applies it. The caller is the writer: it has set l.writing.
func (l *Log) write(batch []*op) (err error) {
	if l.broken != nil {
		return l.broken
	}
	defer func() {
		if err != nil { // what is on disk is unknown: nothing may be written behind it
			l.broken = err
		}
	}()
	var head [frameHead]byte
	b := append(l.buf[:0], head[:]...)
	// An op with a check goes first: the check sees the index without the other ops.
	write, sync := false, false
	for _, o := range batch {
		if o.check == nil || !o.check() {
			continue
		}
		b, write, sync = append(b, o.records...), true, sync || o.sync
	}
	for _, o := range batch {
		if o.check == nil {
			b, write, sync = append(b, o.records...), true, sync || o.sync
			l.first = max(l.first, o.first)
		}
	}
	if !write {
		return nil
	}
	size := frameSize(len(b) - frameHead)
	if l.active == nil || l.active.end+size > l.active.length {
		if err := l.rotate(size); err != nil {
			return fmt.Errorf("begin a segment of the log: %w", err)
		}
	}
	from, n := l.end, len(b)
	b, sum := seal(b, from, l.synced, l.chain, l.first)
	payload := b[frameHead:n]
	l.buf = b
	if cap(b) > maxKept {
		l.buf = nil
	}
	var began time.Time
	if sync && l.cfg.Synced != nil {
		began = time.Now()
	}
	if _, err := l.active.file.WriteAt(b, from.offset()); err != nil {
		return err
	}
	l.claimed, l.chain = l.synced, sum
	l.active.end += size
	l.end += position(size)
	l.unsynced = true
	if sync {
		if err := l.sync(); err != nil {
			return err
		}
		if !began.IsZero() {
			l.cfg.Synced(time.Since(began))
		}
	}
	l.ix.Lock()
	err = records(payload, from+frameHead, l.apply)
	l.ix.Unlock()
	if err != nil {
		return err
	}
	if l.claimed != l.synced || l.changed.Load() {
		l.wake()
	}
	return nil
}

// sync makes what is written durable. The caller is the writer.
func (l *Log) sync() error {
	if !l.unsynced {
		return nil
	}
	if err := syncData(l.active.file); err != nil {
		return err
	}
	l.unsynced, l.synced = false, l.end
	return nil
}

// wake lets the maintenance run soon.
func (l *Log) wake() {
	if l.woken.CompareAndSwap(false, true) {
		l.wakeC <- struct{}{}
	}
}
