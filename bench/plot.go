package bench

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// The plot has a group of bars for each metric and a bar for each system. A bar is a median, and
// the thin line at its end the range of the rounds. It is readable on light and dark pages.
const (
	plotWidth   = 860
	labelWidth  = 170
	valueWidth  = 170
	rowHeight   = 19
	titleHeight = 32
	groupGap    = 14
)

var colours = map[string]string{
	Signalbox: "#2f81f7", Etcd: "#bf8700", ZooKeeper: "#8250df", GoRedis: "#cf222e", Rueidis: "#e5534b",
	Dragonboat: "#6e7781", Echo: "#6e7781", LoggedEcho: "#6e7781",
}

// WritePlot writes the medians as an SVG picture.
func (r *Report) WritePlot(w io.Writer) error {
	var b strings.Builder
	y := 34.0
	for _, wk := range allMetrics {
		if wk.Detail {
			continue
		}
		y += r.group(&b, wk, y)
	}
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">
<style>text{fill:#1f2328}.dim{fill:#59636e}@media (prefers-color-scheme: dark){text{fill:#e6edf3}.dim{fill:#9198a1}}</style>
`, plotWidth, int(y)+8, plotWidth, int(y)+8)
	head += fmt.Sprintf(`<text x="0" y="14" class="dim">%s, %s; medians of %d rounds, lines: their range</text>`+"\n",
		loadgen.SVGEscape(r.Begun.Format("2006-01-02")),
		loadgen.SVGEscape(fmt.Sprintf("%d cores %s for servers and load", r.Machine.Cores, r.Machine.CPU)), r.Rounds)
	_, err := io.WriteString(w, head+b.String()+"</svg>\n")
	return err
}

// group draws one metric at y and returns its height; 0 if no system was measured.
func (r *Report) group(b *strings.Builder, wk Metric, y float64) float64 {
	number := loadgen.SVGNumber
	type row struct {
		subject string
		Stat
	}
	var rows []row
	top := 0.0
	for _, s := range subjects {
		if f := r.Measurements.find(wk.ID, s); f != nil {
			if st := StatOf(f.Values); st.N > 0 {
				rows = append(rows, row{s, st})
				top = max(top, st.High)
			}
		}
	}
	if len(rows) == 0 || top <= 0 {
		return 0
	}
	better := "less is better"
	if wk.Unit.MoreIsBetter() {
		better = "more is better"
	}
	fmt.Fprintf(b, `<text x="0" y="%s" font-weight="600">%s</text><text x="%d" y="%s" text-anchor="end" class="dim">%s</text>`+"\n",
		number(y+20), loadgen.SVGEscape(wk.Text), plotWidth, number(y+20), better)
	at := y + titleHeight
	scale := (plotWidth - labelWidth - valueWidth) / top
	for _, x := range rows {
		middle := at + rowHeight/2
		weight := ""
		if x.subject == Signalbox {
			weight = ` font-weight="600"`
		}
		fmt.Fprintf(b, `<text x="%d" y="%s" text-anchor="end"%s>%s</text>`,
			labelWidth-8, number(middle+4), weight, loadgen.SVGEscape(x.subject))
		fmt.Fprintf(b, `<rect x="%d" y="%s" width="%s" height="%d" rx="2" fill="%s"/>`, labelWidth, number(at+3),
			number(math.Max(1, x.Median*scale)), rowHeight-6, colours[x.subject])
		if x.N > 1 {
			fmt.Fprintf(b, `<path d="M%s %sH%s" stroke="#8b949e" stroke-width="2"/>`,
				number(labelWidth+x.Low*scale), number(middle), number(labelWidth+x.High*scale))
		}
		end := labelWidth + math.Max(x.High, x.Median)*scale
		fmt.Fprintf(b, `<text x="%s" y="%s"%s>%s</text>`+"\n", number(end+8), number(middle+4), weight,
			loadgen.SVGEscape(amount(x.Median, wk.Unit)))
		at += rowHeight
	}
	return at + groupGap - y
}
