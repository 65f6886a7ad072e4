package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

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

// Preempt says which owners waiters may preempt: as few owners as the first waiter needs and they
// can serve, those of the lowest priority first with PreemptLower, those of the newest grants first
// with PreemptAny. Lease.Preempted tells them. The limit must be at most 4,096. Default:
// PreemptOff.
func Preempt(mode PreemptMode) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterPreempt
		x.Options.Preempt = protocol.PreemptMode(mode)
	})
}

// Grace is how long a preempted owner has to yield: 0, the default, for owners that are only told,
// or 1 s to 1 day. Then its lease ends by itself, see Lease.Until and ErrPreempted. An owner whose
// client does not say that it knows that, because it is cut off for example, keeps its lease: it is
// told again, is the last to be chosen, and shows as silent in descriptions and metrics. It goes
// with Preempt.
func Grace(d time.Duration) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterGrace
		x.Options.Grace = millis.Of("grace", d, &x.err)
	})
}

// MinHold is how long an owner holds its units at least before its Grace begins: 0, the default, to
// 1 day. It goes with Grace.
func MinHold(d time.Duration) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterMinHold
		x.Options.MinHold = millis.Of("least hold", d, &x.err)
	})
}

// Preempted is closed when a waiter preempts the lease, once: finish the work and release.
// Where the semaphore has a Grace, Until has changed, and the lease ends then. It stays closed if
// the waiter goes. See the option Preempt.
func (l *Lease) Preempted() <-chan struct{} { return l.d.Preempted() }

// PreemptedBy is the session that preempts the lease. 0: none does now, or it is not known.
func (l *Lease) PreemptedBy() uint64 { return l.d.PreemptedBy() }

// setPreempt adds the options of a description about preemption.
func (o *SemaphoreOptions) setPreempt(m *protocol.SemaphoreOptions) {
	o.Preempt, o.Grace, o.MinHold = PreemptMode(m.Preempt), millis.Duration(m.Grace), millis.Duration(m.MinHold)
}
