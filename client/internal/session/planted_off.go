//go:build !planted

package session

// Faults that builds with the planted tag can switch on, to see who finds them (server/sim). Here they are false, and leave nothing in the code.
const (
	plantWholeTimeout = false // R6: a client believes for the whole timeout
)
