package wal

import (
	"fmt"
	"sync"
	"time"
)

// op is a call's part of a frame.
type op struct {
	records []byte
	sync    bool        // the call returns when it is on disk; else it may stay in memory
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

// maxKept is the largest buffer that is kept for the next call, but for the padding that aligns it.
const maxKept = 1 << 20

// commit takes an op into the log and returns when it is on disk, if it asks for that. A call that
// finds nobody writing writes on its own goroutine. Others wait; one of them then writes all ops
// gathered meanwhile as one frame.
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

// write appends a frame and applies it. If none of its ops asks for a sync, it stays in memory
// until the next one that does. The caller is the writer: it has set l.writing.
func (l *Log) write(batch []*op) (err error) {
	if l.broken != nil {
		return l.broken
	}
	defer func() {
		if err != nil { // the content on disk is unknown: nothing may be written behind it
			l.broken = err
		}
	}()
	// An op with a check goes first: the check sees the index without the other ops.
	first, ops := l.first, l.ops[:0]
	for _, o := range batch {
		if o.check != nil && o.check() {
			ops = append(ops, o)
		}
	}
	for _, o := range batch {
		if o.check == nil {
			ops = append(ops, o)
			l.first = max(l.first, o.first)
		}
	}
	defer clear(ops)
	l.ops = ops
	if len(ops) == 0 {
		return nil
	}
	n, sync := 0, false
	for _, o := range ops {
		n, sync = n+len(o.records), sync || o.sync
	}
	size := frameSize(n)
	if l.active == nil || l.active.end+size > l.active.length {
		if err := l.rotate(size); err != nil {
			return fmt.Errorf("begin a segment of the log: %w", err)
		}
	}
	from, frame := l.end, l.out.extend(int(size))
	payload := frame[frameHead:frameHead]
	for _, o := range ops {
		payload = append(payload, o.records...)
	}
	l.chain = seal(frame, n, from, l.synced, l.chain, l.first)
	l.active.end += size
	l.end += position(size)
	if sync {
		began := time.Now()
		if err := l.sync(); err != nil {
			return err
		}
		l.unclaimed = n > 0 || l.first > first // else it is a claim
		if l.unclaimed && l.cfg.Synced != nil {
			l.cfg.Synced(time.Since(began))
		}
	}
	l.ix.Lock()
	err = records(payload, from+frameHead, l.apply)
	l.ix.Unlock()
	if err != nil {
		return err
	}
	if l.unclaimed || l.changed.Load() {
		l.wake()
	}
	return nil
}

// sync makes durable the frames that are in memory only, and marks it. The caller is the writer.
func (l *Log) sync() error {
	if err := l.out.flush(); err != nil {
		return err
	}
	l.synced, l.mark.synced = l.end, l.end
	return l.mark.write()
}

// wake lets the maintenance run soon.
func (l *Log) wake() {
	if l.woken.CompareAndSwap(false, true) {
		l.wakeC <- struct{}{}
	}
}
