package metrics

import (
	"slices"
	"strings"
)

// Type is the type of a metric, as the TYPE line says it.
type Type string

// The types that there are.
const (
	TypeCounter   Type = "counter"
	TypeGauge     Type = "gauge"
	TypeHistogram Type = "histogram"
)

// Unit is what a metric's values count. The metric's name ends with it, before _total.
type Unit string

// Seconds, Bytes and Ratio are Prometheus' base units. Count is any other number: of sessions, of
// requests, or 1 for yes.
const (
	Seconds Unit = "seconds"
	Bytes   Unit = "bytes"
	Ratio   Unit = "ratio"
	Count   Unit = ""
)

// ByNames is the cap of a metric whose labels are names that clients choose: Limits.MaxSeries of
// the server.
const ByNames = -1

// Metric is one row of the table.
//
// Invariant: a row's variable is the only way to write the metric, see [Page.Write].
type Metric struct {
	Name    string
	Type    Type
	Unit    Unit
	Labels  []string
	Help    string // one line
	Cap     int    // the most series that one page has of it; ByNames
	Bounds  []uint64
	Section string // of the reference page

	index int // in the table
}

// scaled is a histogram's value in the metric's unit.
func (m *Metric) scaled(v uint64) float64 {
	if m.Unit == Seconds {
		return float64(v) / 1e9
	}
	return float64(v)
}

// table has all rows, in the order of their declaration in this package's files table_*.go.
var table []*Metric

// Table is the rows of all metrics, in the order in which a page has them.
func Table() []*Metric { return slices.Clone(table) }

// section declares the metrics of one section of the reference page.
type section string

func (s section) row(t Type, name, help string, labels []string) *Metric {
	m := &Metric{Name: name, Type: t, Help: help, Labels: labels, Cap: 1, Section: string(s), index: len(table)}
	m.Unit = unitOf(name)
	table = append(table, m)
	return m
}

// gauge declares a value that rises and falls.
func (s section) gauge(name, help string, labels ...string) *Metric {
	return s.row(TypeGauge, name, help, labels)
}

// counter declares a number that only grows. It starts from 0 with the process, and if it is a
// shard's, with the shard's replica.
func (s section) counter(name, help string, labels ...string) *Metric {
	return s.row(TypeCounter, name, help, labels)
}

// histogram declares a distribution. Bounds of a metric in seconds are nanoseconds.
func (s section) histogram(name, help string, bounds []uint64, labels ...string) *Metric {
	m := s.row(TypeHistogram, name, help, labels)
	m.Bounds = bounds
	return m
}

// most sets the cap on series.
func (m *Metric) most(n int) *Metric {
	m.Cap = n
	return m
}

// unitOf is the unit in a name.
func unitOf(name string) Unit {
	for _, u := range []Unit{Seconds, Bytes, Ratio} {
		if strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_"+string(u)) {
			return u
		}
	}
	return Count
}

const (
	us = 1_000
	ms = 1_000_000
	s1 = 1_000_000_000
)

// Bounds of histograms. Latencies are of machines, waits of people and programs that hold what
// others want.
var (
	latencies = []uint64{
		100 * us, 250 * us, 500 * us, ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		s1, 2500 * ms, 5 * s1, 10 * s1,
	}
	lags   = []uint64{100 * us, 500 * us, ms, 5 * ms, 10 * ms, 50 * ms, 100 * ms, 500 * ms, s1, 5 * s1}
	rounds = []uint64{
		5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms,
		s1, 2500 * ms, 5 * s1, 10 * s1, 30 * s1, 60 * s1, 300 * s1,
	}
	sizes = []uint64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}
)
