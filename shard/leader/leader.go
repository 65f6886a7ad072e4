package leader

import "cmp"

// Leader is the step machine of one shard, over all its leaderships. One goroutine uses it. Each
// call notes the time and hands on to the parts that it concerns.
type Leader struct {
	leadership
	taken *Ready

	pause            pause
	unconfirmedSince uint64 // all connections are cut BarrierTimeout after this
	stamps           stamps
	nextCompare      uint64 // when the remote sessions are compared next

	barrier     barrierState
	proposals   proposals
	liveness    liveness
	remotes     remoteTable
	subscribers subscriberTable
}

// New returns a leader without a leadership. Calls before Start are ignored, except that a
// connection with an attach is cut.
func New(cfg Config) *Leader {
	cfg.SelfCheck = cmp.Or(cfg.SelfCheck, DefaultSelfCheck)
	cfg.Compare = cmp.Or(cfg.Compare, DefaultCompare)
	cfg.BarrierTimeout = cmp.Or(cfg.BarrierTimeout, DefaultBarrierTimeout)
	return &Leader{leadership: leadership{cfg: cfg, ready: new(Ready)}, taken: new(Ready)}
}

// Start begins a leadership when its epoch has been applied here, at that log time. Remotes are the
// sessions that hold or wait for something here and have no ACTIVE home bucket here. An earlier
// leadership is stopped first.
func (l *Leader) Start(now, epoch, logTime uint64, remotes []uint64) {
	l.Stop()
	// Reset everything except what the driver may still refer to, or has not taken.
	*l = Leader{
		leadership:       leadership{cfg: l.cfg, epoch: epoch, stats: l.stats, ready: l.ready},
		taken:            l.taken,
		unconfirmedSince: now,
		stamps:           stamps{since: now, at: now},
		nextCompare:      now + l.cfg.Compare,
		barrier:          barrierState{number: l.barrier.number, wanted: true},
		proposals:        newProposals(&l.leadership, l.proposals.lastID, now),
		liveness:         newLiveness(&l.leadership),
		remotes:          newRemoteTable(&l.leadership),
		subscribers:      newSubscriberTable(&l.leadership),
	}
	l.clock.start(now, logTime)
	l.remotes.heldAtStart(remotes)
}

// Stop ends the leadership. It detaches the sessions at home here from every connection: pongs of a
// later leadership would renew sessions that it does not know. Other work that was not taken is
// dropped.
func (l *Leader) Stop() {
	if l.epoch == 0 {
		return
	}
	*l.ready = Ready{Cut: l.ready.Cut}
	l.liveness.takeOff()
	l.epoch = 0
	l.barrier.inFlight = false
}

// Take returns the work since the last Take. The result is valid until the next Take; message and
// body bytes may be kept.
func (l *Leader) Take() *Ready {
	if l.epoch != 0 {
		l.flushCommands()
		l.subscribers.flush()
		l.beginBarrier()
		l.liveness.dropPongs()
	}
	r := l.ready
	l.taken.reset()
	l.ready, l.taken = l.taken, r
	return r
}

func (l *Leader) flushCommands() {
	if !l.proposals.refill() {
		return
	}
	if !l.clock.paused {
		l.liveness.flushDetaches(&l.proposals)
	}
	l.remotes.flushEnded(&l.proposals)
	l.remotes.flushUpdates(&l.proposals)
}

func (l *Leader) beginBarrier() {
	b := &l.barrier
	if b.inFlight || b.backoff {
		return
	}
	if !b.wanted && len(l.liveness.pings.waiting) == 0 && !l.subscribers.waiting() {
		return
	}
	b.number++
	b.inFlight, b.wanted, b.began = true, false, l.clock.seen
	b.since = cmp.Or(b.since, b.began)
	l.ready.Barrier = b.number
	l.liveness.beginPongs()
	l.subscribers.beginReplies()
}

// noteBarrier notes for how long no barrier has succeeded while one was wanted.
func (l *Leader) noteBarrier() {
	if since := l.barrier.since; since != 0 {
		l.stoodStill(l.clock.seen - since)
	}
}

// BarrierDone reports the end of the barrier with this number. On success st is the machine's
// state, at or after the barrier.
func (l *Leader) BarrierDone(now, n uint64, ok bool, st State) {
	b := &l.barrier
	if l.epoch == 0 || !b.inFlight || n != b.number {
		return
	}
	l.enter(now)
	b.inFlight = false
	if !ok {
		b.backoff, b.wanted = true, true
		l.liveness.retryPongs()
		l.subscribers.retryReplies()
		return
	}
	l.noteBarrier()
	b.lastProof, b.proved, b.since = b.began, true, 0
	l.pause.confirmed = l.pause.confirmed || n > l.pause.barrier
	l.liveness.pong(st)
	l.subscribers.reply(st)
}

// SetSelfCheck sets the time between self-checks in ms: the least of the shard's nodes.
func (l *Leader) SetSelfCheck(ms uint64) {
	if ms > 0 {
		l.cfg.SelfCheck = ms
	}
}

// Leading reports whether a leadership was started and not stopped.
func (l *Leader) Leading() bool { return l.epoch != 0 }

// Fresh returns when the last successful barrier of this leadership began.
func (l *Leader) Fresh() (began uint64, ok bool) { return l.barrier.lastProof, l.barrier.proved }

// LogTime is the stamp for a batch that is proposed now; 0 without a leadership. It stands still
// during a pause, and until the sockets were read after it.
func (l *Leader) LogTime(now uint64) uint64 {
	if !l.enter(now) {
		return 0
	}
	return l.clock.now()
}

// LogTimeRuns is false after a pause, until the leadership is confirmed: no tick is proposed, and
// client batches keep the same log time. Call LogTime first: it detects a pause.
func (l *Leader) LogTimeRuns() bool { return l.epoch != 0 && !l.clock.paused }

// enter begins a call: it notes the time, and reports whether a leadership is under way. After a
// pause nothing expires until a later barrier has confirmed the leadership, and what clients sent
// meanwhile has been read from the sockets.
func (l *Leader) enter(now uint64) (leading bool) {
	if l.epoch == 0 {
		return false
	}
	if gap := now - l.clock.seen; l.clock.observe(now) {
		l.stoodStill(gap)
		l.stats.Pauses++
		l.pause = pause{barrier: l.barrier.number, since: l.clock.seen}
		l.barrier.wanted, l.barrier.backoff = true, false
		l.unconfirmedSince = l.clock.seen
	}
	return true
}

// SkipTime moves log time forward by some ms while the monotonic time stays. A test skips time in
// which nothing is due. The next tick logs it if a deadline is pending. Production drivers do not
// call it.
func (l *Leader) SkipTime(now, by uint64) {
	if l.enter(now) {
		l.clock.skip(by)
		l.stamps.skipped = true
	}
}

// Tick does what is due. NextDeadline is the log time at which the machine has something to expire.
func (l *Leader) Tick(now uint64, heard Heard, nextDeadline uint64, hasDeadline bool) {
	if !l.enter(now) {
		return
	}
	now = l.clock.seen
	l.proposals.backoff, l.barrier.backoff, l.expires = false, false, hasDeadline
	if l.clock.paused {
		if l.pause.drained(now) {
			l.clock.resume()
		} else if !l.pause.confirmed && !(l.barrier.inFlight && l.barrier.number > l.pause.barrier) {
			l.barrier.wanted = true
		}
	}
	if l.barrier.proved {
		l.unconfirmedSince = max(l.unconfirmedSince, l.barrier.lastProof)
	}
	if now-l.unconfirmedSince > l.cfg.BarrierTimeout {
		l.liveness.cutAll(heard, "the shard's leadership is not confirmed; connect to its master")
	}
	l.liveness.retryLatePongs()
	if !l.clock.paused {
		l.liveness.checkSilence(heard)
		if hasDeadline && l.stamps.due(&l.clock, nextDeadline) {
			l.noteBarrier() // what expires with this tick is to know of it
			l.ready.Tick = true
		}
	}
	if !l.barrier.inFlight && now-l.barrier.began >= l.cfg.SelfCheck {
		l.barrier.wanted = true
	}
	if now >= l.nextCompare {
		l.nextCompare = now + l.cfg.Compare
		l.ready.Compare = true
	}
	l.remotes.tick()
	l.subscribers.expire()
}

// Transfer prepares a leadership transfer. Connections with a missing ping are cut now, so that the
// log has the remaining time of their sessions; the new leader gives all others their whole
// timeout. Take returns the detaches. The driver proposes a CmdTransfer after them, and cancels it
// if the leadership stays. Nothing else changes until another leader takes over.
//
// More sessions than usual are detached at once; those over ExpiriesPerSec count as heard.
func (l *Leader) Transfer(now uint64, heard Heard) {
	if !l.enter(now) || l.clock.paused {
		return // what clients sent during a pause is still in the sockets
	}
	l.liveness.cutMissingPings(heard)
	l.proposals.limiter.tokens = ExpiriesPerSec
}

// Done reports the outcome of a command: applied, after the events of its batch were fed, or never
// to be applied.
func (l *Leader) Done(now, id uint64, applied bool) {
	if l.epoch == 0 {
		return
	}
	p, ok := l.proposals.done(id, applied)
	if !ok {
		return
	}
	l.enter(now)
	if !applied {
		l.unlogged = l.unlogged || p.stood
	}
	l.liveness.detachesDone(id, p.sessions, applied)
	l.remotes.releasesDone(id, p.remotes, applied)
	if p.update != nil {
		l.remotes.updateDone(p.update, applied)
	}
}

// Stats returns the counters.
func (l *Leader) Stats() Stats {
	s := l.stats
	s.RemoteSessions, s.Unsubscribed = l.remotes.count()
	return s
}
