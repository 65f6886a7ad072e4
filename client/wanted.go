package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// WantedMode says which owners of a semaphore a waiter may want units back from.
type WantedMode uint8

// The modes.
const (
	WantedOff    = WantedMode(protocol.WantedOff)
	WantedHigher = WantedMode(protocol.WantedHigher) // owners with a lower Priority than the waiter's; PolicyPriority only
	WantedAny    = WantedMode(protocol.WantedAny)    // all owners
)

var wantedModes = [...]string{WantedOff: "off", WantedHigher: "higher", WantedAny: "any"}

// String is for people: off, higher, any.
func (m WantedMode) String() string {
	if int(m) < len(wantedModes) {
		return wantedModes[m]
	}
	return "unknown"
}

// Wanted has owners learn that a waiter wants their units back: as few owners as the first waiter
// needs that they can serve, of the lowest priority first with WantedHigher, and of the newest grants
// else. Lease.Wanted tells them. The limit must be at most 4,096. Default: WantedOff.
func Wanted(mode WantedMode) SemaphoreOption {
	return func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterWanted
		x.Options.Wanted = protocol.WantedMode(mode)
	}
}

// Grace is how long a wanted owner has to yield: 0, the default, for owners that are only told, or 1 s
// to 1 day. Then its lease ends by itself, see Lease.Until and ErrYielded. An owner whose client does
// not say that it knows that, because it is cut off for example, keeps its lease: it is told again,
// is the last to be chosen, and shows as silent in descriptions and metrics. It goes with Wanted.
func Grace(d time.Duration) SemaphoreOption {
	return func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterGrace
		x.Options.Grace = uint64(max(d, 0) / time.Millisecond)
	}
}

// MinHold is how long an owner holds its units at least before its Grace begins: 0, the default, to
// 1 day. It goes with Grace.
func MinHold(d time.Duration) SemaphoreOption {
	return func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterMinHold
		x.Options.MinHold = uint64(max(d, 0) / time.Millisecond)
	}
}

// Wanted is closed when a waiter wants the lease's units back, once: finish the work and release.
// Where the semaphore has a Grace, Until has changed, and the lease ends then. It stays closed if the
// waiter goes. See the option Wanted.
func (l *Lease) Wanted() <-chan struct{} { return l.d.Wanted() }

// WantedBy is the session that wants the lease's units back. 0: nobody does now, or it is not known.
func (l *Lease) WantedBy() uint64 { return l.d.WantedBy() }

// setWanted adds the options of a description that are about wanted owners.
func (o *SemaphoreOptions) setWanted(m *protocol.SemaphoreOptions) {
	o.Wanted, o.Grace, o.MinHold = WantedMode(m.Wanted), millis.Duration(m.Grace), millis.Duration(m.MinHold)
}
