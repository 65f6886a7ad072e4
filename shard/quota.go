package shard

import "math/bits"

// What a record counts against its node's quota of bytes beside its texts, about the memory it
// takes. Replicas must agree on it, as on the bounds in limits.go.
const (
	sessionBytes   = 512
	semaphoreBytes = 512
	entryBytes     = 256 // an owner or a waiter
	objectBytes    = 512 // a hosted object; what is in it is weighed by its package
	answerBytes    = 32  // a remembered answer of a session record that has more than freeAnswers of them

	// freeAnswers is how many answers of a session record cost its node nothing: a client that
	// gets its answers and confirms them has fewer, unless it has many requests under way.
	freeAnswers = 64

	// quotaValueBytes is the size of values up to which a quota of bytes leaves room for bad luck
	// in hashing. Larger ones may find a shard's share full although the node is below its quota.
	quotaValueBytes = 64 << 10
)

// usage is what a node has here of what its quotas count, besides what its indexes count. It
// follows from the records, so that it is in no snapshot: it is counted as they come and go, and
// again by Check.
type usage struct {
	bytes   uint64
	waiters uint64
	stuck   uint64 // semaphores whose first waiter wants more than the limit; no quota counts them

	// What of the quotas this shard admits, as worked out for that many copies of buckets; unknown
	// while copies is not Machine.copyCount + 1.
	copyCount  uint64
	maxBytes   uint64
	maxWaiters uint64

	refused [quotas]uint64 // since the machine was made or restored, for metrics
}

// Quota is one of those that a shard holds a node to.
type Quota uint8

const (
	QuotaSessions   Quota = 0
	QuotaSemaphores Quota = 1 // hosted objects too
	QuotaBytes      Quota = 2
	QuotaWaiters    Quota = 3
	quotas                = 4
)

func (n *node) addSession(s *homeSession) {
	n.homeSessions.insert(s, homeSessionLess)
	n.bytes += sessionBytes + uint64(len(s.description))
}

func (n *node) removeSession(s *homeSession) {
	n.homeSessions.remove(s, homeSessionLess)
	n.bytes -= sessionBytes + uint64(len(s.description))
}

// setDescription changes the session's description. Its bytes count while the session is at home in
// a copy here; those of remote sessions do not.
func (p *sessionRecord) setDescription(text string) {
	if p.home != nil && !p.ended {
		p.node.bytes += uint64(len(text)) - uint64(len(p.description)) // modulo 2^64
	}
	p.description = text
}

// chargeableAnswers is how many of the session's answers its node's bytes count.
func (p *sessionRecord) chargeableAnswers() uint32 {
	if p.ended {
		return 0
	}
	return uint32(max(0, p.answers.len()-freeAnswers))
}

// chargeAnswers counts the session's answers again. It is called when some came or went, and when
// the session has ended.
func (p *sessionRecord) chargeAnswers() {
	if now := p.chargeableAnswers(); now != p.chargedAnswers {
		p.node.bytes += answerBytes*uint64(now) - answerBytes*uint64(p.chargedAnswers) // modulo 2^64
		p.chargedAnswers = now
	}
}

// rememberAnswer keeps an answer.
func (p *sessionRecord) rememberAnswer(a answer) {
	p.answers.add(a)
	p.chargeAnswers()
}

// forgetAnswers drops the answers that the client has received, by its low-water mark.
func (p *sessionRecord) forgetAnswers() {
	p.answers.forget(p.low)
	p.chargeAnswers()
}

func (s *semaphore) quotaBytes() uint64 { return semaphoreBytes + uint64(len(s.name)+len(s.data)) }

func (e *entry) quotaBytes() uint64 { return entryBytes + uint64(len(e.data)) }

// setData replaces the data of an entry.
func (e *entry) setData(data []byte) {
	e.semaphore.node.bytes += uint64(len(data)) - uint64(len(e.data)) // modulo 2^64
	e.data = cloneOrNil(data)
}

// addEntryUsage and removeEntryUsage count an entry that came to its semaphore, or goes from it.
func (n *node) addEntryUsage(e *entry) {
	n.bytes += e.quotaBytes()
	if e.waiting {
		n.waiters++
		e.session.waits++
	}
}

func (n *node) removeEntryUsage(e *entry) {
	n.bytes -= e.quotaBytes()
	if e.waiting {
		n.waiters--
		e.session.waits--
	}
}

// admitted is what this shard admits of the node's quotas. Every acquire asks for it, so it is
// kept.
func (m *Machine) admitted(n *node) *usage {
	u := &n.usage
	if u.copyCount != m.copyCount+1 {
		u.copyCount = m.copyCount + 1
		u.maxBytes, u.maxWaiters =
			m.quotaShareOf(n.config.MaxBytes, quotaValueBytes), m.quotaShare(n.config.MaxWaiters)
	}
	return u
}

// roomForBytes says whether the node may have so many more bytes here. A request that adds none is
// always admitted, also above a quota that was lowered.
func (m *Machine) roomForBytes(n *node, more uint64) bool {
	if more == 0 {
		return true
	}
	u := m.admitted(n)
	return n.checkQuota(QuotaBytes, more <= u.maxBytes && u.bytes <= u.maxBytes-more)
}

// roomForWaiter, roomForSession and roomForName say whether the node may have one more here: of
// acquires that wait, of sessions, of semaphores and hosted objects.
func (m *Machine) roomForWaiter(n *node) bool {
	return n.checkQuota(QuotaWaiters, n.waiters < m.admitted(n).maxWaiters)
}

func (m *Machine) roomForSession(n *node) bool {
	return n.checkQuota(QuotaSessions, uint64(n.homeSessions.n) < m.quotaShare(n.config.MaxSessions))
}

func (m *Machine) roomForName(n *node) bool {
	return n.checkQuota(QuotaSemaphores, n.objectCount() < m.quotaShare(n.config.MaxSemaphores))
}

// checkQuota counts a refusal unless ok.
func (n *node) checkQuota(q Quota, ok bool) bool {
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

// Usage is what a node has in this shard of what its quotas count, by Quota. It is of a replica:
// Refused counts from when its machine was made or restored.
type Usage struct {
	Used    [quotas]uint64
	Limit   [quotas]uint64 // what of the quota this shard admits
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
		Used: [quotas]uint64{QuotaSessions: uint64(n.homeSessions.n), QuotaSemaphores: n.objectCount(),
			QuotaBytes: n.bytes, QuotaWaiters: n.waiters},
		Refused: n.refused,
		Limit: [quotas]uint64{
			QuotaSessions: m.quotaShare(c.MaxSessions), QuotaSemaphores: m.quotaShare(c.MaxSemaphores),
			QuotaBytes:   m.quotaShareOf(c.MaxBytes, quotaValueBytes),
			QuotaWaiters: m.quotaShare(c.MaxWaiters),
		},
	}, true
}

// MaxWatchers is what this shard admits of the node's quota of watchers; 0 for a node that is not
// known here. The holder of the watches counts them.
func (m *Machine) MaxWatchers(node uint64) uint64 {
	n := m.nodes[node]
	if n == nil {
		return 0
	}
	return m.quotaShare(n.config.MaxWatchers)
}

// recount is the usage as it is counted from all records; maps are walked, and sums do not depend
// on the order.
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
			add(s.node, s.quotaBytes(), 0)
			for _, t := range []*treap{&s.owners, &s.waiters} {
				for e := t.first; e != nil; e = next(e, byOrder) {
					add(s.node, e.quotaBytes(), 0)
				}
			}
			add(s.node, 0, uint64(s.waiters.n))
			if head := s.waiters.first; head != nil && head.count > s.limit {
				u := all[s.node]
				u.stuck++
				all[s.node] = u
			}
		}
		for _, objects := range b.objects {
			for _, x := range objects {
				add(x.node, x.quotaBytes(), 0)
			}
		}
	}
	for _, p := range m.sessions {
		if p.home != nil && !p.ended {
			add(p.node, sessionBytes+uint64(len(p.description)), 0)
		}
		if n := p.chargeableAnswers(); n > 0 {
			add(p.node, answerBytes*uint64(n), 0)
		}
	}
	return all
}

// quotaShare is the part of a node's quota that this shard admits: its part of the tier's buckets,
// and four standard deviations of a random spread, but never more than the quota. With one shard
// that is the quota itself. With many, a large quota may be exceeded by a few percent and a small
// one by a factor, and no node is refused below its quota because hashing is uneven.
func (m *Machine) quotaShare(quota uint64) uint64 { return m.quotaShareOf(quota, 1) }

// quotaShareOf is quotaShare for a quota that fills in pieces of that size, such as bytes in
// values: the larger they are, the less evenly they are spread.
func (m *Machine) quotaShareOf(quota, piece uint64) uint64 {
	total := uint64(len(m.buckets))
	if total == 0 || m.copyCount >= total {
		return quota
	}
	hi, lo := bits.Mul64(quota, m.copyCount)
	share, rest := bits.Div64(hi, lo, total) // hi < total, for active < total
	if rest > 0 {
		share++
	}
	hi, spread := bits.Mul64(4*integerRoot(share), integerRoot(piece))
	if hi > 0 {
		return quota
	}
	return min(quota, addSaturated(share, addSaturated(spread, 4*piece)))
}

// integerRoot is the integer square root.
func integerRoot(v uint64) uint64 {
	if v == 0 {
		return 0
	}
	r := uint64(1) << ((bits.Len64(v) + 1) / 2)
	for {
		next := (r + v/r) / 2
		if next >= r {
			return r
		}
		r = next
	}
}
