package lead

import (
	"cmp"
	"slices"
)

// link is the guest side towards one home shard.
//
// Its number names an attempt to subscribe the whole list: whatever puts a subscription in doubt (no barriered sign of life for a self-check period,
// another home leader) starts a new one, in which every guest is asked about again. A home forgets an older number when it sees a newer one.
type link struct {
	shard  uint64
	number uint64
	home   uint64 // leadership that answered under this number, 0 is none
	told   uint64 // number of the next news expected

	ask, asked, sure guestList // to be asked; asked; subscribed, oldest confirmation first
	questions        []*question

	alive    uint64 // when the newest question or beat was sent that was answered behind a barrier
	nextBeat uint64
	wait     uint64 // how long an answer is waited for
	empty    uint64 // since when no guest is on it
}

// question is one that waits for its answer. An entry is 0 once it was answered.
type question struct {
	n, sent  uint64
	sessions []uint64
	left     int
}

func (l *Leader) linkTo(shard uint64) *link {
	if k := l.links[shard]; k != nil {
		return k
	}
	k := &link{shard: shard}
	l.reset(k)
	l.links[shard] = k
	at, _ := slices.BinarySearchFunc(l.linkOrder, shard, func(k *link, s uint64) int { return cmp.Compare(k.shard, s) })
	l.linkOrder = slices.Insert(l.linkOrder, at, k)
	return k
}

// reset starts a new attempt: nothing is believed to be subscribed, all are asked about again.
func (l *Leader) reset(k *link) {
	l.linkNumber++
	k.number, k.home, k.told = l.linkNumber, 0, 1
	k.alive, k.empty = l.clock.seen, l.clock.seen
	k.wait = l.cfg.SelfCheck
	k.questions = k.questions[:0]
	for _, q := range []*guestList{&k.asked, &k.sure} {
		for q.n > 0 {
			l.again(k, q.first)
		}
	}
}

func (l *Leader) again(k *link, g *guest) {
	g.unlist()
	g.question = 0
	k.ask.push(g)
}

// linkTick does what is due on a link. It returns false for one without use.
func (l *Leader) linkTick(k *link) bool {
	now := l.clock.seen
	if k.ask.n+k.asked.n+k.sure.n > 0 {
		k.empty = now
	} else if now-k.empty > l.cfg.SelfCheck {
		return false
	}
	if k.home != 0 && now-k.alive > l.cfg.SelfCheck && !plantLinkKept {
		l.stats.LostLinks++
		l.reset(k)
	}
	late := false
	for len(k.questions) > 0 && now-k.questions[0].sent > k.wait {
		late = true
		for _, id := range k.questions[0].sessions {
			if g := l.guests[id]; g != nil && g.link == k && g.question == k.questions[0].n {
				l.again(k, g)
			}
		}
		k.questions = slices.Delete(k.questions, 0, 1)
	}
	if late {
		k.wait = min(2*k.wait, 8*l.cfg.SelfCheck)
	}
	for k.sure.n > 0 && now-k.sure.first.at >= l.cfg.Compare {
		l.again(k, k.sure.first)
	}
	l.askNow(k)
	if k.home != 0 && now >= k.nextBeat {
		k.nextBeat = now + l.cfg.SelfCheck/2
		l.send(k.shard, beatMsg{guest: l.epoch, link: k.number, stamp: now, told: k.told}.append(nil))
	}
	return true
}

// askNow sends as many questions as may be unanswered at a time.
func (l *Leader) askNow(k *link) {
	for k.ask.n > 0 && len(k.questions) < MaxAsks {
		l.question++
		q := &question{n: l.question, sent: l.clock.seen}
		m := askMsg{guest: l.epoch, link: k.number, question: q.n}
		for k.ask.n > 0 && len(q.sessions) < MaxAsk {
			g := k.ask.first
			k.ask.remove(g)
			k.asked.push(g)
			g.question = q.n
			q.sessions = append(q.sessions, g.session)
			m.entries = append(m.entries, askEntry{g.session, g.bucketEpoch, g.hasSeen()})
		}
		q.left = len(q.sessions)
		k.questions = append(k.questions, q)
		l.send(k.shard, m.append(nil))
		l.stats.Asked += uint64(q.left)
	}
}

// heardAnswer is the answer, or a part of it, to a question.
//
// An answer speaks about the records that asked: "alive" counts only for a record whose question it is, under the present attempt. "Gone" always counts.
func (l *Leader) heardAnswer(from uint64, m *answerMsg, st State) {
	if m.guest != l.epoch {
		return
	}
	k := l.links[from]
	current := k != nil && m.link == k.number && m.home >= k.home
	if current && k.home != 0 && m.home > k.home && !plantHomeKept {
		// Another leader of the home: what the one before it registered is void.
		l.reset(k)
		current = false
	}
	var q *question
	if current {
		for _, x := range k.questions {
			if x.n == m.question && m.first+m.count <= uint64(len(x.sessions)) {
				q = x
			}
		}
	}
	if q != nil {
		if k.home == 0 {
			k.home, k.nextBeat = m.home, l.clock.seen+l.cfg.SelfCheck/2
		}
		k.alive = max(k.alive, q.sent)
		k.wait = l.cfg.SelfCheck
	}
	for i := range m.entries {
		e := &m.entries[i]
		switch e.verdict {
		case verdictGone:
			l.goneFor(e.session)
		case verdictAlive, verdictDetached:
			l.seen(e, st)
		case verdictRetry:
			if plantRetryIsGone {
				l.goneFor(e.session)
				continue
			}
			if g := l.guests[e.session]; q != nil && g != nil && g.link == k && g.question == q.n {
				l.later(g)
			}
		}
	}
	if q == nil {
		return
	}
	for i := m.first; i < m.first+m.count; i++ {
		id := q.sessions[i]
		if id == 0 {
			continue
		}
		q.sessions[i] = 0
		q.left--
		if g := l.guests[id]; g != nil && g.link == k && g.question == q.n {
			l.sure(g)
		}
	}
	if q.left == 0 {
		k.questions = slices.DeleteFunc(k.questions, func(x *question) bool { return x == q })
		if k.ask.n >= MaxAsk {
			l.askNow(k)
		}
	}
}

// heardLife is the sign of life of a home, sent behind a barrier that began after the beat arrived there; or its word that it does not know this attempt.
func (l *Leader) heardLife(from uint64, m *lifeMsg) {
	k := l.links[from]
	switch {
	case m.guest != l.epoch || k == nil || m.link != k.number || m.home < k.home || m.stamp > l.clock.seen:
		return
	case !plantHomeKept && (!m.known || k.home != 0 && m.home > k.home):
		l.stats.LostLinks++
		l.reset(k)
	case k.home != 0:
		k.alive = max(k.alive, m.stamp)
	}
}

// heardNews is what a home says unasked. News are numbered within a leadership of the home and an attempt of the link, and taken in order; the next
// beat says how far, and the home repeats what is missing.
func (l *Leader) heardNews(from uint64, m *newsMsg, st State) {
	if m.guest != l.epoch {
		return
	}
	k := l.links[from]
	if k != nil && m.link == k.number && k.home != 0 && m.home == k.home && m.first <= k.told {
		k.told = max(k.told, m.first+uint64(len(m.entries)))
	}
	for i := range m.entries {
		switch e := &m.entries[i]; e.verdict {
		case verdictGone:
			l.goneFor(e.session)
		case verdictAlive, verdictDetached:
			l.seen(e, st)
		}
	}
}

func (l *Leader) send(to uint64, msg []byte) {
	l.ready.Peers = append(l.ready.Peers, PeerMsg{to, msg})
}
