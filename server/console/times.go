package console

import "time"

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
