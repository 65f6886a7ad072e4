// Package wakeup wakes goroutines that wait for work.
package wakeup

// Wakeup wakes a goroutine that waits for it, or keeps it from waiting next.
type Wakeup chan struct{}

// New returns one that nobody has used.
func New() Wakeup { return make(chan struct{}, 1) }

// Wake never blocks.
func (w Wakeup) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
