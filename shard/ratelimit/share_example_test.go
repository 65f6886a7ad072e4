package ratelimit

import "testing"

// TestShareOfTheReadme: the README's example of min has the shares that it names: 1,000 a second for
// search, with min 400 and weight 3, and ads, with weight 1.
func TestShareOfTheReadme(t *testing.T) {
	const plenty = 1 << 40
	for _, x := range []struct{ search, ads, wantSearch, wantAds uint64 }{
		{plenty, plenty, 850, 150},
		{plenty, 0, 1000, 0},
		{300, plenty, 300, 700},
	} {
		parts := []part{{demand: x.search, guarantee: 400, weight: 3}, {demand: x.ads, weight: 1, index: 1}}
		share(1000, parts)
		got := map[int]uint64{}
		for _, p := range parts {
			got[p.index] = p.gets
		}
		if got[0] != x.wantSearch || got[1] != x.wantAds {
			t.Errorf("demands %d and %d get %d and %d, not %d and %d", x.search, x.ads, got[0], got[1], x.wantSearch, x.wantAds)
		}
	}
}
