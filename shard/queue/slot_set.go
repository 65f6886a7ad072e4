package queue

import "math/bits"

// slotSet is a set of indexes; nil is the set of all.
type slotSet []uint64

func newSlotSet(n int) slotSet { return make(slotSet, (n+63)/64) }

func (t slotSet) add(i int)      { t[i/64] |= 1 << (i % 64) }
func (t slotSet) has(i int) bool { return t == nil || t[i/64]>>(i%64)&1 != 0 }

func (t slotSet) empty() bool {
	for _, w := range t {
		if w != 0 {
			return false
		}
	}
	return true
}

// countIn returns how many of t are in the other set.
func (t slotSet) countIn(o slotSet) (n int) {
	for i, w := range t {
		if o != nil {
			w &= o[i]
		}
		n += bits.OnesCount64(w)
	}
	return n
}

// remove removes the other set from t.
func (t slotSet) remove(o slotSet) {
	for i := range t {
		if o == nil {
			t[i] = 0
		} else {
			t[i] &^= o[i]
		}
	}
}

// lowest returns the n lowest of t that are in the other set, or fewer.
func (t slotSet) lowest(n uint64, o slotSet) []uint32 {
	list := make([]uint32, 0, n)
	for i, w := range t {
		if o != nil {
			w &= o[i]
		}
		for ; w != 0 && uint64(len(list)) < n; w &= w - 1 {
			list = append(list, uint32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return list
}
