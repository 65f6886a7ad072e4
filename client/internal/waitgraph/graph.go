// Package waitgraph finds deadlocks among sessions that wait for semaphores.
//
// It is pure: a Graph is what was read, and its methods say what follows from that. A read that is
// cut short, or that leaves sessions and semaphores out, never makes a deadlock out of none: what is
// not known counts as able to go on.
package waitgraph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Semaphore is a semaphore with the owners and waiters that were read, the waiters of a lane by
// place and without gaps from its first one.
type Semaphore struct {
	Name    string
	Limit   uint64
	Policy  protocol.QueuePolicy
	Aging   bool   // PolicyPriority: waiting counts
	Slots   []Slot // by index; none where units have no names
	Owners  []Owner
	Waiters []Waiter
}

// Slot is a unit with a name.
type Slot struct {
	Name    string
	Labels  []string
	Session uint64 // that has it; 0: none
	Leaving bool   // gone when it is given back
}

// Owner holds units.
type Owner struct {
	Session, Token, Count uint64
	Slots                 []string
}

// Waiter waits for units.
type Waiter struct {
	Session, Place, Count uint64
	Level                 int
	Key                   string
	Labels, Names         []string // of the slots that it takes
	Rank                  int      // as in descriptions; 0: none
}

// Graph is what was read. A session is in Waits only if all semaphores that it waits for were read,
// and are in Semaphores.
type Graph struct {
	Semaphores map[string]*Semaphore
	Waits      map[uint64][]string // of sessions, by name
	Children   map[uint64][]uint64 // of sessions: those that a command of theirs started, by id
	Order      []uint64            // the sessions, in the order in which they were read
}

// Deadlocked is the deadlock set: the largest set of waiting sessions each of which is stuck at
// every wait as long as the others of the set give nothing back. It is in order of session ids.
//
// A session is one thread of work, which gives nothing back while it waits, and before its children
// have ended: it is stuck while one of them is. A waiter that could not be granted if nobody held
// anything waits for an operator, and is not deadlocked.
func (g *Graph) Deadlocked() []uint64 {
	set, queued := make(map[uint64]bool), make(map[uint64]bool)
	for session, names := range g.Waits {
		queued[session] = len(names) > 0
		set[session] = queued[session] || len(g.Children[session]) > 0
	}
	g.reduce(set, queued)
	maps.DeleteFunc(set, func(_ uint64, in bool) bool { return !in })
	return slices.Sorted(maps.Keys(set))
}

// reduce takes out of a set the sessions that can go on, and out of those that are queued for ever,
// which give up no place, the ones that are granted something.
func (g *Graph) reduce(set, queued map[uint64]bool) {
	for changed := true; changed; {
		changed = false
		for session := range set {
			goesOn := func(name string) bool { return !g.stuck(name, session, set, queued) }
			if queued[session] && slices.ContainsFunc(g.Waits[session], goesOn) {
				queued[session], changed = false, true
			}
			if set[session] && !queued[session] && !slices.ContainsFunc(g.Children[session], func(c uint64) bool {
				return set[c]
			}) {
				set[session], changed = false, true
			}
		}
	}
}

// Core is the deadlock set without those that block none of it: sessions that only wait behind it.
// The others are a deadlock by themselves.
func (g *Graph) Core() []uint64 {
	set := g.Deadlocked()
	for {
		blocks := make(map[uint64]bool)
		for _, session := range set {
			for _, name := range g.Waits[session] {
				for _, b := range g.Blockers(name, session, set) {
					blocks[b.Session] = true
				}
			}
			for _, child := range g.Children[session] {
				if slices.Contains(set, child) {
					blocks[child] = true
				}
			}
		}
		if len(blocks) == len(set) {
			return set
		}
		set = slices.DeleteFunc(set, func(session uint64) bool { return !blocks[session] })
	}
}

// stuck reports whether a wait cannot end while the sessions of a set give nothing back, and those
// that are queued wait.
func (g *Graph) stuck(name string, session uint64, set, queued map[uint64]bool) bool {
	s := g.Semaphores[name]
	if s == nil {
		return false
	}
	w := s.waiter(session)
	if w == nil || w.Count > s.Limit {
		return false
	}
	held := uint64(0)
	for _, o := range s.Owners {
		if set[o.Session] {
			held += min(o.Count, s.Limit-min(held, s.Limit)) // of a count without end too
		}
	}
	if s.Limit-held < w.Count {
		return true
	}
	if len(s.Slots) == 0 {
		return slices.ContainsFunc(s.Waiters, func(x Waiter) bool { return queued[x.Session] && s.Ahead(&x, w) })
	}
	admitted, left := uint64(0), uint64(0)
	for i := range s.Slots {
		slot := &s.Slots[i]
		if slot.Leaving || !w.admits(slot) {
			continue
		}
		admitted++
		claimed := func(x Waiter) bool { return queued[x.Session] && x.admits(slot) && s.Ahead(&x, w) }
		if !set[slot.Session] && !slices.ContainsFunc(s.Waiters, claimed) {
			left++
		}
	}
	return admitted >= w.Count && left < w.Count
}

func (s *Semaphore) waiter(session uint64) *Waiter {
	if i := slices.IndexFunc(s.Waiters, func(w Waiter) bool { return w.Session == session }); i >= 0 {
		return &s.Waiters[i]
	}
	return nil
}

// admits reports whether a waiter takes a slot.
func (w *Waiter) admits(slot *Slot) bool {
	if len(w.Names) > 0 {
		return slices.Contains(w.Names, slot.Name)
	}
	return !slices.ContainsFunc(w.Labels, func(label string) bool { return !slices.Contains(slot.Labels, label) })
}

// Ahead reports whether a waiter is served before another one for as long as both wait, whatever
// other sessions do. false may mean that the policy's order is not known, or may change.
func (s *Semaphore) Ahead(x, w *Waiter) bool {
	earlier := x.Place < w.Place
	before := x.Rank > 0 && (w.Rank == 0 || x.Rank < w.Rank)
	switch {
	case s.Policy == protocol.PolicyFIFO:
		return earlier
	case s.Policy == protocol.PolicyPriority && !s.Aging:
		return x.Level > w.Level || x.Level == w.Level && earlier
	case s.Policy == protocol.PolicyPriority:
		return x.Level >= w.Level && earlier || before
	case s.Policy != protocol.PolicyFair:
		return false // a policy that this program does not know
	case sameLane(x, w):
		return earlier
	case len(s.Slots) > 0:
		return false // a key's other lanes move its tags
	default:
		// Tags of lanes' first waiters stay. Of equal tags, which key was granted last decides, and
		// then the place.
		return before && earlier && s.isFirst(x) && s.isFirst(w)
	}
}

// sameLane reports whether two waiters of policy fair stand in one lane.
func sameLane(x, w *Waiter) bool {
	return x.Key == w.Key && equalSets(x.Labels, w.Labels) && equalSets(x.Names, w.Names)
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// isFirst reports whether a waiter is the first of its lane.
func (s *Semaphore) isFirst(w *Waiter) bool {
	return !slices.ContainsFunc(s.Waiters, func(x Waiter) bool { return x.Place < w.Place && sameLane(&x, w) })
}

// Blocker is a session that a wait waits for.
type Blocker struct {
	Session uint64
	Holds   bool   // it holds units that the waiter could use; else it is ahead in the queue
	ID      uint64 // the token of what it holds, or its place in the queue
}

// Blockers are the sessions that a wait waits for: owners by token, then waiters ahead by place. With
// a set these are its members, else all.
func (g *Graph) Blockers(name string, session uint64, set []uint64) (list []Blocker) {
	s := g.Semaphores[name]
	if s == nil || s.waiter(session) == nil {
		return nil
	}
	w := s.waiter(session)
	in := func(session uint64) bool { return set == nil || slices.Contains(set, session) }
	for _, o := range s.Owners {
		if o.Session != session && in(o.Session) && (len(s.Slots) == 0 || s.usesSlotOf(w, o.Session)) {
			list = append(list, Blocker{o.Session, true, o.Token})
		}
	}
	ahead := make([]Blocker, 0, len(s.Waiters))
	for i := range s.Waiters {
		x := &s.Waiters[i]
		if x != w && in(x.Session) && s.Ahead(x, w) && (len(s.Slots) == 0 || s.sharesSlot(x, w)) {
			ahead = append(ahead, Blocker{x.Session, false, x.Place})
		}
	}
	slices.SortFunc(ahead, func(a, b Blocker) int { return cmp.Compare(a.ID, b.ID) })
	return append(list, ahead...)
}

// Path is a deadlock set in the order in which its sessions block each other, from the first of some
// sessions that is in it: a cycle comes first.
func (g *Graph) Path(from, set []uint64) (path []uint64) {
	first := slices.Concat(slices.DeleteFunc(slices.Clone(from), func(s uint64) bool {
		return !slices.Contains(set, s)
	}), set)
	for _, session := range first {
		for !slices.Contains(path, session) {
			path = append(path, session)
			session = g.next(session, set)
		}
	}
	return path
}

// next is the first session of a set that blocks a session: an owner or waiter, else a child. It is
// the session itself if none does.
func (g *Graph) next(session uint64, set []uint64) uint64 {
	for _, name := range g.Waits[session] {
		if b := g.Blockers(name, session, set); len(b) > 0 {
			return b[0].Session
		}
	}
	for _, child := range g.Children[session] {
		if slices.Contains(set, child) {
			return child
		}
	}
	return session
}

func (s *Semaphore) usesSlotOf(w *Waiter, session uint64) bool {
	return slices.ContainsFunc(s.Slots, func(slot Slot) bool { return slot.Session == session && w.admits(&slot) })
}

func (s *Semaphore) sharesSlot(x, w *Waiter) bool {
	return slices.ContainsFunc(s.Slots, func(slot Slot) bool { return x.admits(&slot) && w.admits(&slot) })
}

// Facts is what a deadlock set consists of, as a text: equal texts of two reads, the second begun
// after the first had ended, mean that all of it existed at once in between.
func (g *Graph) Facts(set []uint64) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g.Semaphores)) {
		s := g.Semaphores[name]
		for _, o := range s.Owners {
			if slices.Contains(set, o.Session) {
				fmt.Fprintf(&b, "%q %d holds %d %d %q\n", name, o.Session, o.Token, o.Count, o.Slots)
			}
		}
		for _, w := range s.Waiters {
			if slices.Contains(set, w.Session) {
				fmt.Fprintf(&b, "%q %d waits %d %d %d %q %q %q\n", name, w.Session, w.Place, w.Count, w.Level, w.Key, w.Labels,
					w.Names)
			}
		}
	}
	for _, session := range set {
		for _, child := range g.Children[session] {
			if slices.Contains(set, child) {
				fmt.Fprintf(&b, "%d waits for its child %d\n", session, child)
			}
		}
	}
	return b.String()
}
