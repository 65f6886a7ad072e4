package millis

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

func TestMillis(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want uint64
	}{
		{0, 0}, {1, 1}, {time.Millisecond - 1, 1}, {time.Millisecond, 1}, {time.Millisecond + 1, 2}, {time.Hour, 3_600_000},
		{math.MaxInt64, math.MaxInt64/1_000_000 + 1},
	} {
		var err error
		if got := Of("wait", c.d, &err); got != c.want || err != nil {
			t.Errorf("%s is %d ms, %v; want %d", c.d, got, err, c.want)
		}
	}
	for _, d := range []time.Duration{-1, -time.Millisecond, -time.Hour, math.MinInt64} {
		var err error
		got := Of("wait", d, &err)
		Of("other", -1, &err) // the first error stays
		if got != 0 || !errors.Is(err, protocol.StatusBadRequest) || !strings.Contains(err.Error(), "wait is "+d.String()) {
			t.Errorf("%s is %d ms, %v", d, got, err)
		}
	}
	for ms, want := range map[uint64]time.Duration{0: 0, 1: time.Millisecond,
		protocol.Forever: math.MaxInt64 / time.Millisecond * time.Millisecond} {
		if got := Duration(ms); got != want {
			t.Errorf("%d ms are %s, want %s", ms, got, want)
		}
	}
}
