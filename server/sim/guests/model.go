package guests

import "fmt"

// model is the protocol, with one rule left out.
type model struct{ fault Fault }

// action is one thing that may happen.
type action struct{ is, a, b uint8 }

const (
	actBorn = 1 + iota
	actAcquire
	actHearAcquire
	actRelease
	actAttach
	actEnd
	actLeader
	actMove
	actStep
	actStepTwice
	actRepeat
	actAbort
	actLearn
	actAsk
	actHearQuestion
	actHearQuestionTwice
	actLoseQuestion
	actGhost
	actRegister
	actHearAnswer
	actHearAnswerTwice
	actLoseAnswer
	actHearNews
	actLoseNews
	actLink
	actReset
	actTimeout
	actGone
	actGoneLost
	actUnsubscribe
	numActions
)

// steps calls yield with every state that may follow s, and with what happens.
func (m *model) steps(s *state, yield func(action, *state)) {
	var n state
	do := func(is, a, b uint8, f func()) {
		n = *s
		f()
		n.sort()
		m.check(&n)
		yield(action{is, a, b}, &n)
	}

	// Clients.
	h, g := s.activeAt(home), s.activeAt(sem)
	if s.born == 0 && h < shards {
		do(actBorn, h, 0, func() { n.born, n.shards[h].copies[home].session = 1, alive })
	}
	if s.left.acquires > 0 && (s.born == 1 || m.fault == EarlyTicket) && s.gone == 0 {
		for e := uint8(1); e <= s.attach; e++ {
			if s.acquires[e] == 0 {
				do(actAcquire, e, 0, func() { n.acquires[e]++; n.left.acquires-- })
			}
		}
	}
	for e := uint8(1); e < uint8(len(s.acquires)); e++ {
		if s.acquires[e] == 0 {
			continue
		}
		if g < shards {
			do(actHearAcquire, g, e, func() { n.acquires[e]--; m.acquire(&n, g, e) })
		}
		for i := range uint8(shards) {
			if m.fault == FrozenGrants && s.shards[i].copies[sem].is == frozen {
				do(actHearAcquire, i, e, func() { n.acquires[e]--; m.acquire(&n, i, e) })
			}
		}
	}
	if s.left.releases > 0 && s.owned == 1 && g < shards && s.shards[g].copies[sem].held == 1 {
		do(actRelease, g, 0, func() {
			n.left.releases--
			n.shards[g].copies[sem].held, n.owned = 0, 0
			m.record(&n, g)
		})
	}

	// The session at its home.
	for i := range uint8(shards) {
		x := &s.shards[i].copies[home]
		if x.session != alive {
			continue
		}
		if s.left.ends > 0 && (x.is == active || m.fault == FrozenExpires && x.is == frozen) {
			do(actEnd, i, 0, func() { n.left.ends--; m.end(&n, i) })
		}
		if s.left.attaches > 0 && x.is == active {
			do(actAttach, i, 0, func() { n.left.attaches--; m.takeOver(&n, i) })
		}
	}

	m.faults(s, &n, do)
	m.moveSteps(s, &n, do)
	m.talk(s, &n, do)
}

// faults are leader changes and what gets lost or repeated.
func (m *model) faults(s, n *state, do func(is, a, b uint8, f func())) {
	if s.left.leaders > 0 {
		for i := range uint8(shards) {
			do(actLeader, i, 0, func() { n.left.leaders--; m.newLeader(n, i) })
		}
	}
	if s.left.resets > 0 {
		for i := range uint8(shards) {
			switch s.shards[i].belief.is {
			case asked:
				do(actTimeout, i, 0, func() { n.left.resets--; n.askAgain(i, false) })
				do(actReset, i, 0, func() { n.left.resets--; n.askAgain(i, true) })
			case sure:
				do(actReset, i, 0, func() { n.left.resets--; n.askAgain(i, true) })
			}
		}
	}
	for k := range uint8(len(s.questions)) {
		if s.questions[k].is != 0 {
			do(actLoseQuestion, k, 0, func() { n.questions[k] = question{} })
		}
	}
	for k := range uint8(len(s.answers)) {
		if s.answers[k].is != 0 {
			do(actLoseAnswer, k, 0, func() { n.answers[k] = answer{} })
		}
	}
	for k := range uint8(len(s.news)) {
		if s.news[k].is != 0 && s.news[k].lossy == 1 {
			do(actLoseNews, k, 0, func() { n.news[k] = news{} })
		}
	}
	for i := range uint8(shards) {
		if m.fault == ReleaseOnce && s.shards[i].belief.is == goneKnown {
			do(actGoneLost, i, 0, func() { n.shards[i].belief.is = trusted })
		}
	}
}

func (m *model) moveSteps(s, n *state, do func(is, a, b uint8, f func())) {
	for b := range uint8(2) {
		left := s.left.homeMoves
		if b == sem {
			left = s.left.semMoves
		}
		v := s.moves[b]
		if v.phase == resting {
			for to := range uint8(shards) {
				if left > 0 && to != s.owners[b][s.newest[b]] {
					do(actMove, b, to, func() {
						if b == home {
							n.left.homeMoves--
						} else {
							n.left.semMoves--
						}
						n.moves[b] = move{begun, to, n.nextEp[b]}
						n.nextEp[b]++
					})
				}
			}
			continue
		}
		do(actStep, b, v.phase, func() { m.step(n, b) })
		if s.left.dups > 0 && s.dup.is == 0 && v.phase != isThere {
			do(actStepTwice, b, v.phase, func() { n.left.dups--; n.dup = m.step(n, b) })
		}
		if s.left.aborts > 0 && v.phase <= isThere {
			do(actAbort, b, 0, func() { n.left.aborts--; m.abort(n, b) })
		}
	}
	if s.dup.is != 0 {
		do(actRepeat, s.dup.is, s.dup.at, func() { m.apply(n, &n.dup); n.dup = command{} })
	}
	for i := range uint8(shards) {
		for b := range uint8(2) {
			if s.shards[i].knows[b] != s.newest[b] && (b == home || m.fault == HomeTells) {
				do(actLearn, i, b, func() { m.learn(n, i, b) })
			}
		}
	}
}

// talk is the protocol itself.
func (m *model) talk(s, n *state, do func(is, a, b uint8, f func())) {
	for i := range uint8(shards) {
		x := &s.shards[i]
		switch x.belief.is {
		case toAsk:
			if s.questions[1].is == 0 {
				do(actAsk, i, 0, func() { m.ask(n, i) })
			}
		case asked:
			if !s.underWay(i) {
				do(actTimeout, i, 0, func() { n.askAgain(i, false) })
			}
		case sure:
			// The barriered sign of life is not there, or is another leader's: a lost link.
			if x.belief.stale == 1 && m.fault != NoHomeResub {
				do(actLink, i, 0, func() { n.askAgain(i, true) })
			}
		case goneKnown:
			do(actGone, i, 0, func() { m.release(n, i) })
		}
	}
	for k := range uint8(len(s.questions)) {
		q := s.questions[k]
		if q.is == 0 {
			continue
		}
		do(actHearQuestion, q.to, q.from, func() { n.questions[k] = question{}; m.hearQuestion(n, q) })
		if s.left.dups > 0 {
			do(actHearQuestionTwice, q.to, q.from, func() { n.left.dups--; m.hearQuestion(n, q) })
		}
		if x := &s.shards[q.to]; x.haunts == 1 {
			do(actGhost, q.to, q.from, func() {
				n.questions[k] = question{}
				n.shards[q.to].haunts, n.shards[q.to].ghost = 2, copyOf{}
				n.addAnswer(answer{is: m.verdict(&x.ghost, q.epoch), from: q.to, to: q.from, attach: x.ghost.attach, present: q.present})
			})
		}
	}
	for k := range uint8(len(s.answers)) {
		a := s.answers[k]
		if a.is == 0 {
			continue
		}
		do(actHearAnswer, a.to, a.is, func() { n.answers[k] = answer{}; m.hearAnswer(n, a) })
		if s.left.dups > 0 {
			do(actHearAnswerTwice, a.to, a.is, func() { n.left.dups--; m.hearAnswer(n, a) })
		}
	}
	for k := range uint8(len(s.news)) {
		v := s.news[k]
		if v.is == 0 {
			continue
		}
		do(actHearNews, v.to, v.is, func() { n.news[k] = news{}; m.hearNews(n, v) })
	}
	if u := s.unsub; u.is != 0 {
		do(actUnsubscribe, u.to, u.from, func() {
			n.unsub = question{}
			if u.to < shards {
				n.shards[u.to].subs[u.from] = 0
			}
		})
	}
	if a := s.lookup; a.is != 0 {
		do(actRegister, a.from, a.to, func() {
			n.lookup = answer{}
			m.register(n, a.from, a.to, true, a.is)
			n.addAnswer(a)
		})
	}
}

// underWay says whether an answer to the present question may still come.
func (s *state) underWay(i uint8) bool {
	for _, q := range s.questions {
		if q.is != 0 && q.from == i && q.present == 1 {
			return true
		}
	}
	for _, a := range s.answers {
		if a.is != 0 && a.to == i && a.present == 1 {
			return true
		}
	}
	return s.lookup.is != 0 && s.lookup.to == i && s.lookup.present == 1
}

// check looks for what must never be.
func (m *model) check(s *state) {
	if s.broken != fine {
		return
	}
	for b := range uint8(2) {
		n := 0
		for i := range s.shards {
			if s.shards[i].copies[b].is == active {
				n++
			}
		}
		if n > 1 {
			s.broken = twoOwners
			return
		}
	}
	if g := s.activeAt(sem); s.owned == 1 && s.gone == 0 && g < shards && s.shards[g].copies[sem].held == 0 {
		s.broken = lost
	}
}

var shardNames = [...]string{"X", "Y", "Z", "nobody"}

var phaseNames = [...]string{"", "freeze", "import the first chunk", "import the last one", "commit", "activate", "drop", "activate the owner's again", "drop the copy"}

var bucketNames = [...]string{"home bucket", "semaphore's bucket"}

var sayNames = [...]string{"", "alive", "gone", "retry"}

func (a action) String() string {
	x := func(i uint8) string { return shardNames[i] }
	switch a.is {
	case actBorn:
		return fmt.Sprintf("the session starts at %s", x(a.a))
	case actAcquire:
		return fmt.Sprintf("the client with attach epoch %d sends an acquire", a.a)
	case actHearAcquire:
		return fmt.Sprintf("%s gets the acquire of attach epoch %d", x(a.a), a.b)
	case actRelease:
		return fmt.Sprintf("the client releases at %s", x(a.a))
	case actAttach:
		return fmt.Sprintf("another client takes the session over at %s", x(a.a))
	case actEnd:
		return fmt.Sprintf("the session ends at %s", x(a.a))
	case actLeader:
		return fmt.Sprintf("%s gets a new leader", x(a.a))
	case actMove:
		return fmt.Sprintf("the %s is to move to %s", bucketNames[a.a], x(a.b))
	case actStep:
		return fmt.Sprintf("move of the %s: %s", bucketNames[a.a], phaseNames[a.b])
	case actStepTwice:
		return fmt.Sprintf("move of the %s: %s, and a duplicate stays under way", bucketNames[a.a], phaseNames[a.b])
	case actRepeat:
		return fmt.Sprintf("the duplicate reaches %s", x(a.b))
	case actAbort:
		return fmt.Sprintf("the move of the %s is aborted", bucketNames[a.a])
	case actLearn:
		return fmt.Sprintf("%s learns where the %s is", x(a.a), bucketNames[a.b])
	case actAsk:
		return fmt.Sprintf("%s asks about the session", x(a.a))
	case actHearQuestion:
		return fmt.Sprintf("%s answers %s's question", x(a.a), x(a.b))
	case actHearQuestionTwice:
		return fmt.Sprintf("%s answers %s's question, and a duplicate stays under way", x(a.a), x(a.b))
	case actLoseQuestion:
		return "a question is lost"
	case actGhost:
		return fmt.Sprintf("the deposed leader of %s answers %s's question", x(a.a), x(a.b))
	case actRegister:
		return fmt.Sprintf("%s registers %s's subscription", x(a.a), x(a.b))
	case actHearAnswer:
		return fmt.Sprintf("%s hears %q", x(a.a), sayNames[a.b])
	case actHearAnswerTwice:
		return fmt.Sprintf("%s hears %q, and a duplicate stays under way", x(a.a), sayNames[a.b])
	case actLoseAnswer:
		return "an answer is lost"
	case actHearNews:
		return fmt.Sprintf("%s is told %q", x(a.a), sayNames[a.b])
	case actLoseNews:
		return "news are lost"
	case actLink:
		return fmt.Sprintf("%s gets no sign of life of the leader that answered it", x(a.a))
	case actReset:
		return fmt.Sprintf("%s gives its link up", x(a.a))
	case actTimeout:
		return fmt.Sprintf("%s gets no answer in time", x(a.a))
	case actGone:
		return fmt.Sprintf("%s logs the release", x(a.a))
	case actGoneLost:
		return fmt.Sprintf("the proposal of the release at %s is lost", x(a.a))
	case actUnsubscribe:
		return fmt.Sprintf("%s removes %s's subscription", x(a.a), x(a.b))
	}
	return fmt.Sprintf("action %d", a.is)
}
