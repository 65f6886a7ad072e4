package meta

import (
	"cmp"
	"iter"
)

// tree is a persistent sorted map. A change makes a new tree that shares all but one path with the
// old one, so a copy of the root is a snapshot. The zero value is the empty tree. It is
// weight-balanced: clients cannot unbalance it by their choice of keys.
type tree[K cmp.Ordered, V any] struct {
	root *branch[K, V]
}

// branch is immutable. Invariant: keys of left < key < keys of right; size = 1 + size(left) +
// size(right); balanced() of its two sides.
type branch[K cmp.Ordered, V any] struct {
	left, right *branch[K, V]
	size        int
	key         K
	value       V
}

// A side may weigh at most heavy times the other; a side's inner child of less than tilt times its
// outer one is rotated once, else twice. These two are the integer pair for which a single
// insertion or removal is always mended by one rotation.
const (
	heavy = 3
	tilt  = 2
)

func (t tree[K, V]) len() int { return size(t.root) }

func (t tree[K, V]) get(key K) (V, bool) {
	for b := t.root; b != nil; {
		switch c := cmp.Compare(key, b.key); {
		case c < 0:
			b = b.left
		case c > 0:
			b = b.right
		default:
			return b.value, true
		}
	}
	var zero V
	return zero, false
}

func (t tree[K, V]) put(key K, value V) tree[K, V] { return tree[K, V]{insert(t.root, key, value)} }

func (t tree[K, V]) without(key K) tree[K, V] { return tree[K, V]{remove(t.root, key)} }

// from yields the entries with keys not below key, in order.
func (t tree[K, V]) from(key K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { walkFrom(t.root, key, yield) }
}

func (t tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { walk(t.root, yield) }
}

func size[K cmp.Ordered, V any](b *branch[K, V]) int {
	if b == nil {
		return 0
	}
	return b.size
}

func join[K cmp.Ordered, V any](left *branch[K, V], key K, value V, right *branch[K, V]) *branch[K, V] {
	return &branch[K, V]{left: left, right: right, size: 1 + size(left) + size(right), key: key, value: value}
}

// balance joins two sides of which one changed by one entry.
func balance[K cmp.Ordered, V any](left *branch[K, V], key K, value V, right *branch[K, V]) *branch[K, V] {
	l, r := size(left)+1, size(right)+1
	switch {
	case r > heavy*l:
		if size(right.left)+1 < tilt*(size(right.right)+1) {
			return join(join(left, key, value, right.left), right.key, right.value, right.right)
		}
		in := right.left
		return join(join(left, key, value, in.left), in.key, in.value,
			join(in.right, right.key, right.value, right.right))
	case l > heavy*r:
		if size(left.right)+1 < tilt*(size(left.left)+1) {
			return join(left.left, left.key, left.value, join(left.right, key, value, right))
		}
		in := left.right
		return join(join(left.left, left.key, left.value, in.left),
			in.key, in.value, join(in.right, key, value, right))
	}
	return join(left, key, value, right)
}

func insert[K cmp.Ordered, V any](b *branch[K, V], key K, value V) *branch[K, V] {
	if b == nil {
		return join(nil, key, value, nil)
	}
	switch c := cmp.Compare(key, b.key); {
	case c < 0:
		return balance(insert(b.left, key, value), b.key, b.value, b.right)
	case c > 0:
		return balance(b.left, b.key, b.value, insert(b.right, key, value))
	}
	return join(b.left, key, value, b.right)
}

func remove[K cmp.Ordered, V any](b *branch[K, V], key K) *branch[K, V] {
	if b == nil {
		return nil
	}
	switch c := cmp.Compare(key, b.key); {
	case c < 0:
		return balance(remove(b.left, key), b.key, b.value, b.right)
	case c > 0:
		return balance(b.left, b.key, b.value, remove(b.right, key))
	}
	switch {
	case b.left == nil:
		return b.right
	case b.right == nil:
		return b.left
	case b.left.size > b.right.size:
		rest, last := removeLast(b.left)
		return balance(rest, last.key, last.value, b.right)
	}
	first, rest := removeFirst(b.right)
	return balance(b.left, first.key, first.value, rest)
}

func removeFirst[K cmp.Ordered, V any](b *branch[K, V]) (first, rest *branch[K, V]) {
	if b.left == nil {
		return b, b.right
	}
	first, rest = removeFirst(b.left)
	return first, balance(rest, b.key, b.value, b.right)
}

func removeLast[K cmp.Ordered, V any](b *branch[K, V]) (rest, last *branch[K, V]) {
	if b.right == nil {
		return b.left, b
	}
	rest, last = removeLast(b.right)
	return balance(b.left, b.key, b.value, rest), last
}

func walk[K cmp.Ordered, V any](b *branch[K, V], yield func(K, V) bool) bool {
	return b == nil || (walk(b.left, yield) && yield(b.key, b.value) && walk(b.right, yield))
}

func walkFrom[K cmp.Ordered, V any](b *branch[K, V], key K, yield func(K, V) bool) bool {
	if b == nil {
		return true
	}
	if b.key < key {
		return walkFrom(b.right, key, yield)
	}
	return walkFrom(b.left, key, yield) && yield(b.key, b.value) && walk(b.right, yield)
}
