package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestTopSuspects: deadlocks are looked for at the oldest waits, and not at young ones.
func TestTopSuspects(t *testing.T) {
	lists := &admin.Top{}
	for i, wait := range []time.Duration{3, 9, 0, 1, 5, 7, 8} {
		lists.Semaphores = append(lists.Semaphores, admin.TopSemaphore{
			Name: fmt.Sprint(i), Waiters: min(1, int(wait)), OldestWait: wait * time.Second})
	}
	names := ""
	for _, s := range suspects(lists) {
		names += s.Name
	}
	if names != "1654" {
		t.Errorf("asked are %s", names)
	}
}
