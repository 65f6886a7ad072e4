//go:build !linux

package port

// lock has no means here that leaves nothing behind: two processes may get one port.
func lock(int) bool { return true }
