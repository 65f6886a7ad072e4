// Package timerslack sets how late the kernel may wake the threads of a server. Go's runtime has a
// monitor thread that sleeps for 20 us at a time, and other threads sleep for 3 us before they take
// a goroutine from each other. On Linux each such sleep may be longer by the thread's timer slack,
// 50 us by default. [DelayMonitor] gives the monitor more, and [Exact] other threads none.
//
// Elsewhere both do nothing. DESIGN.md has the reasons and the figures.
package timerslack
