//go:build !linux

package timerslack

// DelayMonitor does nothing here.
func DelayMonitor() {}

// Exact does nothing here.
func Exact() {}
