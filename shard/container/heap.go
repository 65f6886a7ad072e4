package container

import "fmt"

// Item is what a Heap keeps.
type Item[T any] interface {
	// Position points to the item's place in the heap plus 1, 0 outside of it. The heap alone
	// writes it. It is nil for items that are only pushed and popped.
	Position() *int32
	// Before orders items with equal keys.
	Before(other T) bool
}

// Heap is a 4-ary heap of items by key, the least first. Each item knows its position, so changing
// its key or removing it costs O(log n). Where Before orders equal keys totally, items leave in the
// same order however the heap was built. The zero value is empty.
//
// Invariant: an item stands at *Position()-1, and *Position() is 0 for an item that is not in the
// heap.
type Heap[T Item[T]] struct {
	slots []Slot[T]
}

// Slot is an item in a heap. The key stands here, so that comparing reads no item.
type Slot[T any] struct {
	Key  uint64
	Item T
}

// Len returns the number of items.
func (h *Heap[T]) Len() int { return len(h.slots) }

// At returns the slot at a place. Its children are at 4*i+1 to 4*i+4, the least one at 0.
func (h *Heap[T]) At(i int) Slot[T] { return h.slots[i] }

// First returns the least slot, the zero value if the heap is empty.
func (h *Heap[T]) First() (first Slot[T]) {
	if len(h.slots) > 0 {
		first = h.slots[0]
	}
	return first
}

// Push adds an item that is not in the heap.
func (h *Heap[T]) Push(item T, key uint64) {
	h.slots = append(h.slots, Slot[T]{key, item})
	last := len(h.slots) - 1
	if p := item.Position(); p != nil {
		*p = int32(last) + 1
	}
	h.up(last)
}

// Set adds an item, or changes its key.
func (h *Heap[T]) Set(item T, key uint64) {
	i := int(*item.Position()) - 1
	if i < 0 {
		h.Push(item, key)
		return
	}
	h.slots[i].Key = key
	if !h.up(i) {
		h.down(i)
	}
}

// Remove removes an item, if it is in the heap.
func (h *Heap[T]) Remove(item T) {
	if i := int(*item.Position()) - 1; i >= 0 {
		h.removeAt(i)
	}
}

// Pop removes and returns the least slot. The heap must not be empty.
func (h *Heap[T]) Pop() Slot[T] {
	first := h.slots[0]
	h.removeAt(0)
	return first
}

func (h *Heap[T]) removeAt(i int) {
	if p := h.slots[i].Item.Position(); p != nil {
		*p = 0
	}
	last := len(h.slots) - 1
	moved := h.slots[last]
	h.slots[last] = Slot[T]{}
	h.slots = h.slots[:last]
	if i == last {
		return
	}
	h.put(i, moved)
	if !h.up(i) {
		h.down(i)
	}
}

func before[T Item[T]](a, b *Slot[T]) bool {
	return a.Key < b.Key || a.Key == b.Key && a.Item.Before(b.Item)
}

// up lifts the slot at i while it is before its parent, and reports whether it moved.
func (h *Heap[T]) up(i int) (moved bool) {
	s := h.slots[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !before(&s, &h.slots[parent]) {
			break
		}
		h.put(i, h.slots[parent])
		i, moved = parent, true
	}
	if moved {
		h.put(i, s)
	}
	return moved
}

// down lowers the slot at i while a child is before it.
func (h *Heap[T]) down(i int) {
	s, start := h.slots[i], i
	for {
		child := i*4 + 1
		if child >= len(h.slots) {
			break
		}
		least := child
		for k := child + 1; k < child+4 && k < len(h.slots); k++ {
			if before(&h.slots[k], &h.slots[least]) {
				least = k
			}
		}
		if !before(&h.slots[least], &s) {
			break
		}
		h.put(i, h.slots[least])
		i = least
	}
	if i != start {
		h.put(i, s)
	}
}

func (h *Heap[T]) put(i int, s Slot[T]) {
	h.slots[i] = s
	if p := s.Item.Position(); p != nil {
		*p = int32(i) + 1
	}
}

// Check reports the first item that is out of order or does not know its position.
func (h *Heap[T]) Check() error {
	for i := range h.slots {
		if p := h.slots[i].Item.Position(); p != nil && int(*p) != i+1 {
			return fmt.Errorf("item %d has position %d", i, *p)
		}
		if i > 0 && before(&h.slots[i], &h.slots[(i-1)/4]) {
			return fmt.Errorf("item %d is before its parent", i)
		}
	}
	return nil
}
