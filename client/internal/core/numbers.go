package core

import "math/bits"

// numbers allocates the sequence numbers of a session's requests. The zero value is not usable; see
// Reset.
//
// Invariant: low is the lowest open number, or next if none is open. The first 64 numbers from low
// on have a bit each; further ones are in more.
type numbers struct {
	next, low uint64
	open      uint64 // bit i: low + i is open
	more      map[uint64]struct{}
}

// Reset begins with a number.
func (n *numbers) Reset(first uint64) { *n = numbers{next: first, low: first} }

// Low is the lowest open number. It is in the head of every request.
func (n *numbers) Low() uint64 { return n.low }

// Take opens the next number.
func (n *numbers) Take() uint64 {
	seq := n.next
	n.next++
	if i := seq - n.low; i < 64 {
		n.open |= 1 << i
	} else {
		put(&n.more, seq, struct{}{})
	}
	return seq
}

// Close closes a number: its answer has come, or nobody wants it. The server rejects it from then
// on, once a later request has arrived there.
func (n *numbers) Close(seq uint64) {
	if i := seq - n.low; i < 64 {
		n.open &^= 1 << i
	} else {
		delete(n.more, seq) // also what is below low: it was closed before
	}
	for n.open&1 == 0 && n.low < n.next {
		// Bits that fall free are filled up with what waits behind them.
		step := min(uint64(bits.TrailingZeros64(n.open)), n.next-n.low)
		n.open >>= step
		n.low += step
		for i := 64 - step; i < 64 && len(n.more) > 0; i++ {
			if _, open := n.more[n.low+i]; open {
				delete(n.more, n.low+i)
				n.open |= 1 << i
			}
		}
	}
}
