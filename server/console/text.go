package console

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// visible shows arbitrary bytes as text in which nothing hides: control characters, marks that
// change the direction of text, other blanks than the space, and invalid UTF-8 are Go escapes, and
// so are quotes and backslashes.
func visible(s string) string {
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// visibleLines is visible for data, whose line ends stay.
func visibleLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = visibleData(l)
	}
	return strings.Join(lines, "\n")
}

// visibleData is visible for data, which no quotes are around.
func visibleData(s string) string { return strings.ReplaceAll(visible(s), `\"`, `"`) }

// visibleText is visible for sentences of the cluster, which have names in quotes already: quotes
// and backslashes stay.
func visibleText(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if one := s[:n]; strconv.IsPrint(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(one)
		} else {
			b.WriteString(visible(one))
		}
		s = s[n:]
	}
	return b.String()
}

// maxShown is how much of data a page shows, in bytes; the rest is a download.
const maxShown = 4 << 10

// cut shortens data to at most n bytes, not within a character.
func cut(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	b = b[:n]
	for i := 0; i < utf8.UTFMax && len(b) > 0; i++ {
		if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size > 1 {
			break
		}
		b = b[:len(b)-1]
	}
	return b
}

// Names in addresses are base64url: they are arbitrary bytes.
func encodeName(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

func decodeName(text string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > protocol.MaxNameLen {
		return "", &badRequestError{"The address has no name that can be read. Follow a link from a list."}
	}
	return string(b), nil
}

// narrowBlank is a narrow blank at which no line ends.
const narrowBlank = "\u202f"

// group writes a number with its thousands apart.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	if len(s) <= 4 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteString(narrowBlank)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// bytesText is a number of bytes in its largest unit.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, units := float64(n), []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := -1
	for f >= unit && i < len(units)-1 {
		f, i = f/unit, i+1
	}
	if f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// age is a duration in its two largest units, as the script ticks it.
func age(d time.Duration) string {
	s := int64(max(d, 0) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm %02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh %02dm", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%dd %02dh", s/86400, s%86400/3600)
	}
}

// coarseAge is a duration in words, in its largest unit.
func coarseAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// durationText is a duration that does not tick.
func durationText(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return age(d)
}

// sentence makes a sentence of a message of the server: its first letter is upper case, and it ends
// with a stop.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	s = string(unicode.ToUpper(r)) + s[n:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// plural is a number with its noun.
func plural(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return group(n) + " " + noun + "s"
}

func trimFloat(f float64, digits int) string { return strconv.FormatFloat(f, 'f', digits, 64) }

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
