package loadgen

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Plot is charts one below the other, with a title. It is drawn without a background, in colours
// that can be read on a light and on a dark one.
type Plot struct {
	Title, Subtitle string
	Charts          []Chart
}

// Chart is lines over a horizontal axis. A value that is not above 0 cannot be shown on a
// logarithmic axis, and is left out.
type Chart struct {
	Title, XLabel, YLabel string
	XTicks                []Tick // also the range: from the first to the last
	Log                   bool   // the vertical axis
	FormatY               func(float64) string
	Lines                 []Line
}

// Tick is a labelled place of an axis.
type Tick struct {
	At    float64
	Label string
}

// Line joins points, in order of x.
type Line struct {
	Name   string
	Points []Point
}

// Point of a line.
type Point struct{ X, Y float64 }

const (
	plotWidth   = 760.0
	plotHeader  = 62.0
	chartLeft   = 74.0
	chartRight  = 30.0
	chartTop    = 52.0 // title and one row of the legend
	legendRow   = 18.0
	chartHeight = 220.0
	chartFooter = 54.0
)

// strokes are told apart with the common kinds of colour blindness too, and by their dashes when
// printed.
var strokes = []struct{ colour, dash string }{
	{"#2f81f7", ""}, {"#e0823d", "7 3"}, {"#2da37a", "2 3"}, {"#c45ab3", "9 3 2 3"}, {"#b59a2a", "4 2"}, {"#6e7fd1", "1 2"},
}

// WriteTo draws the picture as SVG.
func (p *Plot) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	height := plotHeader
	for i := range p.Charts {
		height += p.Charts[i].height()
	}
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" fill="#7a828e">`+"\n",
		plotWidth, height, plotWidth, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", svgEscape(p.Title))
	svgText(&b, 16, 28, `font-size="17" font-weight="600"`, p.Title)
	svgText(&b, 16, 48, "", p.Subtitle)
	y := plotHeader
	for i := range p.Charts {
		p.Charts[i].draw(&b, y)
		y += p.Charts[i].height()
	}
	b.WriteString("</svg>\n")
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// legend gives the place of each line's name: rows are filled from the left.
func (c *Chart) legend() (at []Point, rows int) {
	x, y := chartLeft+12, 0.0
	for _, l := range c.Lines {
		width := 28 + 7*float64(len([]rune(l.Name))) + 22
		if x+width > plotWidth && x > chartLeft+12 {
			x, y = chartLeft+12, y+legendRow
		}
		at = append(at, Point{x, y})
		x += width
	}
	return at, int(y/legendRow) + 1
}

func (c *Chart) height() float64 {
	_, rows := c.legend()
	return chartTop + chartHeight + chartFooter + float64(rows-1)*legendRow
}

func (c *Chart) draw(b *strings.Builder, top float64) {
	names, rows := c.legend()
	left, right := chartLeft, plotWidth-chartRight
	upper := top + chartTop + float64(rows-1)*legendRow
	lower := upper + chartHeight
	svgText(b, 16, top+18, `font-size="14" font-weight="600"`, c.Title)

	x0, x1 := 0.0, 1.0
	if len(c.XTicks) > 0 {
		x0, x1 = c.XTicks[0].At, c.XTicks[len(c.XTicks)-1].At
	}
	ticks := c.yTicks()
	y0, y1 := ticks[0], ticks[len(ticks)-1]
	scale := func(v float64) float64 { return v }
	if c.Log {
		scale = math.Log10
	}
	px := func(x float64) float64 { return left + (x-x0)/max(x1-x0, 1e-12)*(right-left) }
	py := func(y float64) float64 { return lower - (scale(y)-scale(y0))/(scale(y1)-scale(y0))*(lower-upper) }

	for _, t := range ticks {
		fmt.Fprintf(b, `<path d="M%s %sH%s" stroke="#8b949e" stroke-opacity=".28" fill="none"/>`+"\n",
			svgNumber(left), svgNumber(py(t)), svgNumber(right))
		label := strconv.FormatFloat(t, 'g', -1, 64)
		if c.FormatY != nil {
			label = c.FormatY(t)
		}
		svgText(b, left-8, py(t)+4, `text-anchor="end"`, label)
	}
	for _, t := range c.XTicks {
		fmt.Fprintf(b, `<path d="M%s %sV%s" stroke="#8b949e" stroke-opacity=".28" fill="none"/>`+"\n",
			svgNumber(px(t.At)), svgNumber(upper), svgNumber(lower+4))
		svgText(b, px(t.At), lower+19, `text-anchor="middle"`, t.Label)
	}
	svgText(b, (left+right)/2, lower+38, `text-anchor="middle"`, c.XLabel)
	svgText(b, left, upper-8, `text-anchor="end"`, c.YLabel)

	for i, l := range c.Lines {
		s := strokes[i%len(strokes)]
		s.dash = strokes[(i+i/len(strokes))%len(strokes)].dash
		dash := ""
		if s.dash != "" {
			dash = ` stroke-dasharray="` + s.dash + `"`
		}
		var d strings.Builder
		lastX, lastY := "", ""
		for _, p := range l.Points {
			if p.X < x0 || p.X > x1 || math.IsNaN(p.Y) || (c.Log && p.Y <= 0) {
				continue
			}
			x, y := svgNumber(px(p.X)), svgNumber(py(min(max(p.Y, y0), y1)))
			if x == lastX && y == lastY {
				continue
			}
			verb := "L"
			if d.Len() == 0 {
				verb = "M"
			}
			d.WriteString(verb + x + " " + y)
			lastX, lastY = x, y
		}
		if d.Len() > 0 {
			fmt.Fprintf(b, `<path d="%s" stroke="%s" stroke-width="2" stroke-linejoin="round" fill="none"%s/>`+
				"\n", d.String(), s.colour, dash)
		}
		if l.Name == "" {
			continue
		}
		x, y := names[i].X, top+chartTop-8+names[i].Y
		fmt.Fprintf(b, `<path d="M%s %sh22" stroke="%s" stroke-width="2.5" fill="none"%s/>`+"\n", svgNumber(x),
			svgNumber(y-4), s.colour, dash)
		svgText(b, x+28, y, "", l.Name)
	}
}

// yTicks are round values that take in all lines; at least two.
func (c *Chart) yTicks() []float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range c.Lines {
		for _, p := range l.Points {
			if !math.IsNaN(p.Y) && (!c.Log || p.Y > 0) {
				low, high = min(low, p.Y), max(high, p.Y)
			}
		}
	}
	if low > high {
		low, high = 1, 10
	}
	var ticks []float64
	if c.Log {
		steps := []float64{1, 2, 5}
		if high/low > 1000 {
			steps = []float64{1}
		}
		for e := math.Floor(math.Log10(low)); ; e++ {
			for _, s := range steps {
				v := s * math.Pow(10, e)
				if len(ticks) > 0 && ticks[len(ticks)-1] >= high && len(ticks) > 1 {
					return ticks
				}
				if v <= low {
					ticks = ticks[:0]
				}
				ticks = append(ticks, v)
			}
		}
	}
	if high <= 0 {
		high = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, s := range []float64{1, 2, 2.5, 5, 10} {
		if high/(step*s) <= 5 {
			step *= s
			break
		}
	}
	for v := 0.0; ; v += step {
		ticks = append(ticks, v)
		if v >= high {
			return ticks
		}
	}
}

// svgText writes a text at a place; nothing for an empty one.
func svgText(b *strings.Builder, x, y float64, attrs, s string) {
	if s == "" {
		return
	}
	if attrs != "" {
		attrs = " " + attrs
	}
	fmt.Fprintf(b, `<text x="%s" y="%s"%s>%s</text>`+"\n", svgNumber(x), svgNumber(y), attrs, svgEscape(s))
}

// svgNumber is a coordinate with at most one decimal.
func svgNumber(x float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// svgEscape makes a text safe inside an element.
func svgEscape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder does not fail
	return b.String()
}
