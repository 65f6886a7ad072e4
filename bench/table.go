// How is a report shown?

package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTable writes the report for people, in Markdown: the machine, the missing systems, the
// figures.
func (r *Report) WriteTable(w io.Writer) error {
	var b strings.Builder
	kind := "Comparison"
	if r.Quick {
		kind = "Quick comparison"
	}
	fmt.Fprintf(&b, "# %s of %s\n\n", kind, r.Begun.Format("2006-01-02 15:04"))
	fmt.Fprintf(&b,
		"%s. %d rounds in alternating order, %s seconds a measurement, %s minutes in all. Servers and load share the machine.\n\n",
		r.Machine, r.Rounds, plain(r.Seconds), digits(r.Took/60))
	for _, s := range subjects {
		if v := r.Versions[s]; v != "" {
			fmt.Fprintf(&b, "- %s: %s\n", s, v)
		}
	}
	for _, m := range r.Missing {
		fmt.Fprintf(&b, "- **%s is missing: %s**\n", m.Subject, m.Why)
	}
	for _, f := range r.Failures {
		fmt.Fprintf(&b, "- **failed: %s of %s in round %d: %s**\n", f.Benchmark, f.Subject, f.Round+1, f.Why)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	b.WriteString("\n## Figures\n\nMedians, and the spread over the rounds as a part of the median. The JSON file beside this has more.\n\n")
	b.WriteString(r.table(subjects, func(m Metric) bool {
		return m.Text != loadCPU && !strings.HasSuffix(m.ID, "-kept")
	}, true))
	_, err := io.WriteString(w, b.String())
	return err
}

// table has a row for each metric that is shown and a column for each of the systems that was
// measured in one.
func (r *Report) table(systems []string, shown func(Metric) bool, spreads bool) string {
	var b strings.Builder
	var columns []string
	for _, s := range systems {
		if slices.ContainsFunc(allMetrics, func(m Metric) bool {
			return shown(m) && (r.Measurements.find(m.ID, s) != nil || r.fellBehind(m, s))
		}) {
			columns = append(columns, s)
		}
	}
	b.WriteString("| |")
	for _, s := range columns {
		b.WriteString(" " + s + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, w := range allMetrics {
		if !shown(w) {
			continue
		}
		row, any := "| "+w.Text+" |", false
		for _, s := range columns {
			cell := ""
			f := r.Measurements.find(w.ID, s)
			switch {
			case r.fellBehind(w, s):
				cell, any = fallsBehind, true
			case f != nil:
				st := StatOf(f.Values)
				cell, any = amount(st.Median, f.Unit), true
				if spreads && st.N > 1 {
					cell += fmt.Sprintf(" (%.0f%%)", 100*st.Spread())
				}
			}
			row += " " + cell + " |"
		}
		if any {
			b.WriteString(row + "\n")
		}
	}
	return b.String()
}

const fallsBehind = "falls behind"

// fellBehind reports whether a system did not keep the rate at which a metric is measured.
func (r *Report) fellBehind(m Metric, subject string) bool {
	if m.Kept == "" {
		return false
	}
	f := r.Measurements.find(m.Kept, subject)
	return f != nil && StatOf(f.Values).Median < kept
}
