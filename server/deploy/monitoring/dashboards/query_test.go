package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/server/metrics"
)

// Variables of the dashboards, as expressions have them.
const (
	instanceVariable = "$instance"
	nodeVariable     = "$node"
	rateVariable     = "$__rate_interval"
)

// query is an expression of a panel, and what its series are called there.
type query struct{ expr, legend string }

// series selects the series of a metric on the instances, and in the nodes, that the reader of the
// dashboard has chosen. matches are more conditions, such as status!="OK". part is "_bucket",
// "_sum" or "_count" of a histogram.
func series(m *metrics.Metric, part string, matches ...string) string {
	if (m.Type == metrics.TypeHistogram) != (part != "") {
		panic(fmt.Sprintf("%s is a %s: it has no %q", m.Name, m.Type, part))
	}
	for _, x := range matches {
		mustHave(m, x[:strings.IndexAny(x, "=!")])
	}
	all := []string{`instance=~"` + instanceVariable + `"`}
	if slices.Contains(m.Labels, "node") {
		all = append(all, `node=~"`+nodeVariable+`"`)
	}
	return m.Name + part + "{" + strings.Join(append(all, matches...), ",") + "}"
}

// mustHave panics if a metric lacks a label. Prometheus adds instance.
func mustHave(m *metrics.Metric, labels ...string) {
	for _, l := range labels {
		if l != "instance" && !slices.Contains(m.Labels, l) {
			panic(fmt.Sprintf("%s has no label %q", m.Name, l))
		}
	}
}

func grouped(function string, by []string, expr string) string {
	if len(by) == 0 {
		return function + "(" + expr + ")"
	}
	return function + " by (" + strings.Join(by, ", ") + ") (" + expr + ")"
}

// now is the value of a gauge, summed up by labels.
func now(m *metrics.Metric, by ...string) string { return aggregate("sum", m, by...) }

// most is the highest value of a gauge by labels.
func most(m *metrics.Metric, by ...string) string { return aggregate("max", m, by...) }

// least is the lowest one.
func least(m *metrics.Metric, by ...string) string { return aggregate("min", m, by...) }

func aggregate(function string, m *metrics.Metric, by ...string) string {
	if m.Type != metrics.TypeGauge {
		panic(m.Name + " is no gauge")
	}
	mustHave(m, by...)
	return grouped(function, by, series(m, ""))
}

// rate is how fast selected series grow, a second.
func rate(series string) string { return "rate(" + series + "[" + rateVariable + "])" }

// perSecond is the rate of a counter, or of a histogram's observations, by labels.
func perSecond(m *metrics.Metric, by ...string) string { return perSecondOf(m, nil, by...) }

// perSecondOf is perSecond of the series that match.
func perSecondOf(m *metrics.Metric, matches []string, by ...string) string {
	part := ""
	switch m.Type {
	case metrics.TypeHistogram:
		part = "_count"
	case metrics.TypeGauge:
		panic(m.Name + " is a gauge: it has no rate")
	}
	mustHave(m, by...)
	return grouped("sum", by, rate(series(m, part, matches...)))
}

// quantile is an estimate of a quantile of a histogram, by labels.
func quantile(q float64, m *metrics.Metric, by ...string) string {
	mustHave(m, by...)
	buckets := grouped("sum", append(slices.Clone(by), "le"), rate(series(m, "_bucket")))
	return fmt.Sprintf("histogram_quantile(%v, %s)", q, buckets)
}

// top is the n series with the highest values.
func top(n int, expr string) string { return fmt.Sprintf("topk(%d, %s)", n, expr) }

// orZero shows 0 where nothing has been counted yet.
func orZero(expr string) string { return "(" + expr + ") or vector(0)" }
