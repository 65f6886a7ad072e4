package remotesession

import "slices"

// updateRecord updates the leader's belief after a change of what a shard holds. A remote session
// has a record and a leader that must ask; anything else has none.
func (m *model) updateRecord(s *state, i uint8) {
	b := &s.shards[i].belief
	switch {
	case !s.isRemote(i):
		if b.state == noRecord {
			return
		}
		if m.fault == Unsubscribe && (b.state == subscribed || b.state == asked) {
			s.unsubscribe = question{sent: 1, from: i, to: b.home}
		}
		*b = belief{home: shards}
		s.markOutdated(i, false)
	case b.state == noRecord:
		*b = belief{state: toAsk, home: shards}
		if m.fault == HomePushes {
			b.state = assumed
		}
	}
}

// markOutdated marks what is in flight about the present record as outdated; with link also what
// belongs to the present attempt.
func (s *state) markOutdated(i uint8, link bool) {
	for k := range s.questions {
		if q := &s.questions[k]; q.sent != 0 && q.from == i {
			q.current = 0
			if link {
				q.link = 0
			}
		}
	}
	for k := range s.answers {
		if a := &s.answers[k]; a.verdict != 0 && a.to == i {
			a.current = 0
		}
	}
	if s.lookup.verdict != 0 && s.lookup.to == i {
		s.lookup.current = 0
	}
	if !link {
		return
	}
	for k := range s.shards {
		if s.shards[k].subs[i] == 1 {
			s.shards[k].subs[i] = 2
		}
	}
	for k := range s.notices {
		if n := &s.notices[k]; n.verdict != 0 && n.to == i {
			n.lossy = 1
		}
	}
}

// askAgain abandons the present question.
func (s *state) askAgain(i uint8, link bool) {
	s.shards[i].belief = belief{state: toAsk, home: shards}
	s.markOutdated(i, link)
}

// acquire arrives where the semaphore's bucket is.
func (m *model) acquire(s *state, i, epoch uint8) {
	x := &s.shards[i]
	if x.tombstone == 1 && m.fault != GoneNotFinal {
		return
	}
	if s.local(i) {
		if h := &x.copies[home]; h.session != alive || h.attach != epoch {
			return
		}
	} else if epoch < x.attach {
		return
	}
	if x.tombstone == 1 {
		s.violation = grantedGone
	}
	x.copies[sem].held = 1
	x.attach = max(x.attach, epoch)
	if s.gone == 0 {
		s.owned = 1
	}
	m.updateRecord(s, i)
}

// end ends the session in the copy of its home at i.
func (m *model) end(s *state, i uint8) {
	x := &s.shards[i]
	x.copies[home].session = ended
	if x.copies[home].state == active {
		s.gone, s.owned = 1, 0
		if x.copies[sem].state == active {
			x.copies[sem].held = 0
		}
	}
	if m.fault == HomePushes {
		if to := s.owners[sem][x.knows[sem]]; to != i {
			s.addNotice(notice{verdict: verdictGone, from: i, to: to})
		}
	}
	for k := range x.subs {
		if x.subs[k] == 1 {
			s.addNotice(notice{verdict: verdictGone, from: i, to: uint8(k)})
		}
		x.subs[k] = 0
	}
	m.updateRecord(s, i)
}

// takeOver attaches the session to another client, under a higher epoch.
func (m *model) takeOver(s *state, i uint8) {
	x := &s.shards[i]
	x.copies[home].attach++
	s.attach++
	if m.fault == AttachNotSent {
		return
	}
	for k := range x.subs {
		if x.subs[k] == 1 {
			s.addNotice(notice{verdict: verdictAlive, from: i, to: uint8(k), attach: x.copies[home].attach})
		}
	}
}

// newLeader changes the leader of a shard: soft state goes, what it had sent goes on.
func (m *model) newLeader(s *state, i uint8) {
	x := &s.shards[i]
	if m.fault == EarlyBarrier && x.deposed == 0 {
		x.deposed, x.deposedTable = 1, x.copies[home]
	}
	x.subs = [shards]uint8{}
	if s.lookup.verdict != 0 && s.lookup.from == i {
		s.lookup = answer{}
	}
	x.belief = belief{home: shards}
	s.markOutdated(i, true)
	m.updateRecord(s, i)
	if m.fault == NoRemoteResub && x.belief.state == toAsk {
		x.belief.state = assumed
	}
	for k := range s.notices {
		if n := &s.notices[k]; n.verdict != 0 && n.from == i {
			n.lossy = 1
		}
	}
	for k := range s.answers {
		if a := &s.answers[k]; a.verdict != 0 && a.from == i {
			a.leader = 0
		}
	}
	for k := range s.shards {
		if b := &s.shards[k].belief; b.state == subscribed && b.home == i {
			b.stale = 1
		}
	}
}

// updateMap is a leader learning the newest place of a bucket. It subscribes again for a home with
// another owner or another epoch.
func (m *model) updateMap(s *state, i, b uint8) {
	x := &s.shards[i]
	x.knows[b] = s.newest[b]
	owner, epoch := s.owners[b][x.knows[b]], s.epochs[b][x.knows[b]]
	if k := x.belief; b == home && (k.state == asked || k.state == subscribed) &&
		(k.home != owner || k.epoch != epoch && m.fault != NoEpochResub) {
		s.askAgain(i, false)
	}
}

func (m *model) ask(s *state, i uint8) {
	x := &s.shards[i]
	x.belief.state = asked
	x.belief.home, x.belief.epoch = s.owners[home][x.knows[home]], s.epochs[home][x.knows[home]]
	s.addQuestion(question{sent: 1, from: i, to: x.belief.home, epoch: x.belief.epoch, current: 1, link: 1})
}

// verdict is what a home table says about the session.
func (m *model) verdict(h *bucketCopy, epoch uint8) uint8 {
	if (h.state != active || h.epoch != epoch) && m.fault != NonOwnerAnswers {
		return verdictRetry
	}
	if h.session == alive {
		return verdictAlive
	}
	return verdictGone
}

// receiveQuestion answers a question behind a barrier that began after it arrived. Such a barrier
// succeeds only if the leadership is the present one at some moment after the arrival. Looking at
// the table at that moment or later is looking at this state or at a later one. An answer of a
// leadership deposed in between equals one that was sent before, and delayed.
func (m *model) receiveQuestion(s *state, q question) {
	x := &s.shards[q.to]
	v := m.verdict(&x.copies[home], q.epoch)
	a := answer{verdict: v, from: q.to, to: q.from, current: q.current, leader: 1}
	if v == verdictAlive && m.fault != AttachNotSent {
		a.attach = x.copies[home].attach
	}
	if m.fault == LookupFirst && v == verdictAlive {
		s.lookup = a
		return
	}
	m.register(s, q.to, q.from, q.link == 1, v)
	s.addAnswer(a)
}

func (m *model) register(s *state, at, by uint8, link bool, v uint8) {
	x := &s.shards[at]
	switch {
	case v == verdictGone:
		x.subs[by] = 0
	case v == verdictRetry:
	case link:
		x.subs[by] = 1
	case x.subs[by] == 0:
		x.subs[by] = 2
	}
}

// receiveAnswer: "gone" always counts, "alive" and "retry" count for the record that asked.
func (m *model) receiveAnswer(s *state, a answer) {
	x := &s.shards[a.to]
	b := &x.belief
	if b.state == noRecord {
		return
	}
	present := a.current == 1 && b.state == asked
	switch a.verdict {
	case verdictGone:
		b.state, b.home, b.epoch, b.stale = toRelease, shards, 0, 0
		s.markOutdated(a.to, false)
	case verdictAlive:
		x.attach = max(x.attach, a.attach)
		if present || m.fault == StaleAnswer && (b.state == asked || b.state == toAsk) || m.fault == GoneNotFinal && b.state == toRelease {
			b.state, b.home, b.stale = subscribed, a.from, 1-a.leader
		}
	case verdictRetry:
		if present {
			s.askAgain(a.to, false)
		}
	}
}

func (m *model) receiveNotice(s *state, n notice) {
	x := &s.shards[n.to]
	if x.belief.state == noRecord {
		return
	}
	if n.verdict == verdictGone {
		x.belief = belief{state: toRelease, home: shards}
		s.markOutdated(n.to, false)
		return
	}
	x.attach = max(x.attach, n.attach)
}

// release is the logged release of a session that is gone.
func (m *model) release(s *state, i uint8) {
	x := &s.shards[i]
	x.tombstone = 1
	if x.copies[sem].state == active {
		x.copies[sem].held = 0
	}
	m.updateRecord(s, i)
}

// put puts a message into an empty place, if there is one.
func put[T comparable](places []T, message T) bool {
	var empty T
	i := slices.Index(places, empty)
	if i >= 0 {
		places[i] = message
	}
	return i >= 0
}

func (s *state) addQuestion(q question) { put(s.questions[:], q) }
func (s *state) addAnswer(a answer)     { put(s.answers[:], a) }

func (s *state) addNotice(n notice) {
	if !slices.Contains(s.notices[:], n) && !put(s.notices[:], n) {
		s.violation = stuck // the model has too few places; no scenario comes here
	}
}
