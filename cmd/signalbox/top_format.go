package main

import (
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// fitLeft cuts the beginning of a text that is too long: the end of a path says more.
func fitLeft(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 1 {
		return text
	}
	return "…" + string(r[len(r)-width+1:])
}

// fitMiddle cuts the middle of a text that is too long, behind its first third: names often begin
// alike, and their ends tell them apart.
func fitMiddle(text string, width int) string {
	r := []rune(text)
	if len(r) <= width || width < 2 {
		return text
	}
	head := width / 3
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// shortCount is a number in at most five characters.
func shortCount(n uint64) string {
	switch {
	case n == client.Max:
		return "max"
	case n < 10_000:
		return strconv.FormatUint(n, 10)
	}
	return shortRate(float64(n))
}

// shortRate is a number of something a second.
func shortRate(f float64) string {
	switch {
	case f < 0.05:
		return "0"
	case f < 9.95:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case f < 9_999.5:
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	for _, unit := range "kMGTPE" {
		if f /= 1000; f < 99.95 {
			return strconv.FormatFloat(f, 'f', 1, 64) + string(unit)
		} else if f < 999.5 {
			return strconv.FormatFloat(f, 'f', 0, 64) + string(unit)
		}
	}
	return "many"
}

// shortTime is a latency; 0 is none.
func shortTime(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + "µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(d.Seconds()*1000, 'f', 1, 64) + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

// shortWait is how long somebody waits.
func shortWait(d time.Duration) string {
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return age(d)
}
