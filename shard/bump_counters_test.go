package shard

import (
	"bytes"
	"testing"
)

// TestSkipAhead: a machine whose counters were moved on is whole, holds what it held, and goes on.
func TestSkipAhead(t *testing.T) {
	for seed := range uint64(5) {
		x := newChurn(seed, New(3))
		for range 800 {
			x.step()
		}
		m, err := Restore(bytes.NewReader(snapshotOf(t, x.m)))
		if err != nil {
			t.Fatal(err)
		}
		const seconds = 1000
		m.BumpCounters(seconds)
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		if m.Metrics().Sizes() != x.m.Metrics().Sizes() {
			t.Fatalf("%+v of %+v", m.Metrics().Sizes(), x.m.Metrics().Sizes())
		}
		moved, processes := 0, 0
		for i := range m.buckets {
			now, old := &m.buckets[i], &x.m.buckets[i]
			ahead := now.orderCounter == old.orderCounter+skipOrders+seconds*skipOrdersPerSecond &&
				now.sessionCounter == old.sessionCounter+skipSessions+seconds*skipSessionsPerSecond
			if ahead != (old.state != bucketAbsent) || now.state != old.state || now.epoch != old.epoch {
				t.Fatalf("bucket %d: %+v of %+v", i, now, old)
			}
			if ahead {
				moved++
			}
			for key, p := range old.objects[kindProcess] {
				was := p.process().HighestEpoch()
				is := now.objects[kindProcess][key].process().HighestEpoch()
				if is != was+now.orderCounter-old.orderCounter {
					t.Fatalf("a process's last token is %d, was %d", is, was)
				}
				processes++
			}
		}
		if moved == 0 || processes == 0 {
			t.Fatalf("the machine has %d buckets, %d processes", moved, processes)
		}
		r, err := Restore(bytes.NewReader(snapshotOf(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		if r.Digest() != m.Digest() {
			t.Fatal("its snapshot has another digest")
		}
		x.m = r
		for range 400 {
			x.step()
		}
		if err := x.m.Check(); err != nil {
			t.Fatal(err)
		}
	}
}
