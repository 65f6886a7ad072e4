package busiest

import (
	"testing"
	"time"
)

// TestHistory: a point for each quarter of a minute, the last sixty of them, with rates of grants.
func TestHistory(t *testing.T) {
	var h History
	granted, reads := uint64(0), 0
	read := func() (uint64, Point) {
		reads++
		return granted, Point{Waiters: reads, LongestWait: time.Duration(reads) * time.Second}
	}
	for second := range 3600 {
		h.Sample(time.Duration(second)*time.Second, read)
		granted += 7
	}
	points := h.Points()
	if reads != 240 || len(points) != historyPoints {
		t.Fatalf("%d reads, %d points", reads, len(points))
	}
	for i, p := range points {
		if p.Grants != 7 || p.Waiters != 181+i || p.LongestWait != time.Duration(181+i)*time.Second {
			t.Errorf("point %d is %+v", i, p)
		}
	}
	granted = 0 // a shard that was counted is gone from here
	h.Sample(time.Hour, read)
	if last := h.Points()[historyPoints-1]; last.Grants != 0 {
		t.Errorf("the rate is %f", last.Grants)
	}
}
