package admin

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestHistoryOfACluster: points of instances that began at different times are added up from the
// last one on, and an instance without activity has none.
func TestHistoryOfACluster(t *testing.T) {
	of := func(points ...protocol.TopPoint) protocol.Top {
		return protocol.Top{Instance: protocol.TopInstance{Activity: &protocol.TopActivity{History: points}}}
	}
	got := mergeHistories([]protocol.Top{
		of(protocol.TopPoint{Grants: 1, Waiters: 2, Sessions: 3, WaitMS: 4000}),
		of(protocol.TopPoint{Grants: 10, Waiters: 20, Sessions: 30, WaitMS: 1000}, protocol.TopPoint{Grants: 11, Waiters: 21, Sessions: 31, WaitMS: 2000}),
		{},
	})
	want := []TopPoint{{10, 20, 30, time.Second}, {12, 23, 34, 4 * time.Second}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
