package client

import "github.com/signalbox-dev/signalbox/protocol"

// PreemptMode says which owners of a semaphore waiters may preempt.
type PreemptMode uint8

// The modes.
const (
	PreemptOff   = PreemptMode(protocol.PreemptOff)
	PreemptLower = PreemptMode(protocol.PreemptLower) // owners with a lower Priority than the waiter's; PolicyPriority only
	PreemptAny   = PreemptMode(protocol.PreemptAny)   // all owners
)

var preemptModes = [...]string{PreemptOff: "off", PreemptLower: "lower", PreemptAny: "any"}

// String is for people: off, lower, any.
func (m PreemptMode) String() string {
	if int(m) < len(preemptModes) {
		return preemptModes[m]
	}
	return "unknown"
}

// Preempted is closed when a waiter preempts the lease, once: finish the work and release.
// Where the semaphore has a Grace, Until has changed, and the lease ends then. It stays closed if
// the waiter goes. See SemaphoreConfig.Preempt.
func (l *Lease) Preempted() <-chan struct{} { return l.d.Preempted() }

// PreemptedBy is the session that preempts the lease. 0: none does now, or it is not known.
func (l *Lease) PreemptedBy() uint64 { return l.d.PreemptedBy() }
