package protocol

// PreemptMode is the set of owners that waiters may preempt.
type PreemptMode uint8

const (
	PreemptOff   PreemptMode = 0
	PreemptLower PreemptMode = 1 // those with a lower level than the waiter's; PolicyPriority only
	PreemptAny   PreemptMode = 2 // all
)

// Bounds of the options of semaphores whose owners may be preempted.
const (
	MaxPreemptLimit = 4096 // of such a semaphore
	MinGrace        = 1000
	MaxGrace        = 24 * 60 * 60 * 1000 // ms
	MaxMinHold      = 24 * 60 * 60 * 1000 // ms
)

// preemptFields are the options of a semaphore about preemption.
func (m *SemaphoreOptions) preemptFields(f *fields) {
	enum(f, "options.preempt", &m.Preempt, "preempt", PreemptOff, PreemptAny, "0 (off), 1 (lower) or 2 (any)")
	f.uint("options.grace", &m.Grace)
	f.uint("options.min hold", &m.MinHold)
	if !f.checks() {
		return
	}
	if m.Grace != 0 && (m.Grace < MinGrace || m.Grace > MaxGrace) {
		f.refuse("grace is %d ms; it must be 0, for owners that are only told, or %d to %d ms", m.Grace, MinGrace,
			MaxGrace)
	}
	if m.MinHold > MaxMinHold {
		f.refuse("min_hold is %d ms; it must be 0 to %d ms", m.MinHold, MaxMinHold)
	}
}

// preemptFit is the part of Fit about preemption.
func (m *SemaphoreOptions) preemptFit(limit uint64) string {
	switch {
	case m.Preempt == PreemptLower && m.Policy != PolicyPriority:
		return "preempt lower belongs to the policy priority; choose that policy, or preempt any"
	case m.Preempt == PreemptOff && m.Grace+m.MinHold != 0:
		return "grace and min_hold belong to preempt; leave them out, or choose which owners waiters may preempt"
	case m.Grace == 0 && m.MinHold != 0:
		return "min_hold belongs to a grace; leave it out, or give one"
	case m.Preempt != PreemptOff && limit > MaxPreemptLimit:
		return "preempt needs a limit of at most 4096; lower the limit"
	}
	return ""
}

// LeasePreempted notifies an owner that a waiter preempts it, or no longer does. A client that does
// not know this kind ignores it. Preemption in each answer about the lease makes up for a lost
// event.
//
// An owner that is preempted should finish and release. If Until is not 0, it is a bound: the
// client relies on the lease until then at most, as on the bound of a Grant. When it has noted
// that, it confirms by an acquire of the same with Known. Only then does the server end the lease
// at the bound. An owner that has not confirmed by then is silent: it keeps the lease, and gets the
// event again.
//
// Events with a lower Now than the last are out of date. Only events with a higher Now than those
// that set a bound lift it.
type LeasePreempted struct {
	Session    uint64
	Name       []byte
	OrderID    uint64
	Preemption uint64 // its number, which is another one each time that an owner is preempted
	Over       bool   // the owner is not preempted any more; the bound is that of the grant again
	Now        uint64 // ms, in the time of Grant.Now
	Until      uint64 // ms; 0: no bound
	By         uint64 // session of the waiter
}

func (m *LeasePreempted) fields(f *fields) {
	f.message("lease preempted")
	f.uint("session", &m.Session)
	f.bytes("name", &m.Name)
	f.uint("order id", &m.OrderID)
	f.uint("preemption", &m.Preemption)
	f.bool("over", &m.Over)
	f.uint("now", &m.Now)
	f.uint("until", &m.Until)
	f.uint("by", &m.By)
}
