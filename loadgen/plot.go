// Which charts has a result?

package loadgen

import (
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// WritePlot draws the result as SVG: latency over percentile, throughput over time. It has no
// background, and colours that can be read on a light and on a dark one.
func (r *Result) WritePlot(w io.Writer) error {
	latency := chart{title: "Latency over percentile", xLabel: "percentile", log: true,
		format: func(us float64) string { return showDuration(time.Duration(math.Round(us * 1e3))) }}
	most := uint64(0)
	for i := range r.Series {
		latency.lines = append(latency.lines, r.Series[i].line())
		most = max(most, r.Series[i].Count)
	}
	latency.x = percentiles(most)
	charts := []chart{latency}
	if len(r.Throughput.Operations) > 1 {
		charts = append(charts, r.Throughput.chart())
	}
	height := plotHeader
	for i := range charts {
		height += charts[i].height()
	}
	title := r.Scenario + ": " + showRate(r.Rate)
	var b svg
	b.writef(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %v %v" width="%[1]v" height="%[2]v" role="img" `+
		`font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" fill="#7a828e">`,
		plotWidth, height)
	b.writef("<title>%s</title>", escaped(title))
	b.text(16, 28, `font-size="17" font-weight="600"`, title)
	b.text(16, 48, "", strings.Join([]string{r.Target, showCount(uint64(r.Callers)) + " callers, " + r.loopText(),
		showCount(uint64(r.Connections)) + " connections", "errors: " + showCount(r.ErrorCount())}, " · "))
	y := plotHeader
	for i := range charts {
		charts[i].draw(&b, y)
		y += charts[i].height()
	}
	b.writef("</svg>")
	_, err := io.WriteString(w, b.String())
	return err
}

// nines returns a percentile's place on an axis: each further nine takes the same room.
func nines(share float64) float64 { return -math.Log10(1 - share) }

// percentiles returns the ticks for n values: further nines would have less than one value.
func percentiles(n uint64) []tick {
	ticks := []tick{{0, "0"}, {nines(.5), "50"}, {1, "90"}}
	label := "99"
	for k := 2.0; k <= 6 && 1.2*math.Pow(10, k-1) < float64(n); k++ {
		ticks = append(ticks, tick{k, label})
		if k == 2 {
			label += "."
		}
		label += "9"
	}
	return ticks
}

// line of durations in microseconds over nines.
func (s *Series) line() line {
	l := line{name: s.Name}
	if s.Count == 0 {
		return l
	}
	seen, total := uint64(0), float64(s.Count)
	s.hist.each(func(d int64, n uint64) {
		us := micros(float64(d))
		l.points = append(l.points, point{nines(float64(seen) / total), us})
		seen += n
		end := math.Log10(total) + 1e-9
		if float64(seen) < total {
			end = nines(float64(seen) / total)
		}
		l.points = append(l.points, point{end, us})
	})
	return l
}

func (t *Throughput) chart() chart {
	n := len(t.Operations)
	seconds := t.SlotMS / 1e3
	c := chart{title: "Throughput over time", xLabel: "seconds", format: func(x float64) string {
		switch {
		case x >= 1e6:
			return digits(x/1e6) + "M/s"
		case x >= 1e4:
			return digits(x/1e3) + "k/s"
		}
		return strconv.FormatFloat(x, 'f', -1, 64) + "/s"
	}}
	if n > 2 {
		n-- // the last slot is not a whole one
	}
	var l line
	for i, k := range t.Operations[:n] {
		l.points = append(l.points, point{(float64(i) + .5) * seconds, float64(k) / seconds})
	}
	c.lines = []line{l}
	for _, x := range roundSteps(float64(n)*seconds, 10) {
		c.x = append(c.x, tick{x, strconv.FormatFloat(math.Round(x*1e4)/1e4, 'f', -1, 64)})
	}
	return c
}

// roundSteps returns round values from 0 until end is reached, in at most most steps and one more.
func roundSteps(end float64, most int) (list []float64) {
	step := math.Pow(10, math.Floor(math.Log10(end/float64(most))))
	for _, s := range []float64{1, 2, 5, 10} {
		if end/(step*s) <= float64(most) {
			step *= s
			break
		}
	}
	for i := 0; ; i++ {
		if list = append(list, float64(i)*step); list[i] >= end {
			return list
		}
	}
}
