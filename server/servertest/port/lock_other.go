//go:build !linux

package port

// claim has no means here that leaves nothing behind: two processes may be given one port.
func claim(int) bool { return true }
