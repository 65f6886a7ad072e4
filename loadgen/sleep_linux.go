// How does Linux sleep precisely?

package loadgen

import "golang.org/x/sys/unix"

// sleepFine blocks the thread for d nanoseconds, some 50 us late.
func sleepFine(d int64) {
	ts := unix.NsecToTimespec(d)
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early, and the caller sees that by the clock
}
