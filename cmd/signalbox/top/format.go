package top

import (
	"fmt"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// shortCount is a number in at most five characters.
func shortCount(n uint64) string {
	switch {
	case n == client.Max:
		return "max"
	case n < 10_000:
		return strconv.FormatUint(n, 10)
	}
	return ShortRate(float64(n))
}

// ShortRate is a number of something a second.
func ShortRate(f float64) string {
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

// ShortTime is a latency; 0 is none.
func ShortTime(d time.Duration) string {
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

// ShortWait is how long somebody waits.
func ShortWait(d time.Duration) string {
	if d < 10*time.Second {
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	}
	return terminal.Age(d)
}

// OldestWait is how long the first waiter waits, and its level: 3m12s p9. A ! says that it is
// stuck.
func OldestWait(s *admin.TopSemaphore) string {
	wait := "-"
	if s.Waiters > 0 {
		wait = ShortWait(s.OldestWait)
	}
	if s.Stuck {
		wait += "!"
	}
	if s.Priority != nil {
		wait += fmt.Sprint(" p", *s.Priority)
	}
	return wait
}
