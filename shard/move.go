package shard

import "github.com/signalbox-dev/signalbox/protocol"

// A bucket moves by steps, each a command that names a run of buckets and the epoch of the move. Per bucket a step is to be done, was done (it repeats), must
// wait, or never can be done; a run takes a step as a whole or not at all.
type stepVerdict uint8

const (
	stepDo stepVerdict = iota
	stepDone
	stepWait
	stepNever
)

// known is the highest epoch this shard has heard of for the bucket. It outlives the copy.
func (b *bucket) known() uint64 { return max(b.epoch, b.pending) }

// freezes: only an active copy of an older epoch is frozen.
func (b *bucket) freezes(epoch uint64) stepVerdict {
	switch {
	case b.state == bucketActive && b.epoch < epoch:
		return stepDo
	case b.state == bucketFrozen && b.pending == epoch:
		return stepDone
	}
	return stepNever
}

// activates: an imported copy under its own epoch, a frozen one under an epoch newer than the move's it was frozen for, and an active one under a newer
// epoch, where a move was aborted before the freeze arrived.
func (b *bucket) activates(epoch uint64) stepVerdict {
	switch {
	case plantAnyActivate && (b.state == bucketImported || b.state == bucketFrozen):
		return stepDo
	case b.state == bucketImported && b.epoch == epoch, b.state == bucketFrozen && b.pending < epoch, b.state == bucketActive && b.epoch < epoch:
		return stepDo
	case b.state == bucketActive && b.epoch == epoch:
		return stepDone
	case b.state == bucketImporting && b.epoch == epoch:
		return stepWait
	}
	return stepNever
}

// drops: a frozen copy under the epoch of the move it was frozen for, an imported one under a newer epoch than its own. Where there is no copy the epoch is
// kept, so that an import of an older one that is still on its way is refused.
func (b *bucket) drops(epoch uint64) stepVerdict {
	switch b.state {
	case bucketFrozen:
		if b.pending == epoch {
			return stepDo
		}
	case bucketImported, bucketImporting:
		if b.epoch < epoch {
			return stepDo
		}
	case bucketAbsent, bucketDropping:
		if b.epoch < epoch {
			return stepDo
		}
		return stepDone
	}
	return stepNever
}

// takeStep reads a step, and answers it unless it is to be done: then it says for which buckets of the run.
func (m *Machine) takeStep(c *rawCommand, x *BucketsBody, verdict func(*bucket, uint64) stepVerdict) bool {
	if !x.read(c.body) || x.Total == 0 || x.Count == 0 || x.Epoch == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return false
	}
	return m.hasTable(x) && m.mayStep(x, verdict)
}

func (m *Machine) mayStep(x *BucketsBody, verdict func(*bucket, uint64) stepVerdict) bool {
	worst, todo := stepDo, false
	for i := x.First; i < x.First+x.Count; i++ {
		v := verdict(&m.buckets[i], x.Epoch)
		worst = max(worst, v)
		todo = todo || v == stepDo
	}
	switch {
	case worst == stepNever:
		m.reply(protocol.StatusPreconditionFailed, textStepRefused)
	case worst == stepWait:
		m.reply(protocol.StatusAborted, textImportPartial)
	case !todo:
		m.reply(protocol.StatusOK, "")
	default:
		return true
	}
	return false
}

// applyFreeze makes active copies stand still. Nothing may be overdue then, for a copy must not hold what was answered for as gone.
func (m *Machine) applyFreeze(c *rawCommand) {
	var x BucketsBody
	if !m.takeStep(c, &x, (*bucket).freezes) {
		return
	}
	if m.owes() {
		m.reply(protocol.StatusAborted, textOwes)
		return
	}
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.freezes(x.Epoch) == stepDo {
			b.stood = m.time(b)
			b.state, b.pending = bucketFrozen, x.Epoch
			m.lift(b)
		}
	}
	m.reply(protocol.StatusOK, "")
	m.tellBuckets(EventBucketsFrozen, &x)
}

// owes says that something of the past is left over: sessions not looked at since a take-over, entries of ended sessions, dropped nodes, due deadlines.
func (m *Machine) owes() bool {
	at, rec := m.deadlines.first()
	return m.takeovers.sweeping || len(m.dying) > 0 || len(m.dropping) > 0 || rec != nil && m.logTime > at
}

// applyActivate makes copies serve. Sessions at home in them start detached: those that were
// attached at the freeze with their timeout and the grace period from now on, as after a take-over,
// the others with what was left of their time. What a home that is active here does not know is
// gone with this command, in whatever copy it is.
func (m *Machine) applyActivate(c *rawCommand) {
	var x BucketsBody
	if !m.takeStep(c, &x, (*bucket).activates) {
		return
	}
	woken := false
	var from uint32 // copies from here on wake up in this command
	var wakes uint32
	for i := x.First; i < x.First+x.Count; i++ {
		b := &m.buckets[i]
		if b.activates(x.Epoch) != stepDo {
			continue
		}
		if b.state != bucketActive {
			b.state, b.base = bucketActive, m.logTime
			if wakes > 0 && from+wakes != i {
				m.detachHomes(from, wakes)
				wakes = 0
			}
			if wakes == 0 {
				from = i
			}
			wakes++
			woken = true
		}
		b.epoch, b.pending = x.Epoch, 0
		m.lift(b)
	}
	m.detachHomes(from, wakes)
	m.forgetImport(&x)
	m.reply(protocol.StatusOK, "")
	m.tellBuckets(EventBucketsActive, &x)
	if !woken || plantNotReleased {
		return
	}
	m.endUnknownGuests(x.First, x.Count)
	m.wake()
}

// detachHomes is a take-over for the sessions at home in a run.
func (m *Machine) detachHomes(first, count uint32) {
	if count == 0 || !m.homesSome(first, count) {
		return
	}
	m.takeovers.begin(takeover{at: m.logTime, first: first, count: count})
}

// wake has all that is gone looked at again whose entries were in copies that could not change.
func (m *Machine) wake() {
	m.dying = append(m.dying, m.stranded...)
	m.stranded = nil
	m.bury()
}

// applyDrop has copies go, piece by piece. The epoch stays.
func (m *Machine) applyDrop(c *rawCommand) {
	var x BucketsBody
	if !m.takeStep(c, &x, (*bucket).drops) {
		return
	}
	homes := m.homesSome(x.First, x.Count)
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.drops(x.Epoch) == stepDo {
			m.drop(b, x.Epoch, homes)
		}
	}
	m.forgetImport(&x)
	m.reply(protocol.StatusOK, "")
	m.tellBuckets(EventBucketsLeft, &x)
	m.clear()
}

func (m *Machine) tellBuckets(kind EventKind, x *BucketsBody) {
	m.run.out.List = append(m.run.out.List, Event{Kind: kind, First: x.First, Count: x.Count, Total: x.Total, Epoch: x.Epoch})
}

// firstSession is below every id of a session at home in the bucket.
func (m *Machine) firstSession(bucket uint32) uint64 {
	return protocol.MakeSessionID(m.tier, uint16(bucket), 0)
}

// lastSession is the highest id of a session at home in the bucket.
func (m *Machine) lastSession(bucket uint32) uint64 {
	return m.firstSession(bucket) + (protocol.MakeSessionID(0, 1, 0) - 1)
}

// homesSome says that sessions are at home in the run's copies, whatever their state.
func (m *Machine) homesSome(first, count uint32) (some bool) {
	low, high := m.firstSession(first), m.lastSession(first+count-1)
	m.nodeIndex.all(func(n *node) bool {
		s := n.sessionBehind(low)
		some = s != nil && s.id <= high
		return !some
	})
	return some
}

// idRange are the ids of the sessions at home in a run of buckets, low excluded.
type idRange struct{ low, high uint64 }

// idRanges are the runs of buckets whose copies are in such a state.
func (m *Machine) idRanges(is func(bucketState) bool) (out []idRange) {
	for i := range m.buckets {
		if !is(m.buckets[i].state) {
			continue
		}
		low, high := m.firstSession(uint32(i)), m.lastSession(uint32(i))
		if n := len(out); n > 0 && out[n-1].high+1 == low {
			out[n-1].high = high
		} else {
			out = append(out, idRange{low, high})
		}
	}
	return out
}

// sessionIn is the node's first session behind an id that is at home in one of the ranges.
func (n *node) sessionIn(ranges []idRange, after uint64) *session {
	for _, r := range ranges {
		if r.high <= after {
			continue
		}
		if s := n.sessionBehind(max(after, r.low)); s == nil || s.id <= r.high {
			return s
		}
	}
	return nil
}
