package driver

import (
	"slices"
	"time"
)

// FreeList keeps what is not in use, for a while. The driver's mu guards it.
type FreeList[T any] struct {
	d      *Driver
	items  []*freeItem[T] // the last one was used last
	closed bool
}

type freeItem[T any] struct {
	of    T
	timer *time.Timer // of its end
}

// NewFreeList returns an empty one.
func NewFreeList[T any](d *Driver) *FreeList[T] { return &FreeList[T]{d: d} }

// Take takes what was used last. ok is false if there is nothing, and open if the list is not closed.
func (f *FreeList[T]) Take() (of T, ok, open bool) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if last := len(f.items) - 1; last >= 0 {
		x := f.items[last]
		f.items = f.items[:last]
		x.timer.Stop()
		return x.of, true, true
	}
	return of, false, !f.closed
}

// Put keeps something. unused gets it if nobody takes it in time, or at once if the list is closed.
func (f *FreeList[T]) Put(of T, kept time.Duration, unused func(T)) {
	f.d.mu.Lock()
	closed := f.closed
	if !closed {
		x := &freeItem[T]{of: of}
		x.timer = time.AfterFunc(kept, func() {
			if f.remove(x) {
				unused(of)
			}
		})
		f.items = append(f.items, x)
	}
	f.d.mu.Unlock()
	if closed {
		unused(of)
	}
}

// remove is false if it was taken.
func (f *FreeList[T]) remove(x *freeItem[T]) bool {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	i := slices.Index(f.items, x)
	if i >= 0 {
		f.items = slices.Delete(f.items, i, i+1)
	}
	return i >= 0
}

// Close takes everything. Nothing is kept from then on.
func (f *FreeList[T]) Close() (all []T) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	for _, x := range f.items {
		x.timer.Stop()
		all = append(all, x.of)
	}
	f.items, f.closed = nil, true
	return all
}
