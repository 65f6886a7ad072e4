package metrics

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/cespare/xxhash/v2"
)

// Page is one answer to a scrape. The series of a metric come together, in the order of the table,
// whatever the order in which they are written.
type Page struct {
	series []seriesOf // by Metric.index
	names  int        // most series of a metric whose labels are names
}

// seriesOf are the series of one metric.
type seriesOf struct {
	text []byte
	n    int
}

func newPage(names int) *Page { return &Page{series: make([]seriesOf, len(table)), names: names} }

// MaxSeries is how many series a metric may have whose labels are names that clients choose.
func (p *Page) MaxSeries() int { return p.names }

// begin takes one series of a metric: false if it has all that its cap allows.
func (p *Page) begin(m *Metric, labels []string) *seriesOf {
	if len(labels) != len(m.Labels) {
		panic(fmt.Sprintf("%s has the labels %v, and %d values came", m.Name, m.Labels, len(labels)))
	}
	s := &p.series[m.index]
	most := m.Cap
	if most == ByNames {
		most = p.names
	}
	if s.n >= most {
		return nil
	}
	s.n++
	return s
}

// Write writes the value of one series: a number, or a bool, which is 1 or 0. The labels' values
// come in the order of the table. A series beyond the metric's cap is left out.
func (p *Page) Write(m *Metric, value any, labels ...string) {
	s := p.begin(m, labels)
	if s == nil {
		return
	}
	s.text = appendSeries(s.text, m.Name, m.Labels, labels, "", "")
	s.text = append(appendValue(s.text, value), '\n')
}

// writeDistribution writes one series of a histogram from a distribution.
func (p *Page) writeDistribution(m *Metric, d snapshot, labels ...string) {
	s := p.begin(m, labels)
	if s == nil {
		return
	}
	sum := uint64(0)
	for i, n := range d.counts {
		sum += n
		bound := "+Inf"
		if i < len(m.Bounds) {
			bound = strconv.FormatFloat(m.scaled(m.Bounds[i]), 'g', -1, 64)
		}
		s.text = appendSeries(s.text, m.Name+"_bucket", m.Labels, labels, "le", bound)
		s.text = append(strconv.AppendUint(s.text, sum, 10), '\n')
	}
	s.text = appendSeries(s.text, m.Name+"_sum", m.Labels, labels, "", "")
	s.text = append(strconv.AppendFloat(s.text, m.scaled(d.sum), 'g', -1, 64), '\n')
	s.text = appendSeries(s.text, m.Name+"_count", m.Labels, labels, "", "")
	s.text = append(strconv.AppendUint(s.text, sum, 10), '\n')
}

// writeHistogram writes one series of a histogram.
func (p *Page) writeHistogram(m *Metric, set *vm.Set, labels []string) {
	if s := p.begin(m, labels); s != nil {
		b := bytes.NewBuffer(s.text)
		set.WritePrometheus(b)
		s.text = b.Bytes()
	}
}

// writeTo writes the metrics that have a series.
func (p *Page) writeTo(w io.Writer) {
	for i, m := range table {
		if s := &p.series[i]; s.n > 0 {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Type)
			_, _ = w.Write(s.text)
		}
	}
}

func appendSeries(b []byte, name string, names, values []string, more, value string) []byte {
	b = append(b, name...)
	sep := byte('{')
	for i, n := range names {
		if values[i] == "" {
			continue // Prometheus takes an empty value for a missing label
		}
		b = appendLabel(append(b, sep), n, values[i])
		sep = ','
	}
	if more != "" {
		b = appendLabel(append(b, sep), more, value)
		sep = ','
	}
	if sep == ',' {
		b = append(b, '}')
	}
	return append(b, ' ')
}

// appendLabel appends a label. No value can be longer than its cap, or not be UTF-8.
func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), `="`...)
	for _, c := range []byte(Label(value)) {
		if c == '"' || c == '\\' {
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return append(b, '"')
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case bool:
		if v {
			return append(b, '1')
		}
		return append(b, '0')
	case float64:
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	}
	return fmt.Append(b, value)
}

// MaxLabel is the most bytes of a label's value that stand for a name.
const MaxLabel = 128

// Label makes any bytes fit for a label's value: printable UTF-8, of a bounded length. Other bytes
// are written as Go writes them in a string. A name that is cut short has a hash of the whole, so
// that two names that begin alike do not make the same series.
func Label(s string) string {
	q := s
	if !isPlain(s) {
		q = strconv.Quote(s)
		q = q[1 : len(q)-1]
	}
	if len(q) <= MaxLabel {
		return q
	}
	end := MaxLabel
	for !utf8.RuneStart(q[end]) {
		end--
	}
	return fmt.Sprintf("%s...#%016x", q[:end], xxhash.Sum64String(s))
}

// isPlain reports whether a string stays as it is.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c >= 0x7f || c == '"' || c == '\\' })
}

// Budget bounds the series that are made from names.
type Budget struct {
	Left int
	Cut  bool // some series were left out
}

// Take takes so many series, or none if fewer are left.
func (b *Budget) Take(n int) bool {
	if b.Left < n {
		b.Cut = true
		return false
	}
	b.Left -= n
	return true
}

// ID is a number as a label's value.
func ID(n uint64) string { return strconv.FormatUint(n, 10) }
