package shard

// recordPool are the records of a kind that have gone, for the next ones: a lock that comes and
// goes takes no new memory, and finds its record in the processor's cache. They are no part of the
// state. One with data is not kept: an idle shard would hold the data until its next Apply.
//
// A record is used again in a later Apply than the one that it went in, which may read it to its
// end. A snapshot may walk over records that have gone since it began: while one is being written
// none is kept. Nobody else has a pointer to one.
type recordPool[T any] struct {
	ready []*T // all zero
	gone  []*T // in this Apply
}

// maxSpareRecords is as many as a full batch needs.
const maxSpareRecords = 1024

// get returns a record that is all zero, or nil if there is none.
func (r *recordPool[T]) get() *T {
	last := len(r.ready) - 1
	if last < 0 {
		return nil
	}
	x := r.ready[last]
	r.ready[last] = nil
	r.ready = r.ready[:last]
	return x
}

// put keeps a record that has gone, if there is room.
func (r *recordPool[T]) put(x *T) {
	if len(r.ready)+len(r.gone) < maxSpareRecords {
		r.gone = append(r.gone, x)
	}
}

// beginApply makes what has gone ready.
func (r *recordPool[T]) beginApply() {
	for i, x := range r.gone {
		var zero T
		*x = zero
		r.ready = append(r.ready, x)
		r.gone[i] = nil
	}
	r.gone = r.gone[:0]
}

type spares struct {
	entries    recordPool[entry]
	semaphores recordPool[semaphore] // ephemeral ones that have gone
}

func (r *spares) beginApply() {
	r.entries.beginApply()
	r.semaphores.beginApply()
}

// newEntry returns an entry that is all zero.
func (r *spares) newEntry() *entry {
	if e := r.entries.get(); e != nil {
		return e
	}
	return new(entry)
}

// newEphemeral is newSemaphore for an ephemeral one. Readers may keep a name, so its memory is not
// used again.
func (r *spares) newEphemeral(name []byte) *semaphore {
	s := r.semaphores.get()
	if s == nil {
		return newSemaphore(name)
	}
	s.name = append(make([]byte, 0, len(name)), name...)
	s.semaphoreExtras = &noExtras
	return s
}
