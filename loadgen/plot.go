package loadgen

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Plot draws the result: latency over percentile, throughput over time.
func (r *Result) Plot() *Plot {
	p := &Plot{
		Title: r.Scenario + ": " + showRate(r.Rate),
		Subtitle: strings.Join([]string{r.Target, showCount(uint64(r.Callers)) + " callers, " + r.loopText(),
			showCount(uint64(r.Connections)) + " connections", "errors: " + showCount(r.ErrorCount())}, " · "),
	}
	latency := Chart{Title: "Latency over percentile", XLabel: "percentile", Log: true,
		FormatY: func(us float64) string { return showDuration(time.Duration(math.Round(us * 1e3))) }}
	most := uint64(0)
	for i := range r.Series {
		latency.Lines = append(latency.Lines, r.Series[i].line())
		most = max(most, r.Series[i].Count)
	}
	latency.XTicks = percentiles(most)
	p.Charts = append(p.Charts, latency)
	if len(r.Throughput.Operations) > 1 {
		p.Charts = append(p.Charts, r.Throughput.chart())
	}
	return p
}

// nines is how percentiles are spread along an axis: each further nine takes the same room.
func nines(share float64) float64 { return -math.Log10(1 - share) }

// percentiles are the ticks for so many values: beyond one in so many there is nothing to see.
func percentiles(n uint64) []Tick {
	ticks := []Tick{{0, "0"}, {nines(.5), "50"}, {1, "90"}}
	label := "99"
	for k := 2.0; k <= 6 && 1.2*math.Pow(10, k-1) < float64(n); k++ {
		ticks = append(ticks, Tick{k, label})
		if k == 2 {
			label += "."
		}
		label += "9"
	}
	return ticks
}

// line of durations in microseconds over nines.
func (s *Series) line() Line {
	l := Line{Name: s.Name}
	if s.Count == 0 {
		return l
	}
	seen := int64(0)
	total := float64(s.Count)
	for _, bar := range s.hist.Distribution() {
		if bar.Count == 0 {
			continue
		}
		us := float64(min(bar.To, s.max)) / 1e3
		l.Points = append(l.Points, Point{nines(float64(seen) / total), us})
		seen += bar.Count
		if float64(seen) < total {
			l.Points = append(l.Points, Point{nines(float64(seen) / total), us})
		} else {
			l.Points = append(l.Points, Point{math.Log10(total) + 1e-9, us})
		}
	}
	return l
}

func (t *Throughput) chart() Chart {
	n := len(t.Operations)
	seconds := t.SlotMS / 1e3
	c := Chart{Title: "Throughput over time", XLabel: "seconds", FormatY: func(x float64) string {
		if x >= 1e6 {
			return digits(x/1e6) + "M/s"
		}
		if x >= 1e4 {
			return digits(x/1e3) + "k/s"
		}
		return strconv.FormatFloat(x, 'f', -1, 64) + "/s"
	}}
	if n > 2 {
		n-- // the last slot is not a whole one
	}
	line := Line{}
	for i, k := range t.Operations[:n] {
		line.Points = append(line.Points, Point{(float64(i) + .5) * seconds, float64(k) / seconds})
	}
	c.Lines = []Line{line}
	span := float64(n) * seconds
	step := math.Pow(10, math.Floor(math.Log10(span)))
	for _, s := range []float64{.1, .2, .5, 1} {
		if span/(step*s) <= 10 {
			step *= s
			break
		}
	}
	for x := 0.0; ; x += step {
		c.XTicks = append(c.XTicks, Tick{x, strconv.FormatFloat(math.Round(x*1e4)/1e4, 'f', -1, 64)})
		if x >= span {
			return c
		}
	}
}
