package loadgen

import (
	"context"
	"encoding/binary"
	"sync/atomic"
)

// fanout is one name, who changes it, and who watches it. There is one change at a time: the next waits until all watchers have seen the last, so that none is
// left out, and each delay belongs to one change.
type fanout struct {
	clock  clock
	writer CanKeep
	name   string
	data   []byte // begins with the number of the change

	// The change under way. seq is stored last: who reads a new seq may read the rest. A watcher writes its delay before it takes itself off left; the changer reads
	// the delays when all is sent.
	seq    atomic.Uint64
	began  atomic.Int64
	left   atomic.Int64
	delays []int64
	all    chan struct{} // capacity 1

	armed   *gate // of one-shot watches: all must watch again before the next change; nil for streams
	pending bool  // the last write failed, and may have had its effect or not: it is sent again, and its delays mean nothing

	broken atomic.Pointer[error] // a watch ended
	failed chan struct{}         // closed with broken
}

func newFanout(c clock, writer CanKeep, name string, size, watchers int) *fanout {
	return &fanout{
		clock: c, writer: writer, name: name, data: make([]byte, max(size, 8)),
		delays: make([]int64, watchers), all: make(chan struct{}, 1), failed: make(chan struct{}),
	}
}

// saw is called by watcher i with what it was told; last is the last change it saw. It returns the new last.
func (f *fanout) saw(i int, data []byte, last uint64) uint64 {
	if len(data) < 8 {
		return last
	}
	return f.sawSeq(i, binary.BigEndian.Uint64(data), last)
}

func (f *fanout) sawSeq(i int, seq, last uint64) uint64 {
	if seq <= last || f.seq.Load() != seq {
		return last
	}
	f.delays[i] = f.clock.now() - f.began.Load()
	if f.left.Add(-1) == 0 {
		f.all <- struct{}{}
	}
	return seq
}

// lose ends the fan-out: a watch is over.
func (f *fanout) lose(err error) {
	if f.broken.CompareAndSwap(nil, &err) {
		close(f.failed)
	}
}

// Do changes the value once. Series 0 is the delay of each watcher, 1 of the last one.
func (f *fanout) Do(ctx context.Context, rec *Recorder) error {
	again := f.pending
	if !again {
		if f.armed != nil {
			if err := f.await(ctx, f.armed.open); err != nil {
				return err
			}
		}
		seq := f.seq.Load() + 1
		binary.BigEndian.PutUint64(f.data, seq)
		f.left.Store(int64(len(f.delays)))
		f.began.Store(f.clock.now())
		f.seq.Store(seq)
		f.pending = true
	}
	if err := f.writer.Write(ctx, f.name, f.data); err != nil {
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
	now := f.clock.now()
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

// gate opens each time n have come.
type gate struct {
	n    int64
	came atomic.Int64
	open chan struct{} // capacity 1
}

func newGate(n int) *gate { return &gate{n: int64(n), open: make(chan struct{}, 1)} }

func (g *gate) come() {
	if g.came.Add(1) == g.n {
		g.came.Store(0)
		g.open <- struct{}{}
	}
}
