package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
)

// sessionRecord is what this shard knows of a session: of one at home here, or of a remote session,
// whose home is another shard. It holds the attach epoch that requests must come under, the
// remembered answers, and what the session owns and waits for.
//
// Invariant: entry e is in its session's entries if and only if it is in its semaphore's owners or
// waiters.
// Invariant: an ended record is in sessionTable.sessions exactly while it is in its ending or
// orphaned. The last of its entries may go earlier, when a queue ends its waiter.
type sessionRecord struct {
	*sessionUse // &unused until its first request
	node        *node
	home        *homeSession // nil for a remote session, unless its home copy is here and not active
	description string

	id    uint64
	epoch uint64 // attach epoch; for a remote session the highest seen
	// timer is the expiry of one with a home, in its bucket's time, and else that of the record of
	// an idle remote session.
	timer timer
	// lastSeen is the log time of the last attach of one with a home, and else of the last use of a
	// remote session.
	lastSeen uint64
	snapMark uint32
	ended    bool
	// endReason is why the session ended, of one whose home was here; for metrics.
	endReason protocol.EndReason

	// detached is the home's last report about a remote session under this epoch. It is not used
	// while the home is active here.
	detached bool
}

// sessionUse is the trace of a session's requests: the part of its record that comes with its first
// request. Most sessions of a large cluster are only kept alive, and have none.
type sessionUse struct {
	answers  answers
	entries  treap            // by name
	holdings *holdings        // nil for most
	ending   *protocol.Ending // of a session that has ended, while something is left to be released
	low      uint64           // lowest request number whose answer the client may still lack; never goes back

	waits          int32  // entries that wait
	place          int32  // in its node's ranking of sessions
	chargedAnswers uint32 // answers that its node's bytes count
}

// unused is what every session without a request has. It never changes: what changes a record's
// use calls ownUse first.
var unused = sessionUse{low: 1}

// ownUse makes the session's use its own, before the first change of it.
func (r *sessionRecord) ownUse() *sessionUse {
	if r.sessionUse == &unused {
		var x struct {
			sessionUse
			first [1]answer
		}
		x.low, x.answers.list = 1, x.first[:0]
		r.sessionUse = &x.sessionUse
	}
	return r.sessionUse
}

// newRemoteSession makes the record of a session that has a request, in one piece of memory. Most
// clients have one answer at a time to be remembered.
func newRemoteSession() *sessionRecord {
	var x struct {
		sessionRecord
		own   sessionUse
		first [1]answer
	}
	x.own.low, x.own.answers.list = 1, x.first[:0]
	x.sessionRecord.sessionUse = &x.own
	return &x.sessionRecord
}

// endedAs notes how an ended session ended, for the histories of what it holds.
func (r *sessionRecord) endedAs(how *protocol.Ending) {
	if r.sessionUse != &unused {
		r.ending = how
	}
}

// references is how many semaphores and hosted objects of this shard the session takes part in.
// While there is one, a remote session's record stays and its home is subscribed to, and an ended
// session's record waits for its release. Code that adds the first reference of a session that is
// not at home here calls remoteHeld; code that removes the last calls remoteIdle.
func (r *sessionRecord) references() int {
	if r.holdings == nil {
		return r.entries.n
	}
	return r.entries.n + r.holdings.count()
}

// addEntry and dropEntry add an entry to what its session owns and waits for, and take it out.
func (r *sessionRecord) addEntry(e *entry) {
	r.ownUse().entries.insert(e, byName)
	r.node.holders.Set(r, &r.place, uint64(r.entries.n))
}

func (r *sessionRecord) dropEntry(e *entry) {
	r.entries.remove(e, byName)
	r.node.holders.Set(r, &r.place, uint64(r.entries.n))
}

// renumber gives an entry, which is in no queue, another order id.
func (r *sessionRecord) renumber(e *entry, orderID uint64) {
	r.entries.remove(e, byName) // its place in the tree depends on it
	e.orderID = orderID
	r.entries.insert(e, byName)
}

func (r *sessionRecord) hasReferences() bool { return r.references() > 0 }

func (r *sessionRecord) timerRef() *timer { return &r.timer }

func (r *sessionRecord) deadlineKey() (deadlineKind, uint64, uint32) { return deadlineRemote, r.id, 0 }

// findAnswer drops the answers that the client has received, and finds the one to this number, if
// there is one.
func (r *sessionRecord) findAnswer(head *protocol.Head) *answer {
	if head.Low > r.low {
		r.ownUse().low = head.Low
		r.forgetAnswers()
	}
	return r.answers.find(head.Seq)
}

// chargeableAnswers is how many of the session's answers its node's bytes count.
func (r *sessionRecord) chargeableAnswers() uint32 {
	if r.ended {
		return 0
	}
	return uint32(max(0, r.answers.len()-freeAnswers))
}

// chargeAnswers counts the session's answers again. It is called when some came or went, and when
// the session has ended.
func (r *sessionRecord) chargeAnswers() {
	if now := r.chargeableAnswers(); now != r.chargedAnswers {
		r.node.bytes += answerBytes*uint64(now) - answerBytes*uint64(r.chargedAnswers) // modulo 2^64
		r.chargedAnswers = now
	}
}

func (r *sessionRecord) rememberAnswer(a answer) {
	r.ownUse().answers.add(a)
	r.chargeAnswers()
}

// forgetAnswers drops the answers that the client has received, by its low-water mark.
func (r *sessionRecord) forgetAnswers() {
	r.answers.forget(r.low)
	r.chargeAnswers()
}

// setDescription changes the session's description. Its bytes count while the session is at home in
// a copy here; those of remote sessions do not.
func (r *sessionRecord) setDescription(text string) {
	if r.home != nil && !r.ended {
		r.node.bytes += uint64(len(text)) - uint64(len(r.description)) // modulo 2^64
	}
	r.description = text
}

// releaseAll releases an ended session's entries, in order of name, then its hosted objects, as far
// as the work of this Apply goes. done says that no other can be released. Its waiters are answered
// with text, or not at all if that is empty.
func (r *sessionRecord) releaseAll(m *Machine, text string) (done bool) {
	for e := r.entries.first; e != nil; {
		following := next(e, byName)
		if e.mayChange() {
			if m.batch.releaseBudget <= 0 {
				return false
			}
			m.batch.releaseBudget--
			if e.waiting && text != "" {
				m.emitResult(e, protocol.StatusSessionExpired, 0, text)
			}
			e.release(m, protocol.HoldSessionEnded)
		}
		e = following
	}
	return r.endHoldings(m)
}
