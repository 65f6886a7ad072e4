package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Sanitize shows what a terminal must not interpret as Go escapes: control characters, invalid
// UTF-8, direction overrides.
func Sanitize(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}

// Age writes a duration in its two largest units. A negative one counts as 0, because the clocks of
// machines differ.
func Age(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%dm", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%dd%dh", s/86400, s%86400/3600)
	}
}

// Fit cuts a text to a width in columns, or fills it up. A text that is cut ends with an ellipsis.
func Fit(text string, width int) string {
	n := utf8.RuneCountInString(text)
	switch {
	case width <= 0:
		return ""
	case n > width && width == 1:
		return "…"
	case n > width:
		return string([]rune(text)[:width-1]) + "…"
	}
	return text + strings.Repeat(" ", width-n)
}

// FitRight is Fit with the blanks in front.
func FitRight(text string, width int) string {
	if n := utf8.RuneCountInString(text); n < width {
		return strings.Repeat(" ", width-n) + text
	}
	return Fit(text, width)
}

// FitLeft cuts the beginning of a text that is too long: the end of a path says more.
func FitLeft(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 1 {
		return text
	}
	return "…" + string(r[len(r)-width+1:])
}

// FitMiddle cuts the middle of a text that is too long, behind its first third: names often begin
// alike, and their ends tell them apart.
func FitMiddle(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 2 {
		return text
	}
	head := width / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}
