// How is a chart drawn?

package loadgen

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// chart is lines over a horizontal axis. A value that is not above 0 cannot be shown on a
// logarithmic axis, and is left out.
type chart struct {
	title, xLabel string
	x             []tick // also the range: from the first to the last
	log           bool   // the vertical axis
	format        func(float64) string
	lines         []line
}

// tick is a labelled place of an axis.
type tick struct {
	at    float64
	label string
}

// line joins points, in order of x.
type line struct {
	name   string
	points []point
}

type point struct{ x, y float64 }

const (
	plotWidth     = 760.0
	plotHeader    = 62.0
	chartLeft     = 74.0
	chartRight    = plotWidth - 30
	chartTop      = 52.0 // title and one row of the legend
	legendRow     = 18.0
	legendColumns = 3
	chartHeight   = 220.0
	chartFooter   = 54.0
)

// Lines differ in colours, with the common kinds of colour blindness too, and in their dashes when
// printed.
var (
	colours = []string{"#2f81f7", "#e0823d", "#2da37a", "#c45ab3", "#b59a2a", "#6e7fd1"}
	dashes  = []string{"none", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"}
)

const gridStroke = `stroke="#8b949e" stroke-opacity=".28"`

// legend is the height of the rows of names after the first.
func (c *chart) legend() float64 { return float64((len(c.lines)-1)/legendColumns) * legendRow }

func (c *chart) height() float64 { return chartTop + c.legend() + chartHeight + chartFooter }

func (c *chart) draw(b *svg, top float64) {
	upper := top + chartTop + c.legend()
	lower := upper + chartHeight
	b.text(16, top+18, `font-size="14" font-weight="600"`, c.title)
	scale := func(v float64) float64 { return v }
	if c.log {
		scale = math.Log10
	}
	ticks := c.yTicks()
	x0, x1 := c.x[0].at, c.x[len(c.x)-1].at
	y0, y1 := ticks[0], ticks[len(ticks)-1]
	px := func(x float64) float64 { return chartLeft + (x-x0)/(x1-x0)*(chartRight-chartLeft) }
	py := func(y float64) float64 { return lower - (scale(y)-scale(y0))/(scale(y1)-scale(y0))*chartHeight }
	for _, t := range ticks {
		b.path(gridStroke, fmt.Sprintf("M%s %sH%s", place(chartLeft), place(py(t)), place(chartRight)))
		b.text(chartLeft-8, py(t)+4, `text-anchor="end"`, c.format(t))
	}
	for _, t := range c.x {
		b.path(gridStroke, fmt.Sprintf("M%s %sV%s", place(px(t.at)), place(upper), place(lower+4)))
		b.text(px(t.at), lower+19, `text-anchor="middle"`, t.label)
	}
	b.text((chartLeft+chartRight)/2, lower+38, `text-anchor="middle"`, c.xLabel)
	for i, l := range c.lines {
		stroke := fmt.Sprintf(`stroke="%s" stroke-dasharray="%s" stroke-width="2" stroke-linejoin="round"`,
			colours[i%len(colours)], dashes[(i+i/len(colours))%len(dashes)])
		var path []string
		for _, p := range l.points {
			if p.x > x1 || c.log && p.y <= 0 {
				continue
			}
			if at := place(px(p.x)) + " " + place(py(min(p.y, y1))); len(path) == 0 || path[len(path)-1] != at {
				path = append(path, at)
			}
		}
		if len(path) > 0 {
			b.path(stroke, "M"+strings.Join(path, "L"))
		}
		if l.name != "" {
			x, y := chartLeft+12+float64(i%legendColumns)*218, top+chartTop-8+float64(i/legendColumns)*legendRow
			b.path(stroke, fmt.Sprintf("M%s %sh22", place(x), place(y-4)))
			b.text(x+28, y, "", l.name)
		}
	}
}

// yTicks are round values that take in all lines; at least two.
func (c *chart) yTicks() []float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range c.lines {
		for _, p := range l.points {
			if !c.log || p.y > 0 {
				low, high = min(low, p.y), max(high, p.y)
			}
		}
	}
	switch {
	case !c.log:
		return roundSteps(max(high, 1), 5)
	case low > high:
		return []float64{1, 10}
	}
	steps := []float64{1, 2, 5}
	if high/low > 1000 {
		steps = steps[:1]
	}
	var ticks []float64
	for e := math.Floor(math.Log10(low)); ; e++ {
		for _, s := range steps {
			v := s * math.Pow(10, e)
			if v <= low {
				ticks = nil
			}
			if ticks = append(ticks, v); v >= high && len(ticks) > 1 {
				return ticks
			}
		}
	}
}

// svg is a picture that is being written.
type svg struct{ strings.Builder }

func (b *svg) writef(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }

func (b *svg) path(attributes, d string) { b.writef(`<path d="%s" %s fill="none"/>`, d, attributes) }

// text writes a text at a place.
func (b *svg) text(x, y float64, attributes, s string) {
	b.writef(`<text x="%s" y="%s" %s>%s</text>`, place(x), place(y), attributes, escaped(s))
}

// place is a coordinate with at most one decimal.
func place(x float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0") }

// escaped makes a text safe inside an element.
func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}
