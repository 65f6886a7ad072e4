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

// Short is a duration as a status has it: none is nothing.
func Short(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return Age(d)
}

// Cut cuts a text to a width in columns. One that is cut ends with an ellipsis.
func Cut(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return text
}
