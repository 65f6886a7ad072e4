package process

import "github.com/signalbox-dev/signalbox/protocol"

const (
	defaultBackoffMin = 50
	defaultBackoffMax = 5_000
)

// withDefaults checks options and puts defaults in place of zeroes.
func withDefaults(o protocol.ProcessOptions) (protocol.ProcessOptions, error) {
	if o.BackoffMin == 0 {
		o.BackoffMin = defaultBackoffMin
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = max(defaultBackoffMax, o.BackoffMin)
	}
	return o, o.Validate()
}

// backoff is the wait before the attempt, from 1.
func backoff(o *protocol.ProcessOptions, attempt uint64) uint64 {
	d := o.BackoffMin
	for i := uint64(1); i < attempt && d < o.BackoffMax; i++ {
		d *= 2
	}
	return min(d, o.BackoffMax)
}
