package container

// Ranking keeps records in order of a key, the greatest first: O(log n) for a change, and the first
// k in O(k log k), however many there are. The order of equal keys is undefined. A record has an
// int32 for its place in each ranking, which the ranking alone writes.
type Ranking[T any] struct {
	heap Heap[ranked[T]]
}

// ranked is a record in a ranking. Its key in the heap is inverted.
type ranked[T any] struct {
	place  *int32 // of the record
	record *T
}

func (r ranked[T]) Position() *int32      { return r.place }
func (r ranked[T]) Before(ranked[T]) bool { return false }

// Len returns the number of records.
func (r *Ranking[T]) Len() int { return r.heap.Len() }

// Set gives a record a key; 0 removes it.
func (r *Ranking[T]) Set(record *T, place *int32, key uint64) {
	x := ranked[T]{place, record}
	switch at := int(*place) - 1; {
	case key == 0:
		r.heap.Remove(x)
	case at >= 0 && r.heap.At(at).Key == ^key:
	default:
		r.heap.Set(x, ^key)
	}
}

// At returns the record at a place minus 1, from 0 on: in no order.
func (r *Ranking[T]) At(i int) *T { return r.heap.At(i).Item.record }

// Key returns the key of a record with this place, 0 if it is not there.
func (r *Ranking[T]) Key(record *T, place int32) uint64 {
	if place <= 0 || int(place) > r.heap.Len() || r.heap.At(int(place)-1).Item.record != record {
		return 0
	}
	return ^r.heap.At(int(place) - 1).Key
}

// Check reports the first record that is out of order.
func (r *Ranking[T]) Check() error { return r.heap.Check() }

// RankWalk yields the records of several rankings, the greatest key first. It changes nothing, so
// walks may run beside each other. It is a heap of the records whose parents were yielded.
type RankWalk[T any] struct {
	next Heap[rankStep[T]]
}

type rankStep[T any] struct {
	in *Ranking[T]
	at int
}

func (rankStep[T]) Position() *int32        { return nil }
func (rankStep[T]) Before(rankStep[T]) bool { return false }

// Add adds a ranking to the walk.
func (w *RankWalk[T]) Add(r *Ranking[T]) { w.push(rankStep[T]{r, 0}) }

func (w *RankWalk[T]) push(s rankStep[T]) {
	if s.at < s.in.heap.Len() {
		w.next.Push(s, s.in.heap.At(s.at).Key)
	}
}

// Next returns the next record, or nil.
func (w *RankWalk[T]) Next() *T {
	if w.next.Len() == 0 {
		return nil
	}
	s := w.next.Pop().Item
	for child := 4*s.at + 1; child <= 4*s.at+4; child++ {
		w.push(rankStep[T]{s.in, child})
	}
	return s.in.heap.At(s.at).Item.record
}
