package console

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
