// How long until all watchers of one value have seen a change?

package loadgen

import (
	"context"
	"encoding/binary"
	"sync/atomic"
)

// fanout is one name, who changes it, and who watches it. There is one change at a time: the next
// waits until all watchers have seen the last, so that none is left out, and each delay belongs to
// one change.
type fanout struct {
	c      *Env
	writer CanStore
	name   string
	data   []byte // begins with the number of the change

	// The change under way. seq is stored last: a reader of a new seq may read the rest. A watcher
	// writes its delay before it takes itself off left; the changer reads the delays when all is
	// sent.
	seq       atomic.Uint64
	began     atomic.Int64
	remaining atomic.Int64
	delays    []int64
	all       chan struct{} // capacity 1

	// the last write failed, and may have had its effect or not: it is sent again, and its delays mean
	// nothing
	pending bool

	broken atomic.Pointer[error] // a watch ended
	failed chan struct{}         // closed with broken
}

func newFanout(c *Env, writer CanStore, name string, watchers int) *fanout {
	return &fanout{
		c: c, writer: writer, name: name, data: make([]byte, max(c.DataSize, 8)),
		delays: make([]int64, watchers), all: make(chan struct{}, 1), failed: make(chan struct{}),
	}
}

// observe is called by watcher i with the received data; last is the last change it saw. It returns
// the new last.
func (f *fanout) observe(i int, data []byte, last uint64) uint64 {
	if len(data) < 8 {
		return last
	}
	seq := binary.BigEndian.Uint64(data)
	if seq <= last || f.seq.Load() != seq {
		return last
	}
	f.delays[i] = f.c.Now() - f.began.Load()
	if f.remaining.Add(-1) == 0 {
		f.all <- struct{}{}
	}
	return seq
}

// fail ends the fan-out: a watch is over.
func (f *fanout) fail(err error) {
	if f.broken.CompareAndSwap(nil, &err) {
		close(f.failed)
	}
}

// Do changes the value once. Series 0 is the delay of each watcher, 1 of the last one.
func (f *fanout) Do(ctx context.Context, rec *Recorder) error {
	again := f.pending
	if !again {
		seq := f.seq.Load() + 1
		binary.BigEndian.PutUint64(f.data, seq)
		f.remaining.Store(int64(len(f.delays)))
		f.began.Store(f.c.Now())
		f.seq.Store(seq)
		f.pending = true
	}
	if err := f.c.write(ctx, f.writer, f.name, f.data); err != nil {
		return err
	}
	if err := f.await(ctx, f.all); err != nil {
		return err
	}
	f.pending = false
	if again {
		return nil
	}
	var last int64
	now := f.c.Now()
	for _, d := range f.delays {
		rec.Note(0, now, d)
		last = max(last, d)
	}
	rec.Note(1, now, last)
	return nil
}

func (f *fanout) await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-f.failed:
		return *f.broken.Load()
	case <-ctx.Done():
		return ctx.Err()
	}
}
