package console

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestLinePoints: a line ends at the right, its greatest value is at the top, and a line of zeros is
// at the bottom.
func TestLinePoints(t *testing.T) {
	for _, x := range []struct {
		values []float64
		most   float64
		want   string
	}{
		{[]float64{0, 5, 10}, 10, "290,38.0 295,20.0 300,2.0"},
		{[]float64{0, 0}, 0, "295,38.0 300,38.0"},
		{[]float64{3}, 3, "300,2.0"},
	} {
		if got := linePoints(x.values, x.most); got != x.want {
			t.Errorf("%v: %s, want %s", x.values, got, x.want)
		}
	}
}

// TestTrends: the overview has a line for each figure once there are points, and none before.
func TestTrends(t *testing.T) {
	s := openSite(t, nil)
	v, err := s.console.viewers.anonymous(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	show := func(past ...admin.TopPoint) *page {
		v.past.mu.Lock()
		v.past.last, v.past.at = past, time.Now().Add(time.Hour)
		v.past.mu.Unlock()
		p, err := overviewPage(t.Context(), v, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := show(); p.fact("trend-waiting") != "" {
		t.Error("there is a line without points")
	}
	p := show(admin.TopPoint{Waiters: 9}, admin.TopPoint{GrantsPerSecond: 12.4, Waiters: 3, Sessions: 1200, LongestWait: 75e9})
	for key, want := range map[string]string{"trend-grants": "12", "trend-waiting": "3", "trend-sessions": "1200", "trend-longest": "1m 15s"} {
		if got := p.fact(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	s.get("/").wants(t, 200, `<polyline points="`)
}
