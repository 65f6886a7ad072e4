// Which values has a metric by round, and how is a number written?

package bench

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Measurement is one quantity of one system, with a value for each round.
type Measurement struct {
	Metric  string `json:"work"`    // as in metrics.go: "pairs-1024"
	Subject string `json:"subject"` // "etcd"
	Unit    Unit   `json:"unit"`
	Values  Rounds `json:"values"`
}

// Rounds are the values of a figure by round, NaN where a round has none. JSON has no NaN: there it
// is null.
type Rounds []float64

// MarshalJSON writes four digits that count: no figure knows more.
func (r Rounds) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range r {
		if i > 0 {
			b = append(b, ',')
		}
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b = append(b, "null"...)
		} else {
			short, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
			b = strconv.AppendFloat(b, short, 'f', -1, 64)
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (r *Rounds) UnmarshalJSON(b []byte) error {
	var list []*float64
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*r = make(Rounds, len(list))
	for i, v := range list {
		if (*r)[i] = math.NaN(); v != nil {
			(*r)[i] = *v
		}
	}
	return nil
}

// Unit of a figure.
type Unit string

// The units.
const (
	PerSecond    Unit = "/s"
	Milliseconds Unit = "ms"
	Microseconds Unit = "us"
	Bytes        Unit = "B"
	PerCPUSecond Unit = "/cpu-s"
	Percent      Unit = "%"
)

// measurements are all figures of a report, kept in order of work and subject as they came.
type measurements []*Measurement

func (f measurements) find(work, subject string) *Measurement {
	for _, x := range f {
		if x.Metric == work && x.Subject == subject {
			return x
		}
	}
	return nil
}

// add notes a value of a round. Rounds without one before it are filled up.
func (f *measurements) add(round int, work, subject string, unit Unit, value float64) {
	x := f.find(work, subject)
	if x == nil {
		x = &Measurement{Metric: work, Subject: subject, Unit: unit}
		*f = append(*f, x)
	}
	for len(x.Values) <= round {
		x.Values = append(x.Values, math.NaN())
	}
	x.Values[round] = value
}

func (f measurements) sort() {
	slices.SortStableFunc(f, func(a, b *Measurement) int {
		return cmp.Or(cmp.Compare(slices.IndexFunc(allMetrics, func(w Metric) bool { return w.ID == a.Metric }),
			slices.IndexFunc(allMetrics, func(w Metric) bool { return w.ID == b.Metric })),
			cmp.Compare(slices.Index(subjects, a.Subject), slices.Index(subjects, b.Subject)))
	})
}

// amount is a number with its unit, for people: three digits, thousands apart.
func amount(v float64, u Unit) string {
	if math.IsNaN(v) {
		return "-"
	}
	switch u {
	case Bytes:
		switch {
		case math.Abs(v) >= 10<<30:
			return digits(v/(1<<30)) + " GB"
		case math.Abs(v) >= 10<<20:
			return digits(v/(1<<20)) + " MB"
		case math.Abs(v) >= 1<<10:
			return digits(v/(1<<10)) + " KB"
		}
		return digits(v) + " B"
	case PerSecond, PerCPUSecond, "":
		return digits(v)
	}
	return digits(v) + " " + string(u)
}

// digits writes a number with three digits that count, whole from a hundred on.
func digits(v float64) string {
	a := math.Abs(v)
	switch {
	case a >= 1000:
		round := math.Pow(10, math.Floor(math.Log10(a))-2)
		return loadgen.Thousands(strconv.FormatFloat(math.Round(v/round)*round, 'f', 0, 64))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// plain is a number as somebody would have typed it.
func plain(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
