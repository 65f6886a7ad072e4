package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestEvaluate(t *testing.T) {
	var f measurements
	add := func(work, subject string, unit Unit, values ...float64) {
		for round, v := range values {
			f.add(round, work, subject, unit, v)
		}
	}
	add("pairs-1024", Signalbox, PerSecond, 2000, 1000, 2200)
	add("pairs-1024", Etcd, PerSecond, 100, 50, 100)
	add("pair-1-p99", Signalbox, Milliseconds, 3)
	add("pair-1-p99", Etcd, Milliseconds, 10)
	add("rate-40000-kept", Signalbox, Percent, 100, 98.01, 100)
	add("idle-own-cpu", Signalbox, Microseconds, 5)
	add("shards-1", Signalbox, PerCPUSecond, 100, 100)
	add("shards-4", Signalbox, PerCPUSecond, 120, math.NaN())

	more := Goal{Ours: operand(Signalbox, "pairs-1024"), Other: operand(Etcd, "pairs-1024"), Factor: 20}
	less := Goal{Ours: operand(Signalbox, "pair-1-p99"), Other: operand(Etcd, "pair-1-p99"), AtMost: true, Factor: 0.25}
	for _, c := range []struct {
		name  string
		bar   Goal
		known bool
		ratio float64
		word  string
	}{
		{"just met", more, true, 20, "met"},
		{"two of a kind", Goal{Ours: operand(Signalbox, "pairs-1024").times(2), Other: operand(Etcd, "pairs-1024"), Factor: 50}, true, 40, "**missed by 20 %**"},
		{"by the median", Goal{Ours: operand(Signalbox, "rate-40000-kept"), Factor: 99}, true, 100, "met"},
		{"in each round", Goal{Ours: operand(Signalbox, "rate-40000-kept"), Factor: 99, Always: true}, true, 100, "**missed by 1 %**"},
		{"at most", less, true, 0.3, "**missed by 20 %**"},
		{"without a peer", Goal{Ours: operand(Signalbox, "idle-own-cpu"), AtMost: true, Factor: 5}, true, 5, "met"},
		{"the worst against the best", Goal{Ours: operand(Signalbox, "shards-1", "shards-4").pick(slices.Min),
			Other: operand(Signalbox, "shards-1", "shards-4").pick(slices.Max), Factor: 0.85}, true,
			100. / 120, "**missed by 2 %**"},
		{"a peer that was not measured", Goal{Ours: operand(Signalbox, "pairs-1024"), Other: operand(ZooKeeper, "pairs-1024"), Factor: 1}, false, 0, "not measured"},
		{"not measured", Goal{Ours: operand(Signalbox, "pair-1"), AtMost: true, Factor: 1}, false, 0, "not measured"},
	} {
		v := c.bar.evaluate(f)
		if v.Measured != c.known || v.Text() != c.word || c.known && math.Abs(v.Ratio.Median-c.ratio) > 1e-9 {
			t.Errorf("%s: %q, %+v", c.name, v.Text(), v)
		}
	}
}

// TestGoalsAreAboutMetrics: a bar about a figure that nothing measures would never be missed.
func TestGoalsAreAboutMetrics(t *testing.T) {
	for _, b := range Goals {
		for _, s := range []Operand{b.Ours, b.Other, b.atLimit().Ours, b.atLimit().Other} {
			for _, id := range s.Metrics {
				if _, ok := metricByID(id); !ok {
					t.Errorf("%s %s is about %q, which is no work", b.ID, b.Condition, id)
				}
			}
			if (len(s.Metrics) > 1) != (s.Pick != nil) {
				t.Errorf("%s %s does not say which of several figures counts", b.ID, b.Condition)
			}
		}
		if b.AtMost != strings.HasPrefix(b.Condition, "<=") || b.Factor <= 0 {
			t.Errorf("%s says %q and demands something else", b.ID, b.Condition)
		}
		w, _ := metricByID(b.Ours.Metrics[0])
		if b.AtMost == w.Unit.MoreIsBetter() {
			t.Errorf("%s %s demands the wrong direction of %s", b.ID, b.Condition, w.Unit)
		}
	}
	seen := map[string]bool{}
	for _, w := range allMetrics {
		if seen[w.ID] {
			t.Errorf("%s is there twice", w.ID)
		}
		seen[w.ID] = true
	}
}
