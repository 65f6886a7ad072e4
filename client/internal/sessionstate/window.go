package sessionstate

import "time"

// Shares of a session's timeout.
const (
	keepAliveShare = 4  // a keep-alive is sent every quarter of the timeout
	reattachShare  = 2  // a session that was not renewed for half of its timeout is attached again
	jumpShare      = 10 // after a jump of the clock, this tenth is left to be renewed
)

// clockDriftPercent is how far the rates of two machines' clocks may differ, in percent. The
// kernel's own limit on slewing is 0.05 %.
const clockDriftPercent = 1

// MinTimeout is the shortest session timeout: below it a keep-alive every quarter would be lost in
// the noise of a scheduler.
const MinTimeout = 100 * time.Millisecond

// MaxTimeout is the longest session timeout.
const MaxTimeout = 30 * time.Minute

// Window is how long a session with this timeout may be relied on after the sending time of its
// last renewal. The bound is 0.9 of the timeout; the window ends 0.05 earlier, so that work that
// depends on a lease has time to stop. With a long grace period the clocks' rates have longer to
// drift apart, and the window is at most timeout - 2 * drift * (timeout + grace).
func Window(timeout, grace time.Duration) time.Duration {
	return min(timeout*85/100, timeout-(timeout+grace)*(2*clockDriftPercent)/100)
}

// KeepAlive is how often a connection must send a ping for a session with this timeout.
func KeepAlive(timeout time.Duration) time.Duration { return timeout / keepAliveShare }

// Enlarge is the timeout to ask for: the wanted one, or the shortest one whose window is at least
// half of it. With the default grace period of 10 s that is 417 ms.
func Enlarge(timeout, grace time.Duration) time.Duration {
	// timeout - 0.02 * (timeout + grace) >= timeout / 2, solved for timeout and rounded up to a
	// millisecond.
	const step = time.Millisecond
	least := (grace*(2*clockDriftPercent)/(50-2*clockDriftPercent) + step - 1) / step * step
	return max(timeout, least)
}
