package shardhost

import (
	"slices"
	"testing"
)

// TestLatePings: one goroutine at a time takes the pings that wait for the end of a step, and each is
// taken once.
func TestLatePings(t *testing.T) {
	var l latePings
	started := 0
	for i := range uint64(1000) {
		if l.add(latePing{i, 1}) {
			started++
		}
	}
	list := l.take()
	if started != 1 || len(list) != 1000 {
		t.Fatalf("%d goroutines for %d pings of 1000", started, len(list))
	}
	if l.add(latePing{7, 2}) { // while the first ones are renewed
		t.Error("another goroutine is started beside the first one")
	}
	if list := l.take(); !slices.Equal(list, []latePing{{7, 2}}) || l.take() != nil {
		t.Errorf("taken are %v", list)
	}
	if !l.add(latePing{8, 3}) {
		t.Error("no goroutine is started after the first one has ended")
	}
}
