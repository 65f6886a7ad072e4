package shard

import "math/bits"

// What a record counts against its node's quota of bytes beside its texts, about the memory it
// takes. Replicas must agree on it, as on the bounds below.
const (
	sessionBytes   = 512
	semaphoreBytes = 512
	entryBytes     = 256 // an owner or a waiter
	placeBytes     = 128 // what such an entry has beyond a plain one, without 4 for each slot
	objectBytes    = 512 // a hosted object; what is in it is weighed by its package
	answerBytes    = 32  // a remembered answer of a session record that has more than freeAnswers of them

	// freeAnswers is how many answers of a session record cost its node nothing: a client that
	// gets its answers and confirms them has fewer, unless it has many requests under way.
	freeAnswers = 64

	// quotaValueBytes is the size of values up to which a quota of bytes leaves room for bad luck
	// in hashing. Larger ones may find a shard's share full although the node is below its quota.
	quotaValueBytes = 64 << 10
)

// usage is a node's use of its quotas here, without the parts that its indexes count. It
// follows from the records, so that it is in no snapshot: it is counted as they come and go, and
// again by Check.
type usage struct {
	bytes   uint64
	waiters uint64
	entries uint64 // waiters and owners; no quota counts them
	silent  uint64 // owners that have not said that they know their bound
	stuck   uint64 // semaphores whose next waiter wants more than the limit; no quota counts them

	// What of the quotas this shard admits, as worked out for that many copies of buckets; unknown
	// while copies is not bucketTable.copyCount + 1.
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

// addSession adds a session whose parent has this id; 0: it has none.
func (n *node) addSession(s *homeSession, parent uint64) {
	n.homeSessions.Insert(s, homeSessionLess)
	n.families.add(s.id, parent)
	n.bytes += sessionBytes + uint64(len(s.description))
}

func (n *node) removeSession(s *homeSession) {
	n.homeSessions.Remove(s, homeSessionLess)
	n.families.remove(s.id)
	n.bytes -= sessionBytes + uint64(len(s.description))
}

// addEntryUsage and removeEntryUsage count an entry that came to its semaphore, or goes from it,
// but for its place: setPlace and dropPlace count that.
func (n *node) addEntryUsage(e *entry) {
	n.bytes += entryBytes + uint64(len(e.data))
	n.entries++
	if e.waiting {
		n.waiters++
		e.session.waits++
	}
}

func (n *node) removeEntryUsage(e *entry) {
	n.bytes -= entryBytes + uint64(len(e.data))
	n.entries--
	if e.waiting {
		n.waiters--
		e.session.waits--
	}
}

// admitted is what this shard admits of the node's quotas. Every acquire asks for it, so it is
// kept.
func (t *bucketTable) admitted(n *node) *usage {
	u := &n.usage
	if u.copyCount != t.copyCount+1 {
		u.copyCount = t.copyCount + 1
		u.maxBytes, u.maxWaiters =
			t.quotaShareOf(n.config.MaxBytes, quotaValueBytes), t.quotaShare(n.config.MaxWaiters)
	}
	return u
}

// roomForBytes reports whether the node may have more bytes here beyond those it has. A request
// that adds none is always admitted, also above a quota that was lowered.
func (t *bucketTable) roomForBytes(n *node, more uint64) bool {
	if more == 0 {
		return true
	}
	u := t.admitted(n)
	return n.checkQuota(QuotaBytes, more <= u.maxBytes && u.bytes <= u.maxBytes-more)
}

// roomForWaiter, roomForSession and roomForName say whether the node may have one more here: of
// acquires that wait, of sessions, of semaphores and hosted objects.
func (t *bucketTable) roomForWaiter(n *node) bool {
	return n.checkQuota(QuotaWaiters, n.waiters < t.admitted(n).maxWaiters)
}

func (t *bucketTable) roomForSession(n *node) bool {
	return n.checkQuota(QuotaSessions, uint64(n.homeSessions.Len()) < t.quotaShare(n.config.MaxSessions))
}

func (t *bucketTable) roomForName(n *node) bool {
	return n.checkQuota(QuotaSemaphores, n.objectCount() < t.quotaShare(n.config.MaxSemaphores))
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

// quotaShare is the part of a node's quota that this shard admits: its part of the tier's buckets,
// and four standard deviations of a random spread, but never more than the quota. With one shard
// that is the quota itself. With many, a large quota may be exceeded by a few percent and a small
// one by a factor, and no node is refused below its quota because hashing is uneven.
func (t *bucketTable) quotaShare(quota uint64) uint64 { return t.quotaShareOf(quota, 1) }

// quotaShareOf is quotaShare for a quota that fills in pieces of that size, such as bytes in
// values: the larger they are, the less evenly they are spread.
func (t *bucketTable) quotaShareOf(quota, piece uint64) uint64 {
	total := uint64(len(t.buckets))
	if total == 0 || t.copyCount >= total {
		return quota
	}
	hi, lo := bits.Mul64(quota, t.copyCount)
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

// Bounds of the format version: every replica applies the same ones, so they are constants of the
// log's format and no instance can be configured to differ.
const (
	// MaxWaitersPerSemaphore bounds a queue. Beyond it an acquire that would wait is OVERLOADED.
	MaxWaitersPerSemaphore = 1 << 20
	// MaxSemaphoresPerSession bounds what one session owns and waits for in one shard. Beyond it a
	// new acquire is OVERLOADED.
	MaxSemaphoresPerSession = 1 << 20
	// MaxAnswers bounds the answers remembered for one session in one shard: a client must not run
	// further ahead of its lowest unanswered request. Beyond it a request is OVERLOADED.
	MaxAnswers = 1 << 14
	// Retention is how long of log time a gone session's id, an idle remote session's record and an
	// ended session's create id are remembered, in ms.
	Retention = 10 * 60 * 1000

	maxBuckets = 1 << 16 // a session id has 16 bits for its bucket

	maxDescription = 1024 // bytes
)

// Limits are the bounds above as the machine holds them, so that tests can lower them. They are
// part of the state: a snapshot carries them.
type Limits struct {
	Waiters    int // per semaphore
	Semaphores int // per session
	Answers    int // per session
}

// workLimits is what one Apply may do beyond its commands. What is left goes on in the next, and
// NextDeadline says that one is due. It is part of the state for the same reason as Limits.
type workLimits struct {
	deadlines int // deadlines looked at
	sweeps    int // sessions looked at after a take-over
	releases  int // entries and records removed for ended sessions, dropped nodes and overdue waiters
}

func defaultWorkLimits() workLimits {
	return workLimits{deadlines: 1_000, sweeps: 1_000, releases: 10_000}
}

func defaultLimits() Limits {
	return Limits{Waiters: MaxWaitersPerSemaphore, Semaphores: MaxSemaphoresPerSession, Answers: MaxAnswers}
}
