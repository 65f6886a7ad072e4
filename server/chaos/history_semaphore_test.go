package chaos

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// semaphore is the state of one: strict first come, first served. The head of the queue is granted
// in the step in which it fits.
//
// Invariants: the owners' counts together are at most limit, unless it was lowered. The head of the
// queue does not fit. Order ids rise from the first owner to the last waiter, and are at most last.
// A session has one entry. An ephemeral semaphore exists exactly when it has entries. last outlives
// deletion.
type semaphore struct {
	exists, ephemeral bool
	limit             uint64
	last              uint64         // the highest order id known to have been given out
	owners, queue     []historyEntry // never changed in place: states share them
}

func (s *semaphore) equal(o *semaphore) bool {
	return s.exists == o.exists && s.ephemeral == o.ephemeral && s.limit == o.limit && s.last == o.last &&
		slices.Equal(s.owners, o.owners) && slices.Equal(s.queue, o.queue)
}

func (s *semaphore) hash() uint64 {
	h := s.last*31 + s.limit
	for _, list := range [][]historyEntry{s.owners, s.queue} {
		for _, e := range list {
			h = (h ^ e.Session ^ e.Order<<20 ^ e.Count<<40) * 0x100000001b3
		}
		h = h*31 + 7
	}
	return h
}

func (s *semaphore) String() string {
	if !s.exists {
		return fmt.Sprintf("none, last %d", s.last)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "limit %s, last %d", unitsText(s.limit), s.last)
	for i, list := range [][]historyEntry{s.owners, s.queue} {
		for _, e := range list {
			fmt.Fprintf(&b, "; %s %s", []string{"held by", "wanted by"}[i], e)
		}
	}
	return b.String()
}

func (e historyEntry) String() string {
	return fmt.Sprintf("%s (%s, order %d)", sessionName(e.Session), unitsText(e.Count), e.Order)
}

func unitsText(n uint64) string {
	if n == math.MaxUint64 {
		return "all"
	}
	return fmt.Sprint(n)
}

func sessionName(id uint64) string { return fmt.Sprintf("s%d", id) }

func (s *semaphore) used() (n uint64) {
	for _, e := range s.owners {
		n += e.Count // an ephemeral semaphore's units are all or few: no sum overflows
	}
	return n
}

// fits reports whether a waiter of this count would be granted.
func (s *semaphore) fits(count uint64) bool {
	used := s.used()
	return used <= s.limit && count <= s.limit-used
}

// grantWaiters grants from the head of the queue what fits, and drops an ephemeral semaphore
// without entries. The state is the caller's own.
func (s *semaphore) grantWaiters() {
	for len(s.queue) > 0 && s.fits(s.queue[0].Count) {
		s.owners = append(slices.Clone(s.owners), s.queue[0])
		s.queue = s.queue[1:]
	}
	if s.ephemeral && len(s.owners)+len(s.queue) == 0 {
		*s = semaphore{last: s.last}
	}
}

func entryOf(list []historyEntry, session uint64) int {
	return slices.IndexFunc(list, func(e historyEntry) bool { return e.Session == session })
}

func without(list []historyEntry, i int) []historyEntry {
	return slices.Delete(slices.Clone(list), i, i+1)
}

// The steps that calls on semaphores are made of. An acquire is two: it enters, and later it is
// granted or gives up.
type stepKind uint8

const (
	stepCreate     stepKind = iota // Create
	stepDelete                     // Delete
	stepResize                     // Resize
	stepEnqueue                    // an acquire arrives
	stepGrant                      // the caller learns that it is an owner
	stepGiveUp                     // the wait ends
	stepTryFails                   // a try that cannot be granted
	stepNotFound                   // an acquire of a semaphore that does not exist
	stepReduce                     // Reduce
	stepRelease                    // Release
	stepSessionEnd                 // Ended
	stepDescribe                   // Describe
)

// step is what porcupine orders.
type step struct {
	kind   stepKind
	op     *historyOp
	order  uint64 // stepEnqueue: the order id; 0: not reported
	maybe  bool   // it may not happen at all
	strict bool   // stepGiveUp: it was in the queue for certain
}

// singleSteps are the ops that are one step.
var singleSteps = map[callKind]stepKind{
	callCreate: stepCreate, callDelete: stepDelete, callResize: stepResize, callReduce: stepReduce, callRelease: stepRelease,
	callDescribe: stepDescribe, callEnded: stepSessionEnd,
}

// stepsOf splits an op into steps, each with the time in which it must have happened.
func stepsOf(op *historyOp) []porcupine.Operation {
	part := func(k stepKind, from, to int64) porcupine.Operation {
		return porcupine.Operation{ClientId: op.Lane,
			Input: &step{kind: k, op: op, maybe: op.Result == resultUnknown}, Call: from, Return: to}
	}
	one := func(k stepKind) []porcupine.Operation { return []porcupine.Operation{part(k, op.Call, op.Return)} }
	if k, single := singleSteps[op.Kind]; single {
		list := one(k)
		if k == stepSessionEnd {
			list[0].Input.(*step).maybe = false // a session that is left at the end may go
		}
		return list
	}
	// An acquire.
	switch {
	case op.Result == resultNotFound:
		return one(stepNotFound)
	case op.Result == resultNotAcquired && op.Try:
		return one(stepTryFails)
	}
	in := part(stepEnqueue, op.Call, op.Return)
	enter := in.Input.(*step)
	enter.order = max(op.Token, op.Order)
	if op.Queued != 0 {
		in.Return, enter.maybe = op.Queued, false
	}
	switch op.Result {
	case resultOK:
		return []porcupine.Operation{in, part(stepGrant, max(op.Call, op.Queued), op.Return)}
	case resultNotAcquired:
		// The wait may have ended before the caller learned of its beginning: the report may have
		// waited for a reader, or been lost and repeated.
		out := part(stepGiveUp, op.Call, op.Return)
		out.Input.(*step).strict = op.Queued != 0
		// If no queueing was reported, the request may have been answered from what the server
		// remembers of it.
		enter.maybe = op.Queued == 0
		return []porcupine.Operation{in, out}
	}
	return []porcupine.Operation{in}
}

// next returns the states after a step; none: it cannot happen.
func (s *semaphore) next(st *step) []*semaphore {
	after, ok := s.apply(st)
	switch {
	case st.maybe && ok:
		return []*semaphore{s, after}
	case st.maybe:
		return []*semaphore{s}
	case ok:
		return []*semaphore{after}
	}
	return nil
}

// apply is the step's effect with the op's outcome. An unknown outcome counts as success.
func (s *semaphore) apply(st *step) (*semaphore, bool) {
	n, op := *s, st.op
	switch st.kind {
	case stepCreate:
		if op.Result == resultExists {
			return s, s.exists
		}
		n.exists, n.limit = true, op.Limit
		return &n, !s.exists
	case stepDelete:
		empty := len(s.owners)+len(s.queue) == 0
		switch op.Result {
		case resultNotFound:
			return s, !s.exists
		case resultRefused:
			return s, s.exists && !empty
		}
		return &semaphore{last: s.last}, s.exists && empty
	case stepResize:
		if op.Result == resultNotFound {
			return s, !s.exists
		}
		n.limit = op.Limit
		n.grantWaiters()
		return &n, s.exists
	case stepEnqueue:
		if !s.exists {
			if !op.Ephemeral {
				return s, false
			}
			n.exists, n.ephemeral, n.limit = true, true, math.MaxUint64
		}
		if entryOf(s.owners, op.Session) >= 0 || entryOf(s.queue, op.Session) >= 0 || st.order != 0 && st.order <= s.last {
			return s, false
		}
		if op.Try && (len(s.queue) > 0 || !n.fits(op.Count)) {
			return s, false
		}
		n.last = max(s.last, st.order)
		n.queue = append(slices.Clone(s.queue), historyEntry{Session: op.Session, Count: op.Count, Order: st.order})
		n.grantWaiters()
		return &n, true
	case stepGrant:
		i := entryOf(s.owners, op.Session)
		return s, i >= 0 && s.owners[i].Order == op.Token && s.owners[i].Count == op.Count
	case stepGiveUp:
		i := entryOf(s.queue, op.Session)
		if i < 0 {
			return s, !st.strict && entryOf(s.owners, op.Session) < 0
		}
		n.queue = without(s.queue, i)
		n.grantWaiters()
		return &n, true
	case stepTryFails:
		return s, s.exists && (len(s.queue) > 0 || !s.fits(op.Count))
	case stepNotFound:
		return s, !s.exists
	case stepReduce:
		i := entryOf(s.owners, op.Session)
		if i < 0 || s.owners[i].Order != op.Token || s.owners[i].Count < op.Count {
			return s, false
		}
		n.owners = slices.Clone(s.owners)
		n.owners[i].Count = op.Count
		n.grantWaiters()
		return &n, true
	case stepRelease:
		i := entryOf(s.owners, op.Session)
		if i < 0 || s.owners[i].Order != op.Token {
			return s, false
		}
		n.owners = without(s.owners, i)
		n.grantWaiters()
		return &n, true
	case stepSessionEnd:
		if i := entryOf(s.owners, op.Session); i >= 0 {
			n.owners = without(s.owners, i)
		} else if i := entryOf(s.queue, op.Session); i >= 0 {
			n.queue = without(s.queue, i)
		}
		n.grantWaiters()
		return &n, true
	case stepDescribe:
		if op.Result == resultNotFound {
			return s, !s.exists
		}
		return s, s.exists && op.Limit == s.limit && sameEntries(s.owners, op.Owners) && sameEntries(s.queue, op.Waiters)
	}
	return s, false
}

// sameEntries reports whether what was seen is what is there; an order id that nobody was told may
// be any.
func sameEntries(there, seen []historyEntry) bool {
	return slices.EqualFunc(there, seen, func(a, b historyEntry) bool {
		return a.Session == b.Session && a.Count == b.Count && (a.Order == b.Order || a.Order == 0)
	})
}

var semaphoreModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{&semaphore{}} },
	Step: func(state, input, _ any) []any {
		next := state.(*semaphore).next(input.(*step))
		out := make([]any, len(next))
		for i, n := range next {
			out[i] = n
		}
		return out
	},
	Equal:             func(a, b any) bool { return a.(*semaphore).equal(b.(*semaphore)) },
	Hash:              func(a any) uint64 { return a.(*semaphore).hash() },
	DescribeOperation: func(input, _ any) string { return input.(*step).String() },
	DescribeState:     func(a any) string { return a.(*semaphore).String() },
}

func (st *step) String() string {
	op := st.op
	text := ""
	switch st.kind {
	case stepCreate:
		text = fmt.Sprintf("create limit %d", op.Limit)
	case stepDelete:
		text = "delete"
	case stepResize:
		text = fmt.Sprintf("resize to %d", op.Limit)
	case stepEnqueue:
		text = fmt.Sprintf("%s acquires %s", sessionName(op.Session), unitsText(op.Count))
		if st.order != 0 {
			return fmt.Sprintf("%s: place %d", text, st.order)
		}
		if st.maybe {
			return text + "?"
		}
		return text
	case stepGrant:
		return fmt.Sprintf("%s holds with token %d", sessionName(op.Session), op.Token)
	case stepGiveUp:
		return sessionName(op.Session) + " gives up"
	case stepTryFails, stepNotFound:
		text = fmt.Sprintf("%s tries %s", sessionName(op.Session), unitsText(op.Count))
	case stepReduce:
		text = fmt.Sprintf("%s lowers %d to %s", sessionName(op.Session), op.Token, unitsText(op.Count))
	case stepRelease:
		text = fmt.Sprintf("%s releases %d", sessionName(op.Session), op.Token)
	case stepSessionEnd:
		return sessionName(op.Session) + " is gone"
	case stepDescribe:
		text = "describe"
		if op.Result == resultOK {
			return (&semaphore{exists: true, limit: op.Limit, owners: op.Owners, queue: op.Waiters}).String()
		}
	}
	return text + ": " + string(op.Result)
}
