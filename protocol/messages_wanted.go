package protocol

// WantedMode says which owners a waiter may want units back from.
type WantedMode uint8

const (
	WantedOff    WantedMode = 0
	WantedHigher WantedMode = 1 // those with a lower level than the waiter's; PolicyPriority only
	WantedAny    WantedMode = 2 // all
)

// Bounds of the options of semaphores whose owners are asked to yield.
const (
	MaxWantedLimit = 4096 // of such a semaphore
	MinGrace       = 1000
	MaxGrace       = 24 * 60 * 60 * 1000 // ms
	MaxMinHold     = 24 * 60 * 60 * 1000 // ms
)

// wantedFields are the options of a semaphore that are about wanted owners.
func (m *SemaphoreOptions) wantedFields(f *fields) {
	enum(f, "options.wanted", &m.Wanted, "wanted", WantedOff, WantedAny, "0 (off), 1 (higher) or 2 (any)")
	f.uint("options.grace", &m.Grace)
	f.uint("options.min hold", &m.MinHold)
	if !f.checks() {
		return
	}
	if m.Grace != 0 && (m.Grace < MinGrace || m.Grace > MaxGrace) {
		f.refuse("grace is %d ms; it must be 0, for owners that are only told, or %d to %d ms", m.Grace, MinGrace, MaxGrace)
	}
	if m.MinHold > MaxMinHold {
		f.refuse("min_hold is %d ms; it must be 0 to %d ms", m.MinHold, MaxMinHold)
	}
}

// wantedFit is the part of Fit about wanted owners.
func (m *SemaphoreOptions) wantedFit(limit uint64) string {
	switch {
	case m.Wanted == WantedHigher && m.Policy != PolicyPriority:
		return "wanted higher belongs to the policy priority; choose that policy, or wanted any"
	case m.Wanted == WantedOff && m.Grace+m.MinHold != 0:
		return "grace and min_hold belong to wanted; leave them out, or choose whose owners are wanted"
	case m.Grace == 0 && m.MinHold != 0:
		return "min_hold belongs to a grace; leave it out, or give one"
	case m.Wanted != WantedOff && limit > MaxWantedLimit:
		return "wanted needs a limit of at most 4096; lower the limit"
	}
	return ""
}

// LeaseWanted tells an owner that a waiter wants its units back, or not any more. A client gets it if
// its hello has FeatureWanted. An event that is lost is made up for by Want in each answer about the
// lease.
//
// An owner that is wanted should finish and release. If Until is not 0, it is a bound: the client
// relies on the lease until then at most, as on the bound of a Grant, and when it has noted that, it
// says so by an acquire of the same with Known. Only then does the server end the lease at the bound.
// An owner that has not said so by then is silent: it keeps the lease, and gets the event again.
//
// News with a lower Now than the last are out of date. Only news with a higher Now than those that set
// a bound lift it.
type LeaseWanted struct {
	Session uint64
	Name    []byte
	OrderID uint64
	Want    uint64 // its number, which is another one each time that an owner becomes wanted
	Over    bool   // the owner is not wanted any more; the bound is that of the grant again
	Now     uint64 // ms, in the time of Grant.Now
	Until   uint64 // ms; 0: no bound
	By      uint64 // session that wants the units
}

func (m *LeaseWanted) fields(f *fields) {
	f.message("lease wanted")
	f.uint("session", &m.Session)
	f.bytes("name", &m.Name)
	f.uint("order id", &m.OrderID)
	f.uint("want", &m.Want)
	f.bool("over", &m.Over)
	f.uint("now", &m.Now)
	f.uint("until", &m.Until)
	f.uint("by", &m.By)
}

func (m *LeaseWanted) AppendBody(b []byte) []byte { f := encoder(b); m.fields(&f); return f.body() }
func (m *LeaseWanted) DecodeBody(b []byte) error  { f := decoder(b); m.fields(&f); return f.err() }
