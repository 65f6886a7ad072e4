package bench

import "testing"

func TestGrowth(t *testing.T) {
	const mib = 1 << 20
	samples := func(memory ...uint64) (list []Sample) {
		for i, m := range memory {
			list = append(list, Sample{At: float64(i), Memory: m * mib})
		}
		return list
	}
	for _, x := range []struct {
		samples []Sample
		span    float64
		want    uint64
	}{
		{nil, 3, 0},
		{samples(50, 52, 51, 60, 300, 70), 3, 248}, // the last three seconds and the moment before
		{samples(50, 90, 51, 60, 70, 60), 3, 0},    // it had more before
		{samples(50, 60), 9, 60},                   // nothing is known of before
	} {
		if got := growth(x.samples, x.span) / mib; got != x.want {
			t.Errorf("%v in the last %v s: it grew by %d MiB, not %d", x.samples, x.span, got, x.want)
		}
	}
}
