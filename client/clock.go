package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// clock is the time leases are judged by.
type clock interface {
	// now is a monotonic time since an arbitrary start, above zero. It goes on while the machine
	// sleeps where the system can tell.
	now() time.Duration
	// wall is the time of day: a jump of it forward against now is a hint that the machine slept in
	// a way now cannot see. It is used for nothing else.
	wall() time.Time
}

type systemClock struct{}

func (systemClock) now() time.Duration { return boottime.Now() }
func (systemClock) wall() time.Time    { return time.Now() }
