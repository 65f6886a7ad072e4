package waitgraph

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// world is the naive model: semaphores with policies and slots, examined as the specification says,
// by sorting all waiters each time. Each session is one thread of work.
type world struct {
	r     *rand.Rand
	now   int
	next  uint64
	names []string
	sems  map[string]*worldSem

	parents map[uint64]uint64 // by child, which begins when nestAfter steps are over; then its parent does nothing
}

const nestAfter = 20

type worldSem struct {
	limit         uint64
	policy        protocol.QueuePolicy
	aging         int
	labels        [][]string // of slots
	owners, queue []*worldEntry
	virtual       uint64
	starts        map[string]uint64
	last          string
}

type worldEntry struct {
	session, id, count uint64
	level, arrival     int
	key                string
	labels             []string
	slots              []int // of an owner
}

const worldSessions = 7

func newWorld(r *rand.Rand) *world {
	w := &world{r: r, sems: make(map[string]*worldSem), parents: make(map[uint64]uint64)}
	for child := uint64(2); child <= worldSessions && r.IntN(2) == 0; child++ {
		if r.IntN(2) == 0 {
			w.parents[child] = 1 + r.Uint64N(child-1)
		}
	}
	for _, name := range []string{"a", "b", "c", "d"}[:2+r.IntN(3)] {
		s := &worldSem{limit: 1 + r.Uint64N(3), policy: protocol.QueuePolicy(r.IntN(3)), starts: make(map[string]uint64), last: "-"}
		if s.policy == protocol.PolicyPriority {
			s.aging = r.IntN(2) * 3
		}
		if r.IntN(3) == 0 {
			for range s.limit {
				s.labels = append(s.labels, [][]string{{"x"}, {"y"}, {"x", "y"}}[r.IntN(3)])
			}
		}
		w.sems[name] = s
		w.names = append(w.names, name)
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.sems = make(map[string]*worldSem)
	for name, s := range w.sems {
		x := *s
		x.owners, x.queue, x.starts = slices.Clone(s.owners), slices.Clone(s.queue), maps.Clone(s.starts)
		c.sems[name] = &x
	}
	return &c
}

func (s *worldSem) tag(e *worldEntry) uint64 {
	start, ok := s.starts[e.key]
	if !ok {
		start = s.virtual
	}
	return start + e.count*(1<<20)
}

// before is the order of two first waiters of lanes.
func (s *worldSem) before(a, b *worldEntry) int {
	switch {
	case s.policy == protocol.PolicyPriority && s.aging == 0:
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(a.id, b.id))
	case s.policy == protocol.PolicyPriority:
		return cmp.Or(cmp.Compare(a.arrival-a.level*s.aging, b.arrival-b.level*s.aging), cmp.Compare(a.id, b.id))
	case s.policy == protocol.PolicyFair:
		last := func(e *worldEntry) int {
			if e.key == s.last {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(s.tag(a), s.tag(b)), cmp.Compare(last(a), last(b)), cmp.Compare(a.id, b.id))
	}
	return cmp.Compare(a.id, b.id)
}

func (s *worldSem) sameLane(a, b *worldEntry) bool {
	return slices.Equal(a.labels, b.labels) && (s.policy == protocol.PolicyFIFO ||
		s.policy == protocol.PolicyPriority && a.level == b.level || s.policy == protocol.PolicyFair && a.key == b.key)
}

// heads are the first waiters of the lanes, in the order of the policy.
func (s *worldSem) heads() (list []*worldEntry) {
	for _, e := range s.queue {
		if !slices.ContainsFunc(s.queue, func(x *worldEntry) bool { return x.id < e.id && s.sameLane(x, e) }) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, s.before)
	return list
}

func (s *worldSem) used() (n uint64) {
	for _, e := range s.owners {
		n += e.count
	}
	return n
}

func admitsAll(labels, of []string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(of, l) })
}

// fit is the slots that e would get beside what is claimed; without slots none. ok: it fits.
func (s *worldSem) fit(e *worldEntry, claimed map[int]bool) (slots []int, ok bool) {
	if s.used()+e.count > s.limit {
		return nil, false
	}
	if s.labels == nil {
		return nil, true
	}
	for i, labels := range s.labels {
		held := slices.ContainsFunc(s.owners, func(o *worldEntry) bool { return slices.Contains(o.slots, i) })
		if !held && !claimed[i] && admitsAll(e.labels, labels) && uint64(len(slots)) < e.count {
			slots = append(slots, i)
		}
	}
	return slots, uint64(len(slots)) == e.count
}

// grant takes a waiter out of the queue, and makes it an owner.
func (w *world) grant(s *worldSem, e *worldEntry, slots []int) {
	if s.policy == protocol.PolicyFair {
		tag := s.tag(e)
		s.virtual, s.starts[e.key], s.last = max(s.virtual, tag), tag, e.key
	}
	w.leave(s, e)
	w.next++
	o := *e
	o.id, o.slots = w.next, slots
	s.owners = append(s.owners, &o)
}

func (w *world) leave(s *worldSem, e *worldEntry) {
	s.queue = slices.DeleteFunc(s.queue, func(x *worldEntry) bool { return x == e })
	if !slices.ContainsFunc(s.queue, func(x *worldEntry) bool { return x.key == e.key }) {
		delete(s.starts, e.key)
	}
}

func (w *world) examine(s *worldSem) {
	for again := true; again; {
		again = false
		claimed := make(map[int]bool)
		for _, e := range s.heads() {
			if slots, ok := s.fit(e, claimed); ok {
				w.grant(s, e, slots)
				again = true
				break
			}
			if s.labels == nil {
				break
			}
			for i, labels := range s.labels {
				claimed[i] = claimed[i] || admitsAll(e.labels, labels)
			}
		}
	}
}

// acquire puts a request into the queue, or grants it.
func (w *world) acquire(name string, session uint64) {
	s := w.sems[name]
	w.next++
	e := &worldEntry{session: session, id: w.next, count: 1 + w.r.Uint64N(s.limit), level: w.r.IntN(3), arrival: w.now,
		key: []string{"k", "l", "m"}[w.r.IntN(3)]}
	if s.labels != nil {
		e.labels = [][]string{nil, {"x"}, {"y"}}[w.r.IntN(3)]
		admitted := uint64(0)
		for _, labels := range s.labels {
			if admitsAll(e.labels, labels) {
				admitted++
			}
		}
		if admitted == 0 {
			return
		}
		e.count = min(e.count, admitted)
	}
	if _, ok := s.starts[e.key]; !ok && s.policy == protocol.PolicyFair {
		s.starts[e.key] = s.virtual
	}
	s.queue = append(s.queue, e)
	w.examine(s)
}

// entries are a session's, by name.
func (w *world) entries(session uint64) (owned, waits []string) {
	of := func(e *worldEntry) bool { return e.session == session }
	for _, name := range w.names {
		if slices.ContainsFunc(w.sems[name].owners, of) {
			owned = append(owned, name)
		}
		if slices.ContainsFunc(w.sems[name].queue, of) {
			waits = append(waits, name)
		}
	}
	return owned, waits
}

// end takes a session's entry of a name away.
func (w *world) end(name string, session uint64) {
	s := w.sems[name]
	of := func(e *worldEntry) bool { return e.session == session }
	s.owners = slices.DeleteFunc(s.owners, of)
	if i := slices.IndexFunc(s.queue, of); i >= 0 {
		w.leave(s, s.queue[i])
	}
	w.examine(s)
}

// step is one thing that one session does.
func (w *world) step() {
	w.now++
	session := 1 + w.r.Uint64N(worldSessions)
	owned, waits := w.entries(session)
	if w.now < nestAfter && w.parents[session] != 0 || len(w.children(session)) > 0 {
		return
	}
	switch free := slices.DeleteFunc(slices.Clone(w.names), func(n string) bool { return slices.Contains(owned, n) }); {
	case len(waits) > 0:
		if w.r.IntN(20) == 0 { // its time is over
			for _, name := range waits {
				w.end(name, session)
			}
		}
	case len(owned) > 0 && (len(free) == 0 || w.r.IntN(3) == 0):
		w.end(owned[w.r.IntN(len(owned))], session)
	default:
		w.r.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
		for _, name := range free[:1+w.r.IntN(min(2, len(free)))] {
			w.acquire(name, session)
		}
	}
}

// deadlocked is the truth: who still waits when everybody who can go on has, one after the other.
func (w *world) deadlocked() (set []uint64) {
	c := w.clone()
	stuck := make(map[uint64]int)
	for session := uint64(1); session <= worldSessions; session++ {
		_, waits := c.entries(session)
		stuck[session] = len(waits)
	}
	for changed := true; changed; {
		changed = false
		for session := uint64(1); session <= worldSessions; session++ {
			owned, waits := c.entries(session)
			waitsForChild := slices.ContainsFunc(c.children(session), func(child uint64) bool { _, in := stuck[child]; return in })
			if n, in := stuck[session]; in && (n == 0 || len(waits) < n) && !waitsForChild { // it goes on, and ends
				for _, name := range append(owned, waits...) {
					c.end(name, session)
				}
				delete(stuck, session)
				changed = true
			}
		}
	}
	return slices.Sorted(maps.Keys(stuck))
}

// Waits implements Source.
func (w *world) Waits(session uint64) ([]string, []uint64, error) {
	_, waits := w.entries(session)
	return waits, w.children(session), nil
}

// children are the sessions that a session's command has started.
func (w *world) children(session uint64) (list []uint64) {
	for child := uint64(1); child <= worldSessions && w.now >= nestAfter; child++ {
		if w.parents[child] == session {
			list = append(list, child)
		}
	}
	return list
}

// Semaphore implements Source.
func (w *world) Semaphore(name string) (*Semaphore, error) {
	s := w.sems[name]
	out := &Semaphore{Name: name, Limit: s.limit, Policy: s.policy, Aging: s.aging > 0}
	for i, labels := range s.labels {
		slot := Slot{Name: string(rune('0' + i)), Labels: labels}
		for _, o := range s.owners {
			if slices.Contains(o.slots, i) {
				slot.Session = o.session
			}
		}
		out.Slots = append(out.Slots, slot)
	}
	for _, o := range s.owners {
		x := Owner{Session: o.session, Token: o.id, Count: o.count}
		for _, i := range o.slots {
			x.Slots = append(x.Slots, string(rune('0'+i)))
		}
		out.Owners = append(out.Owners, x)
	}
	ranks := s.ranks()
	for _, e := range s.queue {
		out.Waiters = append(out.Waiters, Waiter{Session: e.session, Place: e.id, Count: e.count, Level: e.level, Key: e.key,
			Labels: e.labels, Rank: ranks[e.id]})
	}
	return out, nil
}

// ranks are the order in which the policy would serve the waiters; the last ones have none.
func (s *worldSem) ranks() map[uint64]int {
	c := *s
	c.queue, c.starts = slices.Clone(s.queue), maps.Clone(s.starts)
	ranks := make(map[uint64]int)
	for n := 1; len(c.queue) > 0 && n <= 4; n++ {
		e := c.heads()[0]
		ranks[e.id] = n
		if c.policy == protocol.PolicyFair {
			c.starts[e.key], c.last = c.tag(e), e.key
		}
		c.queue = slices.DeleteFunc(c.queue, func(x *worldEntry) bool { return x == e })
	}
	return ranks
}
