package bench

import (
	"math"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	var f figures
	add := func(work, subject string, unit Unit, values ...float64) {
		for round, v := range values {
			f.add(round, work, subject, unit, v)
		}
	}
	add("pairs-1024", Box, PerSecond, 2000, 1000, 2200)
	add("pairs-1024", Etcd, PerSecond, 100, 50, 100)
	add("half-p99", Box, Milliseconds, 3)
	add("half-p99", Etcd, Milliseconds, 10)
	add("idle-own-cpu", Box, Microseconds, 5)
	add("shards-1", Box, PerCPUSecond, 100, 100)
	add("shards-4", Box, PerCPUSecond, 120, math.NaN())

	more := Bar{Ours: of(Box, "pairs-1024"), Peer: of(Etcd, "pairs-1024"), Factor: 20}
	less := Bar{Ours: of(Box, "half-p99"), Peer: of(Etcd, "half-p99"), AtMost: true, Factor: 0.25}
	for _, c := range []struct {
		name  string
		bar   Bar
		known bool
		ratio float64
		word  string
	}{
		{"just met", more, true, 20, "met"},
		{"two of a kind", Bar{Ours: of(Box, "pairs-1024").times(2), Peer: of(Etcd, "pairs-1024"), Factor: 50}, true, 40, "**missed by 20 %**"},
		{"a goal", Bar{Ours: of(Box, "pairs-1024"), Peer: of(Etcd, "pairs-1024"), Factor: 25, Goal: true}, true, 20, "goal missed by 20 %"},
		{"at most", less, true, 0.3, "**missed by 20 %**"},
		{"without a peer", Bar{Ours: of(Box, "idle-own-cpu"), AtMost: true, Factor: 5}, true, 5, "met"},
		{"the worst against the best", Bar{Ours: of(Box, "shards-1", "shards-4").pick(least), Peer: of(Box, "shards-1", "shards-4").pick(most), Factor: 0.85}, true,
			100. / 120, "**missed by 2 %**"},
		{"a peer that was not measured", Bar{Ours: of(Box, "pairs-1024"), Peer: of(ZooKeeper, "pairs-1024"), Factor: 1}, false, 0, "not measured"},
		{"not measured", Bar{Ours: of(Box, "pair-1"), AtMost: true, Factor: 1}, false, 0, "not measured"},
	} {
		v := c.bar.judge(f)
		if v.Known != c.known || v.Word() != c.word || c.known && math.Abs(v.Ratio.Median-c.ratio) > 1e-9 {
			t.Errorf("%s: %q, %+v", c.name, v.Word(), v)
		}
	}
}

// TestBarsAreAboutWorks: a bar about a figure that nothing measures would never be missed.
func TestBarsAreAboutWorks(t *testing.T) {
	for _, b := range Bars {
		for _, s := range []Side{b.Ours, b.Peer} {
			for _, id := range s.Works {
				if _, ok := work(id); !ok {
					t.Errorf("%s %s is about %q, which is no work", b.ID, b.Demand, id)
				}
			}
			if (len(s.Works) > 1) != (s.Pick != nil) {
				t.Errorf("%s %s does not say which of several figures counts", b.ID, b.Demand)
			}
		}
		if b.AtMost != strings.HasPrefix(b.Demand, "<=") || b.Factor <= 0 {
			t.Errorf("%s says %q and demands something else", b.ID, b.Demand)
		}
		w, _ := work(b.Ours.Works[0])
		if b.AtMost == w.Unit.MoreIsBetter() {
			t.Errorf("%s %s demands the wrong direction of %s", b.ID, b.Demand, w.Unit)
		}
	}
	seen := map[string]bool{}
	for _, w := range works {
		if seen[w.ID] {
			t.Errorf("%s is there twice", w.ID)
		}
		seen[w.ID] = true
	}
}
