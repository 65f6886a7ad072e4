package queue

import "github.com/signalbox-dev/signalbox/protocol"

// Regrant is an owner's repeated acquire: the grant that it would have, and the slots that it would
// return.
type Regrant struct {
	token   uint64
	was, is *Grant
	given   []uint32
	ask     Demand
}

// RegrantOf looks at an owner that asks for count units with these options; a nil queue is a plain
// semaphore's. ok is false if it asks for other slots than it has.
func RegrantOf(q *Queue, token, count uint64, o *protocol.AcquireOptions) (r Regrant, ok bool) {
	r = Regrant{token: token, was: q.Grant(token), ask: DemandOf(o)}
	r.is = &Grant{Demand: r.ask.held()}
	if r.was == nil {
		return r, true
	}
	if len(r.was.Slots) > 0 {
		if r.is.Slots, r.given, ok = q.slots.split(r.was.Slots, r.ask.Selector, count); !ok {
			return r, false
		}
	}
	r.is.preemption = r.was.preemption
	if o != nil {
		r.is.says(o.Known)
	}
	return r, true
}

// IsPlain reports whether the owner is and stays a plain one.
func (r *Regrant) IsPlain() bool { return r.was == nil && r.is.isPlain() }

// Bytes returns the bytes that the owner counts after the regrant, and now.
func (r *Regrant) Bytes() (is, was uint64) {
	if !r.is.isPlain() {
		is = r.is.bytes()
	}
	return is, r.was.bytes()
}

// Changes reports whether the owner's level or key changes, as others see it.
func (r *Regrant) Changes() bool {
	was := plainDemand
	if r.was != nil {
		was = r.was.Demand
	}
	return was != r.is.Demand
}

// Apply carries it out, and extends the hold that has a bound if the owner asked for it.
func (r *Regrant) Apply(q *Queue, e Entries, now uint64) {
	if r.was != nil && r.was.Expires != 0 {
		r.is.Expires = extended(r.was.Expires, r.ask.Hold, q.options.MaxHold, now)
	}
	q.setGrant(r.token, r.is)
	if len(r.given) > 0 {
		q.free(e, r.given)
	}
}

// extended returns the bound of an owner that asks for hold ms more, 0 for no more.
func extended(until, hold, longest, now uint64) uint64 {
	if hold == 0 {
		return until
	}
	if longest != 0 {
		hold = min(hold, longest)
	}
	return max(until, addSaturated(now, hold))
}
