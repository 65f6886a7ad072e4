package shard

import (
	"bytes"
	"math"
	"testing"
)

// TestOverflowIsRefused: owners whose counts add up to more than a number holds, so that units seem
// to be free, are neither restored nor imported.
func TestOverflowIsRefused(t *testing.T) {
	run := BucketsBody{Total: churnBuckets, Count: churnBuckets/2 - 1, Epoch: 7}
	all := 0
	for seed := range uint64(20) {
		tried := 0
		x := newChurn(seed, New(1))
		for range 150 {
			x.step()
		}
		freezeWhole(t, x, &run)
		for i := range run.Count {
			for s := range x.m.semaphores.in(&x.m.buckets[i]) {
				first := s.owners.seekOrder(0)
				if first == nil {
					continue
				}
				second := s.owners.seekOrder(first.orderID)
				if second == nil || s.core().HasSlots() { // slots alone refuse such counts
					continue
				}
				first.count, second.count = math.MaxUint64, 2
				tried++
			}
		}
		if all += tried; tried == 0 {
			continue
		}
		if _, err := Restore(bytes.NewReader(snapshotOf(t, x.m))); err == nil {
			t.Fatalf("seed %d: it is restored", seed)
		}
		var parts [][]byte
		for cursor := []byte(nil); ; {
			part, next, err := x.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 2000)
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
			if cursor = next; next == nil {
				break
			}
		}
		importAnything(t, parts, seed, run) // its checks add the counts up
	}
	if all == 0 {
		t.Fatal("no semaphore has two owners: the test has lost its way")
	}
}
