package lead

import (
	"cmp"
	"slices"
)

// peer is the home side towards the leader of one shard that has guests of ours. It is soft: a new leadership starts without any, and peers subscribe again.
type peer struct {
	shard  uint64
	guest  uint64 // its leadership
	link   uint64 // its attempt
	subs   map[uint64]struct{}
	news   []entry // not confirmed, the first numbered base
	base   uint64
	sent   int    // of news, how many were sent
	acked  uint64 // what its last beat said
	heard  uint64
	unsent bool // in Leader.peerNews
	dead   bool // it was dropped: this attempt is refused for good, because what it had registered is forgotten
}

// asked is a question, or a beat, that waits for a barrier.
type asked struct {
	from uint64
	msg  askMsg
}

type beaten struct {
	from uint64
	msg  beatMsg
}

// newer compares attempts: of a newer leadership, or a later one of the same.
func newer(guest, link, thanGuest, thanLink uint64) bool {
	return guest > thanGuest || guest == thanGuest && link > thanLink
}

// peerFor is the subscriber behind a question, nil if it is an outdated or a dropped one. A newer attempt replaces all that was registered before.
func (l *Leader) peerFor(from, guest, link uint64) *peer {
	p := l.peers[from]
	switch {
	case p == nil:
	case newer(guest, link, p.guest, p.link):
		l.dropPeer(p)
		l.peerOrder = slices.DeleteFunc(l.peerOrder, func(x *peer) bool { return x == p })
	case guest == p.guest && link == p.link && !p.dead:
		return p
	default:
		return nil
	}
	p = &peer{shard: from, guest: guest, link: link, subs: make(map[uint64]struct{}), base: 1, heard: l.clock.seen}
	l.peers[from] = p
	at, _ := slices.BinarySearchFunc(l.peerOrder, from, func(p *peer, s uint64) int { return cmp.Compare(p.shard, s) })
	l.peerOrder = slices.Insert(l.peerOrder, at, p)
	return p
}

// dropPeer forgets what a subscriber registered. The record stays, so that the same attempt cannot register a part of its list again and be told that
// it is known.
func (l *Leader) dropPeer(p *peer) {
	for id := range p.subs { // the order of removals shows nowhere
		l.unsubscribe(id, p)
	}
	p.dead, p.subs, p.news, p.sent = true, nil, nil, 0
}

func (l *Leader) subscribe(id uint64, p *peer) {
	if _, ok := p.subs[id]; ok {
		return
	}
	p.subs[id] = struct{}{}
	list := l.subs[id]
	at, _ := slices.BinarySearchFunc(list, p, func(a, b *peer) int { return cmp.Compare(a.shard, b.shard) })
	l.subs[id] = slices.Insert(list, at, p)
}

func (l *Leader) unsubscribe(id uint64, p *peer) {
	list := slices.DeleteFunc(l.subs[id], func(x *peer) bool { return x == p })
	if len(list) == 0 {
		delete(l.subs, id)
	} else {
		l.subs[id] = list
	}
}

func (l *Leader) heardAsk(from uint64, m *askMsg) {
	if l.asking+len(m.entries) > MaxQuestions {
		l.stats.Dropped++
		return
	}
	l.asking += len(m.entries)
	l.askWait = append(l.askWait, asked{from, *m})
}

func (l *Leader) heardBeat(from uint64, m *beatMsg) {
	if len(l.beatWait) >= MaxQuestions {
		l.stats.Dropped++
		return
	}
	l.beatWait = append(l.beatWait, beaten{from, *m})
	p := l.peers[from]
	if p == nil || p.dead || p.guest != m.guest || p.link != m.link {
		return
	}
	p.heard = l.clock.seen
	if m.told > p.base+uint64(len(p.news)) {
		return // not ours
	}
	if m.told > p.base {
		n := int(m.told - p.base)
		p.news = slices.Delete(p.news, 0, n)
		p.base, p.sent = m.told, max(p.sent-n, 0)
	} else if p.sent > 0 && m.told == p.acked {
		p.sent = 0 // a whole period without progress: repeat
	}
	p.acked = m.told
	l.hasNews(p)
}

// answerAsks answers the questions whose barrier was successful, on the state st, which is at or after it. The rest waits for the next barrier.
//
// For each session in this order: register the subscriber, check that the home bucket is ACTIVE here under the epoch the subscriber named, look the
// session up. All three see one state, and events of later entries come after this call: whoever is not told now is registered then.
func (l *Leader) answerAsks(st State) {
	budget := MaxAnswered
	done := 0
	for done < len(l.askFly) && budget > 0 {
		q := &l.askFly[done]
		budget -= len(q.msg.entries)
		l.asking -= len(q.msg.entries)
		l.answer(q, st)
		done++
	}
	if rest := l.askFly[done:]; len(rest) > 0 {
		l.askWait = append(slices.Clone(rest), l.askWait...)
	}
	clear(l.askFly)
	l.askFly = l.askFly[:0]
}

func (l *Leader) answer(q *asked, st State) {
	p := l.peerFor(q.from, q.msg.guest, q.msg.link)
	if p == nil {
		if p = l.peers[q.from]; p.dead && p.guest == q.msg.guest && p.link == q.msg.link {
			l.send(p.shard, lifeMsg{home: l.epoch, guest: p.guest, link: p.link, stamp: 0}.append(nil))
		}
		return
	}
	p.heard = l.clock.seen
	m := answerMsg{home: l.epoch, guest: p.guest, link: p.link, question: q.msg.question}
	size := 0
	for i, a := range q.msg.entries {
		e := entry{session: a.session, verdict: verdictRetry}
		if epoch, active := st.HomeBucket(a.session); active && epoch == a.bucketEpoch || plantNonOwner {
			l.subscribe(a.session, p)
			v, alive := st.Session(a.session)
			switch {
			case !alive:
				// Final, so that there is nothing left to tell.
				delete(p.subs, a.session)
				l.unsubscribe(a.session, p)
				e.verdict = verdictGone
			case v.Attached && v.Epoch == a.known:
				e.verdict = verdictNone
			default:
				e.verdict, e.epoch, e.description = verdictAlive, v.Epoch, v.Description
				if !v.Attached {
					e.verdict = verdictDetached
				}
			}
		}
		if e.verdict != verdictNone {
			if size+e.size() > MaxPeerMessage-maxHead {
				m.count = uint64(i) - m.first
				l.send(p.shard, m.append(nil))
				m.first, m.entries, size = uint64(i), m.entries[:0], 0
			}
			size += e.size()
			m.entries = append(m.entries, e)
		}
	}
	m.count = uint64(len(q.msg.entries)) - m.first
	l.send(p.shard, m.append(nil))
}

// answerBeats says, behind the barrier, that this leadership lives and knows the subscriber, or that it does not.
func (l *Leader) answerBeats() {
	for _, b := range l.beatFly {
		p := l.peers[b.from]
		m := lifeMsg{home: l.epoch, guest: b.msg.guest, link: b.msg.link, stamp: b.msg.stamp}
		m.known = p != nil && !p.dead && p.guest == m.guest && p.link == m.link
		if p != nil && newer(p.guest, p.link, m.guest, m.link) {
			continue // an outdated beat
		}
		l.send(b.from, m.append(nil))
	}
	clear(l.beatFly)
	l.beatFly = l.beatFly[:0]
}

func (l *Leader) tellGone(id uint64) {
	list := l.subs[id]
	delete(l.subs, id)
	for _, p := range list {
		delete(p.subs, id)
		l.tell(p, entry{session: id, verdict: verdictGone})
	}
}

// tellAlive tells subscribers that a session was attached, or that it was detached.
func (l *Leader) tellAlive(id uint64, v verdict, attachEpoch uint64, description string) {
	for _, p := range slices.Clone(l.subs[id]) {
		l.tell(p, entry{session: id, verdict: v, epoch: attachEpoch, description: description})
	}
}

// tell queues news for a subscriber. One that does not confirm is dropped: its next beat learns it, and it subscribes anew.
func (l *Leader) tell(p *peer, e entry) {
	if p.dead {
		return
	}
	if len(p.news) >= MaxUntold {
		l.stats.DroppedPeers++
		l.dropPeer(p)
		return
	}
	p.news = append(p.news, e)
	l.hasNews(p)
}

func (l *Leader) hasNews(p *peer) {
	if !p.unsent && p.sent < len(p.news) {
		p.unsent = true
		l.peerNews = append(l.peerNews, p)
	}
}

// flushNews sends news, at most a window of unconfirmed ones per subscriber.
func (l *Leader) flushNews() {
	for _, p := range l.peerNews {
		p.unsent = false
		if p.dead || l.peers[p.shard] != p {
			continue
		}
		for p.sent < len(p.news) && p.sent < maxTellMessages*maxTellEntries {
			m := newsMsg{home: l.epoch, guest: p.guest, link: p.link, first: p.base + uint64(p.sent)}
			size := 0
			n := p.sent
			for n < len(p.news) && n-p.sent < maxTellEntries && size+p.news[n].size() <= MaxPeerMessage-maxHead {
				size += p.news[n].size()
				n++
			}
			m.entries = p.news[p.sent:n]
			p.sent = n
			l.send(p.shard, m.append(nil))
		}
	}
	clear(l.peerNews)
	l.peerNews = l.peerNews[:0]
}

// peersTick forgets subscribers that were silent for long: their leadership ended, or they have no guests of ours any more.
func (l *Leader) peersTick() {
	for _, p := range l.peerOrder {
		if !p.dead && l.clock.seen-p.heard > forgetPeer {
			l.dropPeer(p)
		}
	}
}
