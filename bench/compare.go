package bench

import (
	"fmt"
	"io"
	"strings"
)

// Change is how a figure of this project changed from one report to another.
type Change struct {
	Work     Work
	Old, New Stat
	Ratio    float64 // new to old
	Word     string  // "same", "better", "worse"
}

// Changes compares this project's figures of two reports. Machines drift between runs, so that a figure counts as changed only when the ranges of the two runs do
// not meet. Where there are peers to hold it against, the bars' ratios say more.
func Changes(old, new *Report) []Change {
	var out []Change
	for _, w := range works {
		a, b := old.Figures.find(w.ID, Box), new.Figures.find(w.ID, Box)
		if a == nil || b == nil {
			continue
		}
		c := Change{Work: w, Old: StatOf(a.Values), New: StatOf(b.Values)}
		c.Ratio = c.New.Median / c.Old.Median
		c.Word = moved(c.Old, c.New, w.Unit.MoreIsBetter())
		out = append(out, c)
	}
	return out
}

func moved(old, new Stat, more bool) string {
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

// WriteCompare writes what changed between two reports: the bars, whose ratios a slower machine does not change, and then the figures themselves.
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
		word := moved(v.Ratio, n.Ratio, !v.Bar.AtMost)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", v.Bar.ID, v.Bar.Work, v.Bar.Demand, v.ratio(), n.ratio(), word, n.Word())
	}
	b.WriteString("\n## Figures of signalbox\n\n| work | before | after | after / before | |\n|---|---|---|---|---|\n")
	for _, c := range Changes(old, new) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", c.Work.Text, ranged(c.Old, c.Work.Unit), ranged(c.New, c.Work.Unit), digits(c.Ratio), c.Word)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ratio is the verdict's, or the figure itself where the bar is about that.
func (v Verdict) ratio() string {
	if !v.Known {
		return "-"
	}
	if len(v.Bar.Peer.Works) == 0 {
		return ranged(v.Ratio, v.Unit)
	}
	return fmt.Sprintf("%s (%s .. %s)", digits(v.Ratio.Median), digits(v.Ratio.Low), digits(v.Ratio.High))
}

// ranged is a median with the range of the rounds.
func ranged(s Stat, u Unit) string {
	if s.N == 0 {
		return "-"
	}
	if s.N == 1 {
		return amount(s.Median, u)
	}
	return fmt.Sprintf("%s (%s .. %s)", amount(s.Median, u), amount(s.Low, u), amount(s.High, u))
}
