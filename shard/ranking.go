package shard

import "container/heap"

// ranking keeps records in order of a key, as a heap with the greatest key on top: O(log n) for a
// change, O(1) for a new least key, and the first k in O(k log k), however many there are. The
// rankings of a node say what it is busiest with. They follow from its records, are in no snapshot,
// and never decide an outcome.
//
// Invariant: a record is in the heap at *place-1, and *place is 0 for a record that is not in it.
type ranking[T any] struct {
	heap []ranked[T]
}

// ranked is a record in the heap. The key stands here, so that comparing reads no record.
type ranked[T any] struct {
	key    uint64
	place  *int32 // of the record
	record *T
}

// set gives a record a key; 0 takes it out.
func (r *ranking[T]) set(record *T, place *int32, key uint64) {
	i := int(*place) - 1
	switch {
	case i < 0 && key == 0:
		return
	case i < 0:
		i = len(r.heap)
		r.heap = append(r.heap, ranked[T]{key, place, record})
		*place = int32(i) + 1
	case key == 0:
		*place = 0
		last := len(r.heap) - 1
		if i != last {
			r.heap[i] = r.heap[last]
			*r.heap[i].place = int32(i) + 1
		}
		r.heap[last] = ranked[T]{}
		r.heap = r.heap[:last]
		if i == last {
			return
		}
	case r.heap[i].key == key:
		return
	default:
		r.heap[i].key = key
	}
	if !r.up(i) {
		r.down(i)
	}
}

// up lifts the record at i while its parent has a smaller key, and reports whether it moved.
func (r *ranking[T]) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / 2
		if r.heap[parent].key >= r.heap[i].key {
			break
		}
		r.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

// down lowers the record at i while a child has a greater key.
func (r *ranking[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(r.heap) {
			return
		}
		if child+1 < len(r.heap) && r.heap[child+1].key > r.heap[child].key {
			child++
		}
		if r.heap[child].key <= r.heap[i].key {
			return
		}
		r.swap(i, child)
		i = child
	}
}

// ordered reports whether no record has a greater key than its parent.
func (r *ranking[T]) ordered() bool {
	for i := range r.heap {
		if int(*r.heap[i].place) != i+1 || i > 0 && r.heap[(i-1)/2].key < r.heap[i].key {
			return false
		}
	}
	return true
}

func (r *ranking[T]) swap(i, j int) {
	r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
	*r.heap[i].place, *r.heap[j].place = int32(i)+1, int32(j)+1
}

// rankWalk yields the records of several rankings, the greatest key first. It reads alone: walks
// may run beside each other. It is a heap of the records whose parents were yielded.
type rankWalk[T any] []rankStep[T]

type rankStep[T any] struct {
	of *ranking[T]
	at int
}

func (s rankStep[T]) key() uint64 { return s.of.heap[s.at].key }

func (w rankWalk[T]) Len() int           { return len(w) }
func (w rankWalk[T]) Less(i, j int) bool { return w[i].key() > w[j].key() }
func (w rankWalk[T]) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *rankWalk[T]) Push(s any)        { *w = append(*w, s.(rankStep[T])) }

func (w *rankWalk[T]) Pop() any {
	last := len(*w) - 1
	s := (*w)[last]
	*w = (*w)[:last]
	return s
}

// push has a record, and then those below it, walked too.
func (w *rankWalk[T]) push(s rankStep[T]) { heap.Push(w, s) }

// take removes the record with the greatest key, and is nil when there is none.
func (w *rankWalk[T]) take() *T {
	if len(*w) == 0 {
		return nil
	}
	top := heap.Pop(w).(rankStep[T])
	for at := 2*top.at + 1; at <= 2*top.at+2 && at < len(top.of.heap); at++ {
		w.push(rankStep[T]{top.of, at})
	}
	return top.of.heap[top.at].record
}
