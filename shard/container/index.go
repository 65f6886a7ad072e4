package container

import "slices"

// Index is an ordered set of records as sorted runs: a two-level tree whose leaves hold up to
// maxRun records. A lookup compares O(log n) times; an insertion or removal moves at most maxRun
// records, and one pointer per run when a run splits or empties. It is walked in order from any
// position, so a page or a step of a walk needs no state but the last key.
//
// A record is a pointer, or an id where what has the id is found otherwise: an index of ids
// compares without reading a record, and the collector does not look into it. Records are compared
// by the function given at each call, which must always be the same one.
type Index[R comparable] struct {
	runs [][]R
	n    int
}

const maxRun = 256

// seek finds the first record for which before is false: before must be true for a prefix of the
// order.
func (x *Index[R]) seek(before func(R) bool) (run, pos int) {
	lo, hi := 0, len(x.runs)
	for lo < hi {
		mid := (lo + hi) / 2
		if r := x.runs[mid]; before(r[len(r)-1]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(x.runs) {
		return lo, 0
	}
	run, r := lo, x.runs[lo]
	lo, hi = 0, len(r)
	for lo < hi {
		mid := (lo + hi) / 2
		if before(r[mid]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return run, lo
}

// Len returns the number of records.
func (x *Index[R]) Len() int { return x.n }

// Insert adds v; less orders records, and no equal one may be in the set.
func (x *Index[R]) Insert(v R, less func(a, b R) bool) {
	x.n++
	if len(x.runs) == 0 {
		x.runs = append(x.runs, append(make([]R, 0, 4), v))
		return
	}
	run, pos := x.seek(func(o R) bool { return less(o, v) })
	if run == len(x.runs) {
		run--
		pos = len(x.runs[run])
	}
	r := x.runs[run]
	if len(r) < maxRun {
		x.runs[run] = slices.Insert(r, pos, v)
		return
	}
	// A full run splits in the middle, or before its end where the set grows at the end.
	cut := maxRun / 2
	if run == len(x.runs)-1 && pos == maxRun {
		cut = maxRun
	}
	right := make([]R, 0, maxRun)
	right = append(right, r[cut:]...)
	clear(r[cut:])
	left := r[:cut]
	if pos <= cut && cut < maxRun {
		left = slices.Insert(left, pos, v)
	} else {
		right = slices.Insert(right, pos-cut, v)
	}
	x.runs[run] = left
	x.runs = slices.Insert(x.runs, run+1, right)
}

// Remove removes v; it reports whether v was in the set.
func (x *Index[R]) Remove(v R, less func(a, b R) bool) bool {
	run, pos := x.seek(func(o R) bool { return less(o, v) })
	if run == len(x.runs) || x.runs[run][pos] != v {
		return false
	}
	x.n--
	r := slices.Delete(x.runs[run], pos, pos+1)
	x.runs[run] = r
	switch {
	case len(r) == 0:
		x.runs = slices.Delete(x.runs, run, run+1)
	case len(r) < maxRun/8:
		x.merge(run)
	}
	return true
}

// merge joins a small run with the one behind or before it, if they fit well into one.
func (x *Index[R]) merge(run int) {
	if run+1 >= len(x.runs) {
		run--
	}
	if run < 0 || run+1 >= len(x.runs) || len(x.runs[run])+len(x.runs[run+1]) > maxRun/2 {
		return
	}
	x.runs[run] = append(x.runs[run], x.runs[run+1]...)
	x.runs = slices.Delete(x.runs, run+1, run+2)
}

// Ascend walks from the first record for which before is false until yield returns false.
func (x *Index[R]) Ascend(before func(R) bool, yield func(R) bool) {
	run, pos := x.seek(before)
	for ; run < len(x.runs); run++ {
		for _, v := range x.runs[run][pos:] {
			if !yield(v) {
				return
			}
		}
		pos = 0
	}
}

// IndexWalk is a position in a set that does not change while it is walked.
type IndexWalk[R comparable] struct {
	in       *Index[R]
	run, pos int
}

// From returns the position of the first record for which before is false.
func (x *Index[R]) From(before func(R) bool) IndexWalk[R] {
	run, pos := x.seek(before)
	return IndexWalk[R]{x, run, pos}
}

// Next returns the record at the position, and moves on; the zero value at the end.
func (w *IndexWalk[R]) Next() (v R) {
	if w.run == len(w.in.runs) {
		return v
	}
	r := w.in.runs[w.run]
	v = r[w.pos]
	if w.pos++; w.pos == len(r) {
		w.run, w.pos = w.run+1, 0
	}
	return v
}

// All walks over all records until yield returns false.
func (x *Index[R]) All(yield func(R) bool) {
	for _, r := range x.runs {
		for _, v := range r {
			if !yield(v) {
				return
			}
		}
	}
}

// First returns the first record, or the zero value.
func (x *Index[R]) First() (v R) {
	if len(x.runs) > 0 {
		v = x.runs[0][0]
	}
	return v
}
