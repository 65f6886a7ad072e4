package shard

import "github.com/signalbox-dev/signalbox/protocol"

// A bucket moves by steps, each a command that names a run of buckets and the epoch of the move.
// Per bucket a step is to be done, was done (it repeats), must wait, or never can be done; a run
// takes a step as a whole or not at all.
type stepVerdict uint8

const (
	stepDo stepVerdict = iota
	stepDone
	stepWait
	stepNever
)

// highestEpoch is the highest epoch this shard knows for the bucket. It outlives the copy.
func (b *bucket) highestEpoch() uint64 { return max(b.epoch, b.moveEpoch) }

// canFreeze: only an active copy of an older epoch is frozen.
func (b *bucket) canFreeze(epoch uint64) stepVerdict {
	switch {
	case b.state == bucketActive && b.epoch < epoch:
		return stepDo
	case b.state == bucketFrozen && b.moveEpoch == epoch:
		return stepDone
	}
	return stepNever
}

// canActivate: an imported copy under its own epoch, a frozen one under an epoch newer than that of
// the move it was frozen for, and an active one under a newer epoch, if a move was aborted before
// the freeze arrived.
func (b *bucket) canActivate(epoch uint64) stepVerdict {
	switch {
	case b.state == bucketImported && b.epoch == epoch,
		b.state == bucketFrozen && b.moveEpoch < epoch,
		b.state == bucketActive && b.epoch < epoch:
		return stepDo
	case b.state == bucketActive && b.epoch == epoch:
		return stepDone
	case b.state == bucketImporting && b.epoch == epoch:
		return stepWait
	}
	return stepNever
}

// canDrop: a frozen copy under the epoch of the move it was frozen for, an imported one under a
// newer epoch than its own. Where there is no copy the epoch is kept, so that a late import of an
// older one is refused.
func (b *bucket) canDrop(epoch uint64) stepVerdict {
	switch b.state {
	case bucketFrozen:
		if b.moveEpoch == epoch {
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

// readStep reads a step, and answers it unless it is to be carried out.
func readStep(m *Machine, c *rawCommand, x *BucketsBody, verdict func(*bucket, uint64) stepVerdict) bool {
	if !x.read(c.body) || x.Total == 0 || x.Count == 0 || x.Epoch == 0 {
		m.reply(protocol.StatusBadRequest, textMalformed)
		return false
	}
	return requireTier(m, x) && checkStep(m, x, verdict)
}

func checkStep(m *Machine, x *BucketsBody, verdict func(*bucket, uint64) stepVerdict) bool {
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

// applyFreeze stops active copies. Nothing may be overdue then: a copy must not hold what requests
// already count as gone.
func applyFreeze(m *Machine, c *rawCommand) {
	var x BucketsBody
	if !readStep(m, c, &x, (*bucket).canFreeze) {
		return
	}
	if m.hasBacklog() {
		m.reply(protocol.StatusAborted, textBacklog)
		return
	}
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.canFreeze(x.Epoch) == stepDo {
			b.timeBase = m.bucketTime(b)
			b.orderCounter = b.highestOrder() // the target may know of none of its objects any more
			b.state, b.moveEpoch = bucketFrozen, x.Epoch
			m.rescheduleBucket(b)
		}
	}
	m.reply(protocol.StatusOK, "")
	m.emitBuckets(EventBucketsFrozen, &x)
}

// applyActivate makes copies serve. Sessions at home in them start detached. Those attached at the
// freeze have their timeout and the grace period from now on, as after a take-over; the others what
// was left of their time. Remote sessions that are unknown to a home that became active end, in
// whatever copy they hold something.
func applyActivate(m *Machine, c *rawCommand) {
	var x BucketsBody
	if !readStep(m, c, &x, (*bucket).canActivate) {
		return
	}
	woken := false
	var from uint32 // copies from here on wake up in this command
	var wakes uint32
	for i := x.First; i < x.First+x.Count; i++ {
		b := &m.buckets[i]
		if b.canActivate(x.Epoch) != stepDo {
			continue
		}
		if b.state != bucketActive {
			b.state, b.logBase = bucketActive, m.logTime
			if wakes > 0 && from+wakes != i {
				detachHomeSessions(m, from, wakes)
				wakes = 0
			}
			if wakes == 0 {
				from = i
			}
			wakes++
			woken = true
		}
		b.epoch, b.moveEpoch = x.Epoch, 0
		m.rescheduleBucket(b)
	}
	detachHomeSessions(m, from, wakes)
	m.imports.forget(&x)
	m.reply(protocol.StatusOK, "")
	m.emitBuckets(EventBucketsActive, &x)
	if !woken {
		return
	}
	endUnknownRemotes(m, x.First, x.Count)
	m.retryOrphaned()
	m.sessionTable.purgeEnding(m)
}

// detachHomeSessions is a take-over for the sessions at home in a range of buckets.
func detachHomeSessions(m *Machine, first, count uint32) {
	if count == 0 || !m.hasHomeSessions(m.homeIDs(first, count)) {
		return
	}
	m.takeovers.begin(takeover{at: m.logTime, first: first, count: count})
}

// applyDrop removes copies, piece by piece. The epoch stays.
func applyDrop(m *Machine, c *rawCommand) {
	var x BucketsBody
	if !readStep(m, c, &x, (*bucket).canDrop) {
		return
	}
	homes := m.hasHomeSessions(m.homeIDs(x.First, x.Count))
	for i := x.First; i < x.First+x.Count; i++ {
		if b := &m.buckets[i]; b.canDrop(x.Epoch) == stepDo {
			b.drop(m, x.Epoch, homes)
		}
	}
	m.imports.forget(&x)
	m.reply(protocol.StatusOK, "")
	m.emitBuckets(EventBucketsLeft, &x)
	m.clearing.advance(m)
}
