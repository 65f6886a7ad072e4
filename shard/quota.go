package shard

// What a record counts against its node's quota of bytes beside its texts, about the memory it takes. Replicas must agree on it, as on the bounds in limits.go.
const (
	weightSession   = 512
	weightSemaphore = 512
	weightEntry     = 256 // an owner or a waiter
	weightNamed     = 512 // a process or a track; what is in it is weighed by its package
	weightAnswer    = 32  // a remembered answer of a party that has more than answersFree of them

	// answersFree is how many answers of a party cost its node nothing: a client that hears its answers and says so has fewer, unless it asks much at a time.
	answersFree = 64

	// lump is the size of values up to which a quota of bytes leaves room for bad luck in hashing. Larger ones may find a shard's share full although the node is
	// below its quota.
	lump = 64 << 10
)

// usage is what a node has here of what its quotas count, besides what its indexes count. It follows from the records, so that it is in no snapshot: it is counted as they
// come and go, and again by Check.
type usage struct {
	bytes   uint64
	waiters uint64
	stuck   uint64 // semaphores whose first waiter wants more than the limit; no quota counts them

	// What of the quotas this shard admits, as worked out for that many copies of buckets; unknown while copies is not Machine.copies + 1.
	copies      uint64
	mostBytes   uint64
	mostWaiters uint64

	refused [quotas]uint64 // since the machine was made or restored, for metrics
}

// Quota is one of those that a shard holds a node to.
type Quota uint8

const (
	QuotaSessions   Quota = 0
	QuotaSemaphores Quota = 1 // processes and tracks too
	QuotaBytes      Quota = 2
	QuotaWaiters    Quota = 3
	quotas                = 4
)

func (n *node) addSession(s *session) {
	n.sessions.insert(s, sessionLess)
	n.bytes += weightSession + uint64(len(s.desc))
}

func (n *node) removeSession(s *session) {
	n.sessions.remove(s, sessionLess)
	n.bytes -= weightSession + uint64(len(s.desc))
}

// redescribe changes what a party says of itself. It counts while the session is at home in a copy here; what is known of guests does not.
func (p *party) redescribe(text string) {
	if p.home != nil && !p.gone {
		p.node.bytes += uint64(len(text)) - uint64(len(p.desc)) // modulo 2^64
	}
	p.desc = text
}

// weighty is how many of a party's answers its node's bytes count.
func (p *party) weighty() uint32 {
	if p.gone {
		return 0
	}
	return uint32(max(0, p.answers.len()-answersFree))
}

// weighAnswers counts a party's answers anew. It is called when some came or went, and when the party is gone.
func (p *party) weighAnswers() {
	if now := p.weighty(); now != p.weighed {
		p.node.bytes += weightAnswer*uint64(now) - weightAnswer*uint64(p.weighed) // modulo 2^64
		p.weighed = now
	}
}

// remember keeps an answer.
func (p *party) remember(a answer) {
	p.answers.add(a)
	p.weighAnswers()
}

// forget drops the answers that the client has heard, as its low-water mark says.
func (p *party) forget() {
	p.answers.forget(p.low)
	p.weighAnswers()
}

func (s *semaphore) weight() uint64 { return weightSemaphore + uint64(len(s.name)+len(s.data)) }

func (e *entry) weight() uint64 { return weightEntry + uint64(len(e.data)) }

// put replaces the data of an entry.
func (e *entry) put(data []byte) {
	e.sem.node.bytes += uint64(len(data)) - uint64(len(e.data)) // modulo 2^64
	e.data = keep(data)
}

// enroll and strike count an entry that came to its semaphore, or goes from it.
func (n *node) enroll(e *entry) {
	n.bytes += e.weight()
	if e.waiting {
		n.waiters++
	}
}

func (n *node) strike(e *entry) {
	n.bytes -= e.weight()
	if e.waiting {
		n.waiters--
	}
}

// reweigh counts a process or track anew: it was counted as before, and weighs so much now. Both are 0 where it is not here.
func (n *node) reweigh(before *uint64, now uint64) {
	n.bytes += now - *before // modulo 2^64
	*before = now
}

func (x *proc) weight() uint64 { return weightNamed + uint64(len(x.name)) + x.state.Bytes() }

func (x *track) weight() uint64 { return weightNamed + uint64(len(x.name)) + x.state.Bytes() }

// admits works out what of the node's quotas this shard admits. It is asked for each acquire, and so remembers.
func (m *Machine) admits(n *node) *usage {
	u := &n.usage
	if u.copies != m.copies+1 {
		u.copies = m.copies + 1
		u.mostBytes, u.mostWaiters = m.shareOf(n.config.MaxBytes, lump), m.share(n.config.MaxWaiters)
	}
	return u
}

// room says whether the node may have so many bytes more here. What does not grow is always let through, also above a quota that was lowered.
func (m *Machine) room(n *node, more uint64) bool {
	if more == 0 {
		return true
	}
	u := m.admits(n)
	return n.within(QuotaBytes, more <= u.mostBytes && u.bytes <= u.mostBytes-more)
}

// roomForWaiter, roomForSession and roomForName say whether the node may have one more here: of acquires that wait, of sessions, of semaphores, processes and tracks.
func (m *Machine) roomForWaiter(n *node) bool {
	return n.within(QuotaWaiters, n.waiters < m.admits(n).mostWaiters)
}

func (m *Machine) roomForSession(n *node) bool {
	return n.within(QuotaSessions, uint64(n.sessions.n) < m.share(n.config.MaxSessions))
}

func (m *Machine) roomForName(n *node) bool {
	return n.within(QuotaSemaphores, n.objects() < m.share(n.config.MaxSemaphores))
}

// within counts a refusal unless ok.
func (n *node) within(q Quota, ok bool) bool {
	if !ok {
		n.refused[q]++
	}
	return ok
}

// growth is how much more one size is than another.
func growth(now, before uint64) uint64 {
	if now <= before {
		return 0
	}
	return now - before
}

// Usage is what a node has in this shard of what its quotas count, by Quota. It is of a replica: Refused counts from when its machine was made or restored.
type Usage struct {
	Has     [quotas]uint64
	Most    [quotas]uint64 // what of the quota this shard admits
	Refused [quotas]uint64 // requests
}

// Usage of a node that is known here and was not dropped. It may run beside other reads.
func (m *Machine) Usage(id uint64) (Usage, bool) {
	n := m.nodes[id]
	if n == nil {
		return Usage{}, false
	}
	c := &n.config
	return Usage{
		Has:     [quotas]uint64{QuotaSessions: uint64(n.sessions.n), QuotaSemaphores: n.objects(), QuotaBytes: n.bytes, QuotaWaiters: n.waiters},
		Refused: n.refused,
		Most: [quotas]uint64{
			QuotaSessions: m.share(c.MaxSessions), QuotaSemaphores: m.share(c.MaxSemaphores), QuotaBytes: m.shareOf(c.MaxBytes, lump),
			QuotaWaiters: m.share(c.MaxWaiters),
		},
	}, true
}

// MostWatchers is what of the node's quota of watchers this shard admits; 0 for a node that is not known here. Whoever holds the watches counts them.
func (m *Machine) MostWatchers(node uint64) uint64 {
	n := m.nodes[node]
	if n == nil {
		return 0
	}
	return m.share(n.config.MaxWatchers)
}

// recount is the usage as it is counted from all records; maps are walked, and sums do not depend on the order.
func (m *Machine) recount() map[*node]usage {
	all := make(map[*node]usage)
	add := func(n *node, bytes, waiters uint64) {
		u := all[n]
		u.bytes += bytes
		u.waiters += waiters
		all[n] = u
	}
	for i := range m.buckets {
		b := &m.buckets[i]
		for _, s := range b.semaphores {
			add(s.node, s.weight(), 0)
			for _, t := range []*treap{&s.owners, &s.waiters} {
				for e := t.first; e != nil; e = next(e, byOrder) {
					add(s.node, e.weight(), 0)
				}
			}
			add(s.node, 0, uint64(s.waiters.n))
			if head := s.waiters.first; head != nil && head.count > s.limit {
				u := all[s.node]
				u.stuck++
				all[s.node] = u
			}
		}
		for _, x := range b.processes {
			add(x.node, x.weight(), 0)
		}
		for _, x := range b.tracks {
			add(x.node, x.weight(), 0)
		}
	}
	for _, p := range m.parties {
		if p.home != nil && !p.gone {
			add(p.node, weightSession+uint64(len(p.desc)), 0)
		}
		if n := p.weighty(); n > 0 {
			add(p.node, weightAnswer*uint64(n), 0)
		}
	}
	return all
}
