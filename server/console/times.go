package console

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// Times are shown as ages. Nothing is decided by them.

func millis(t time.Time) int64 { return t.UnixMilli() }

func ofMillis(ms int64) time.Time { return time.UnixMilli(ms) }

func since(t time.Time) cell {
	if t.IsZero() {
		return none()
	}
	return cell{At: millis(t)}
}

// ago is the time at which something was that lasts for d now, to the second, so that it is the
// same whenever it is read.
func ago(d time.Duration) cell {
	if d <= 0 {
		return none()
	}
	return cell{At: time.Now().Add(-d).Round(time.Second).UnixMilli()}
}

// until is the time that is left to a moment that is d away, to the second.
func until(d time.Duration) cell {
	return cell{At: time.Now().Add(d).Round(time.Second).UnixMilli(), Left: true, Kind: "num"}
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// trendPoints is how many points a line has from its left end to its right one.
const trendPoints = int(15 * time.Minute / admin.TopPeriod)

// addTrends shows the last 15 minutes as small lines. What cannot be read now is left out.
func addTrends(ctx context.Context, v *viewer, p *page) {
	past, err := v.history(ctx)
	if err != nil || len(past) == 0 {
		return
	}
	number := func(f float64) string { return rate(f).Text }
	whole := func(f float64) string { return group(uint64(f)) }
	lasting := func(f float64) string { return age(time.Duration(f * float64(time.Second))) }
	for _, x := range []struct {
		key, label string
		of         func(p *admin.TopPoint) float64
		text       func(float64) string
	}{
		{"grants", "Grants per second", func(p *admin.TopPoint) float64 { return p.GrantsPerSecond }, number},
		{"waiting", "Waiters", func(p *admin.TopPoint) float64 { return float64(p.Waiters) }, whole},
		{"sessions", "Sessions", func(p *admin.TopPoint) float64 { return float64(p.Sessions) }, whole},
		{"longest", "Longest wait", func(p *admin.TopPoint) float64 { return p.LongestWait.Seconds() }, lasting},
	} {
		values, most := make([]float64, len(past)), 0.0
		for i := range past {
			values[i] = x.of(&past[i])
			most = max(most, values[i])
		}
		c := cell{Text: x.text(values[len(values)-1]), Note: "at most " + x.text(most) + " in 15 min",
			Line: linePoints(values, most)}
		p.Facts = append(p.Facts, fact{"trend-" + x.key, x.label, c})
	}
}

// linePoints are the points of a line in a picture of 300 x 40: the last value is at its right end,
// the greatest one near its top, and 0 near its bottom.
func linePoints(values []float64, most float64) string {
	const width, top, bottom = 300.0, 2.0, 38.0
	var b strings.Builder
	for i, f := range values {
		x := width * float64(trendPoints-len(values)+i+1) / float64(trendPoints)
		y := bottom
		if most > 0 {
			y -= (bottom - top) * f / most
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.0f,%.1f", x, y)
	}
	return b.String()
}
