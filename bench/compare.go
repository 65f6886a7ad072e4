package bench

import (
	"fmt"
	"io"
	"strings"
)

// classifyChange compares a figure of two reports. Machines drift between runs, so a figure counts
// as changed only when the ranges of the two runs do not meet. Where there are other systems to
// hold it against, the bars' ratios say more.
func classifyChange(old, new Stat, more bool) string {
	up, down := new.Low > old.High, new.High < old.Low
	switch {
	case old.N == 0 || new.N == 0:
		return "not measured"
	case !up && !down:
		return "same"
	case up == more:
		return "better"
	}
	return "worse"
}

// WriteCompare writes what changed between two reports: the bars, whose ratios a slower machine
// does not change, and then the figures themselves.
func WriteCompare(w io.Writer, old, new *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# From %s to %s\n\n", old.Name(), new.Name())
	if old.Machine.Slug() != new.Machine.Slug() {
		fmt.Fprintf(&b, "The machines differ: %s; %s. Only ratios can be compared.\n\n", old.Machine, new.Machine)
	}
	if old.Seconds != new.Seconds {
		fmt.Fprintf(&b, "The measurements differ in length: %s and %s seconds.\n\n", plain(old.Seconds), plain(new.Seconds))
	}
	b.WriteString("## Bars\n\n| # | work | bar | ratio before | ratio after | | |\n|---|---|---|---|---|---|---|\n")
	before, after := old.Verdicts(), new.Verdicts()
	for i, v := range before {
		n := after[i]
		word := classifyChange(v.Ratio, n.Ratio, !v.Goal.AtMost)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			v.Goal.ID, v.Goal.Text, v.Goal.Condition, v.ratio(), n.ratio(), word, n.Text())
	}
	b.WriteString("\n## Figures of signalbox\n\n| work | before | after | after / before | |\n|---|---|---|---|---|\n")
	for _, m := range allMetrics {
		x, y := old.Measurements.find(m.ID, Signalbox), new.Measurements.find(m.ID, Signalbox)
		if x == nil || y == nil {
			continue
		}
		before, after := StatOf(x.Values), StatOf(y.Values)
		word := classifyChange(before, after, m.Unit.MoreIsBetter())
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n",
			m.Text, rangeText(before, m.Unit), rangeText(after, m.Unit), digits(after.Median/before.Median), word)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ratio is the verdict's, or the figure itself where the bar is about that.
func (v Verdict) ratio() string {
	if !v.Measured {
		return "-"
	}
	if len(v.Goal.Other.Metrics) == 0 {
		return rangeText(v.Ratio, v.Unit)
	}
	return fmt.Sprintf("%s (%s .. %s)", digits(v.Ratio.Median), digits(v.Ratio.Low), digits(v.Ratio.High))
}

func rangeText(s Stat, u Unit) string {
	if s.N == 0 {
		return "-"
	}
	if s.N == 1 {
		return amount(s.Median, u)
	}
	return fmt.Sprintf("%s (%s .. %s)", amount(s.Median, u), amount(s.Low, u), amount(s.High, u))
}
