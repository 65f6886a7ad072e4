package meta

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTreeIsASortedMap compares a tree with a map, and every old version of it with what it was.
func TestTreeIsASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			tree  tree[int, int]
			model map[int]int
		}
		var tr tree[int, int]
		model := map[int]int{}
		var old []version
		for i := range rapid.IntRange(0, 200).Draw(t, "steps") {
			key := rapid.IntRange(0, 60).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				tr = tr.without(key)
				delete(model, key)
			} else {
				tr = tr.put(key, i)
				model[key] = i
			}
			sound(t, tr.root)
			if i%50 == 0 {
				old = append(old, version{tr, maps.Clone(model)})
			}
		}
		for _, v := range append(old, version{tr, model}) {
			keys := slices.Sorted(maps.Keys(v.model))
			if v.tree.len() != len(keys) || !maps.Equal(maps.Collect(v.tree.all()), v.model) {
				t.Fatalf("tree has %v, want %v", maps.Collect(v.tree.all()), v.model)
			}
			from := rapid.IntRange(-1, 61).Draw(t, "from")
			var got []int
			for k, x := range v.tree.from(from) {
				if y, ok := v.tree.get(k); !ok || x != y {
					t.Fatalf("get(%d) = %d, %v, want %d", k, y, ok, x)
				}
				got = append(got, k)
			}
			i, _ := slices.BinarySearch(keys, from)
			if !slices.Equal(got, keys[i:]) {
				t.Fatalf("from(%d) = %v, want %v", from, got, keys[i:])
			}
			if _, ok := v.tree.get(61); ok {
				t.Fatal("found a key that was never put")
			}
		}
	})
}

// sound checks size, order and balance below b, and returns its size.
func sound(t *rapid.T, b *branch[int, int]) int {
	if b == nil {
		return 0
	}
	l, r := sound(t, b.left), sound(t, b.right)
	if b.size != l+r+1 {
		t.Fatalf("size is %d, want %d", b.size, l+r+1)
	}
	if l, r := l+1, r+1; l+r > 3 && (l > heavy*r || r > heavy*l) {
		t.Fatalf("sides of %d and %d are out of balance", l-1, r-1)
	}
	if (b.left != nil && b.left.key >= b.key) || (b.right != nil && b.right.key <= b.key) {
		t.Fatalf("out of order at %d", b.key)
	}
	return b.size
}

// TestTreeStaysShallow puts keys in the orders that unbalance a plain tree.
func TestTreeStaysShallow(t *testing.T) {
	const n = 1 << 12
	var up, down tree[int, bool]
	for i := range n {
		up = up.put(i, true)
		down = down.put(-i, true)
	}
	for i := range n / 2 {
		up = up.without(i)
	}
	for name, tr := range map[string]tree[int, bool]{"up": up, "down": down} {
		if d := depth(tr.root); d > 30 {
			t.Errorf("%s: %d entries are %d deep", name, tr.len(), d)
		}
	}
}

func depth(b *branch[int, bool]) int {
	if b == nil {
		return 0
	}
	return 1 + max(depth(b.left), depth(b.right))
}
