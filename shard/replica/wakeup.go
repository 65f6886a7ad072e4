package replica

// wakeup wakes a goroutine that waits for it, or keeps it from waiting next.
type wakeup chan struct{}

func newWakeup() wakeup { return make(chan struct{}, 1) }

// wake never blocks.
func (w wakeup) wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}
