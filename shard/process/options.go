package process

import "github.com/signalbox-dev/signalbox/protocol"

// Election says which member coordinates a round.
type Election uint8

const (
	// ElectOldest takes the member that joined first: it stays coordinator as long as it is a
	// member.
	ElectOldest Election = 0
	// ElectLowest takes the member with the lowest session id. A member that joins may take over
	// from the present one.
	ElectLowest Election = 1
	// ElectPreferred takes the member with the highest weight; among equals the present
	// coordinator, then the oldest.
	ElectPreferred Election = 2
)

// String is the election's name: oldest, lowest-id, preferred.
func (e Election) String() string {
	switch e {
	case ElectOldest:
		return "oldest"
	case ElectLowest:
		return "lowest-id"
	case ElectPreferred:
		return "preferred"
	}
	return "unknown"
}

// Options of a process. The join that makes the process sets them; later joins leave them as they
// are; Alter changes them. Durations are ms of log time, at most MaxDuration.
type Options struct {
	Election Election
	// Debounce is how long after a change of the topology the next round starts. Changes meanwhile
	// join it and do not prolong it. Default 0: at the end of the log entry.
	Debounce uint64
	// RoundTimeout bounds a round until its outcome is decided; then it fails, and is tried again
	// after the back-off. It also bounds how long a decided round waits for members to confirm that
	// they completed it. Default 0: for ever.
	RoundTimeout uint64
	// BackoffMin and BackoffMax bound the wait before a failed round is tried again: the minimum,
	// doubled with each attempt. Defaults 50 and 5,000.
	BackoffMin, BackoffMax uint64
	// Return is how long a member with a key, whose session ended while no round was needed, keeps
	// its place. Default 0: it leaves at once.
	Return uint64
}

const (
	defaultBackoffMin = 50
	defaultBackoffMax = 5_000
)

// withDefaults puts defaults in place of zeroes, and checks.
func (o Options) withDefaults() (Options, error) {
	if o.BackoffMin == 0 {
		o.BackoffMin = defaultBackoffMin
	}
	if o.BackoffMax == 0 {
		o.BackoffMax = max(defaultBackoffMax, o.BackoffMin)
	}
	if o.Election > ElectPreferred {
		return o, protocol.Errorf(protocol.StatusBadRequest, "election %d is not known; use oldest, lowest-id or preferred", o.Election)
	}
	for _, d := range [...]struct {
		name  string
		value uint64
	}{
		{"debounce", o.Debounce}, {"round timeout", o.RoundTimeout}, {"least back-off", o.BackoffMin}, {"greatest back-off", o.BackoffMax},
		{"return", o.Return},
	} {
		if d.value > MaxDuration {
			return o, protocol.Errorf(protocol.StatusBadRequest, "%s is %d ms; at most %d are allowed", d.name, d.value, uint64(MaxDuration))
		}
	}
	if o.BackoffMin > o.BackoffMax {
		return o, protocol.Errorf(protocol.StatusBadRequest, "least back-off is %d ms, above the greatest, %d ms", o.BackoffMin, o.BackoffMax)
	}
	return o, nil
}

// backoff is the wait before the attempt, from 1.
func (o *Options) backoff(attempt uint64) uint64 {
	d := o.BackoffMin
	for i := uint64(1); i < attempt && d < o.BackoffMax; i++ {
		d *= 2
	}
	return min(d, o.BackoffMax)
}
