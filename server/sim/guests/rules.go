package guests

// record brings the leader's belief in line after a change of what a shard holds: a guest has a record and a leader that is to ask, anything else has none.
func (m *model) record(s *state, i uint8) {
	b := &s.shards[i].belief
	switch {
	case !s.guest(i):
		if b.is == noRecord {
			return
		}
		if m.fault == Unsubscribe && (b.is == sure || b.is == asked) {
			s.unsub = question{is: 1, from: i, to: b.home}
		}
		*b = belief{home: shards}
		s.outdate(i, false)
	case b.is == noRecord:
		*b = belief{is: toAsk, home: shards}
		if m.fault == HomeTells {
			b.is = trusted
		}
	}
}

// outdate marks what is under way about the present record as outdated; with link also what belongs to the present attempt.
func (s *state) outdate(i uint8, link bool) {
	for k := range s.questions {
		if q := &s.questions[k]; q.is != 0 && q.from == i {
			q.present = 0
			if link {
				q.link = 0
			}
		}
	}
	for k := range s.answers {
		if a := &s.answers[k]; a.is != 0 && a.to == i {
			a.present = 0
		}
	}
	if s.lookup.is != 0 && s.lookup.to == i {
		s.lookup.present = 0
	}
	if !link {
		return
	}
	for k := range s.shards {
		if s.shards[k].subs[i] == 1 {
			s.shards[k].subs[i] = 2
		}
	}
	for k := range s.news {
		if n := &s.news[k]; n.is != 0 && n.to == i {
			n.lossy = 1
		}
	}
}

// askAgain gives up the present question.
func (s *state) askAgain(i uint8, link bool) {
	s.shards[i].belief = belief{is: toAsk, home: shards}
	s.outdate(i, link)
}

// acquire arrives where the semaphore's bucket is.
func (m *model) acquire(s *state, i, epoch uint8) {
	x := &s.shards[i]
	if x.tomb == 1 && m.fault != GoneNotFinal {
		return
	}
	if s.local(i) {
		if h := &x.copies[home]; h.session != alive || h.attach != epoch {
			return
		}
	} else if epoch < x.attach {
		return
	}
	if x.tomb == 1 {
		s.broken = grantedGone
	}
	x.copies[sem].held = 1
	x.attach = max(x.attach, epoch)
	if s.gone == 0 {
		s.owned = 1
	}
	m.record(s, i)
}

// end ends the session in the copy of its home at i.
func (m *model) end(s *state, i uint8) {
	x := &s.shards[i]
	x.copies[home].session = ended
	if x.copies[home].is == active {
		s.gone, s.owned = 1, 0
		if x.copies[sem].is == active {
			x.copies[sem].held = 0
		}
	}
	if m.fault == HomeTells {
		if to := s.owners[sem][x.knows[sem]]; to != i {
			s.addNews(news{is: sayGone, from: i, to: to})
		}
	}
	for k := range x.subs {
		if x.subs[k] == 1 {
			s.addNews(news{is: sayGone, from: i, to: uint8(k)})
		}
		x.subs[k] = 0
	}
	m.record(s, i)
}

// takeOver attaches the session to another client, under a higher epoch.
func (m *model) takeOver(s *state, i uint8) {
	x := &s.shards[i]
	x.copies[home].attach++
	s.attach++
	if m.fault == AttachNotTold {
		return
	}
	for k := range x.subs {
		if x.subs[k] == 1 {
			s.addNews(news{is: sayAlive, from: i, to: uint8(k), attach: x.copies[home].attach})
		}
	}
}

// newLeader changes the leader of a shard: soft state goes, what it had sent goes on.
func (m *model) newLeader(s *state, i uint8) {
	x := &s.shards[i]
	if m.fault == EarlyBarrier && x.haunts == 0 {
		x.haunts, x.ghost = 1, x.copies[home]
	}
	x.subs = [shards]uint8{}
	if s.lookup.is != 0 && s.lookup.from == i {
		s.lookup = answer{}
	}
	x.belief = belief{home: shards}
	s.outdate(i, true)
	m.record(s, i)
	if m.fault == NoGuestResub && x.belief.is == toAsk {
		x.belief.is = trusted
	}
	for k := range s.news {
		if n := &s.news[k]; n.is != 0 && n.from == i {
			n.lossy = 1
		}
	}
	for k := range s.answers {
		if a := &s.answers[k]; a.is != 0 && a.from == i {
			a.leader = 0
		}
	}
	for k := range s.shards {
		if b := &s.shards[k].belief; b.is == sure && b.home == i {
			b.stale = 1
		}
	}
}

// learn is a leader hearing of the newest place of a bucket. Guests of a home with another owner or another epoch subscribe anew.
func (m *model) learn(s *state, i, b uint8) {
	x := &s.shards[i]
	x.knows[b] = s.newest[b]
	owner, epoch := s.owners[b][x.knows[b]], s.epochs[b][x.knows[b]]
	if k := x.belief; b == home && (k.is == asked || k.is == sure) && (k.home != owner || k.epoch != epoch && m.fault != NoEpochResub) {
		s.askAgain(i, false)
	}
}

func (m *model) ask(s *state, i uint8) {
	x := &s.shards[i]
	x.belief.is = asked
	x.belief.home, x.belief.epoch = s.owners[home][x.knows[home]], s.epochs[home][x.knows[home]]
	s.addQuestion(question{is: 1, from: i, to: x.belief.home, epoch: x.belief.epoch, present: 1, link: 1})
}

// verdict is what a home table says about the session.
func (m *model) verdict(h *copyOf, epoch uint8) uint8 {
	if (h.is != active || h.epoch != epoch) && m.fault != NonOwnerAnswers {
		return sayRetry
	}
	if h.session == alive {
		return sayAlive
	}
	return sayGone
}

// hearQuestion answers a question behind a barrier that began after it arrived. Such a barrier ends well only if the leadership is the present one
// at some moment after the arrival, and looking at the table at that moment or later is looking at this state or at one that comes: an answer of a
// leadership deposed in between is one sent before, and delayed.
func (m *model) hearQuestion(s *state, q question) {
	x := &s.shards[q.to]
	v := m.verdict(&x.copies[home], q.epoch)
	a := answer{is: v, from: q.to, to: q.from, present: q.present, leader: 1}
	if v == sayAlive && m.fault != AttachNotTold {
		a.attach = x.copies[home].attach
	}
	if m.fault == LookupFirst && v == sayAlive {
		s.lookup = a
		return
	}
	m.register(s, q.to, q.from, q.link == 1, v)
	s.addAnswer(a)
}

func (m *model) register(s *state, at, by uint8, link bool, v uint8) {
	x := &s.shards[at]
	switch {
	case v == sayGone:
		x.subs[by] = 0
	case v == sayRetry:
	case link:
		x.subs[by] = 1
	case x.subs[by] == 0:
		x.subs[by] = 2
	}
}

// hearAnswer: "gone" always counts, "alive" and "retry" for the record that asked.
func (m *model) hearAnswer(s *state, a answer) {
	x := &s.shards[a.to]
	b := &x.belief
	if b.is == noRecord {
		return
	}
	present := a.present == 1 && b.is == asked
	switch a.is {
	case sayGone:
		b.is, b.home, b.epoch, b.stale = goneKnown, shards, 0, 0
		s.outdate(a.to, false)
	case sayAlive:
		x.attach = max(x.attach, a.attach)
		if present || m.fault == OldAnswer && (b.is == asked || b.is == toAsk) || m.fault == GoneNotFinal && b.is == goneKnown {
			b.is, b.home, b.stale = sure, a.from, 1-a.leader
		}
	case sayRetry:
		if present {
			s.askAgain(a.to, false)
		}
	}
}

func (m *model) hearNews(s *state, n news) {
	x := &s.shards[n.to]
	if x.belief.is == noRecord {
		return
	}
	if n.is == sayGone {
		x.belief = belief{is: goneKnown, home: shards}
		s.outdate(n.to, false)
		return
	}
	x.attach = max(x.attach, n.attach)
}

// release is the logged release of a session that is gone.
func (m *model) release(s *state, i uint8) {
	x := &s.shards[i]
	x.tomb = 1
	if x.copies[sem].is == active {
		x.copies[sem].held = 0
	}
	m.record(s, i)
}

func (s *state) addQuestion(q question) {
	for k := range s.questions {
		if s.questions[k].is == 0 {
			s.questions[k] = q
			return
		}
	}
}

func (s *state) addAnswer(a answer) {
	for k := range s.answers {
		if s.answers[k].is == 0 {
			s.answers[k] = a
			return
		}
	}
}

func (s *state) addNews(n news) {
	for k := range s.news {
		if s.news[k] == n {
			return
		}
	}
	for k := range s.news {
		if s.news[k].is == 0 {
			s.news[k] = n
			return
		}
	}
	s.broken = stuck // the model has too few places; no scenario comes here
}
