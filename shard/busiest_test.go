package shard

import (
	"testing"
)

// BenchmarkContended is an acquire that waits, and the release that grants it, beside other queues
// and sessions with entries: what the rankings cost.
func BenchmarkContended(b *testing.B) {
	const others = 10_000
	x := newBenchMachine(2*others + 2)
	name := func(i int) []byte { return []byte{'q', byte(i >> 8), byte(i)} }
	for i := range others {
		x.begin()
		x.create(0, name(i), 1)
		x.acquire(2*i, name(i), false)
		x.acquire(2*i+1, name(i), false)
		x.commit()
	}
	x.begin()
	x.create(2*others, []byte("hot"), 1)
	x.acquire(2*others, []byte("hot"), false)
	x.commit()
	b.ReportAllocs()
	for b.Loop() {
		for i := range 2 {
			x.begin()
			x.acquire(2*others+1-i, []byte("hot"), false)
			x.release(2*others+i, []byte("hot"))
			x.commit()
		}
	}
}
