package remotesession

import "fmt"

// model is the protocol, with one rule left out.
type model struct{ fault Fault }

// action is one thing that may happen.
type action struct{ kind, a, b uint8 }

const (
	actStart = 1 + iota
	actAcquire
	actReceiveAcquire
	actRelease
	actAttach
	actEnd
	actLeader
	actMove
	actStep
	actStepTwice
	actRepeat
	actAbort
	actUpdateMap
	actAsk
	actReceiveQuestion
	actReceiveQuestionTwice
	actLoseQuestion
	actDeposedAnswers
	actRegister
	actReceiveAnswer
	actReceiveAnswerTwice
	actLoseAnswer
	actReceiveNotice
	actLoseNotice
	actLinkDead
	actReset
	actTimeout
	actLogRelease
	actReleaseLost
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
	if s.started == 0 && h < shards {
		do(actStart, h, 0, func() { n.started, n.shards[h].copies[home].session = 1, alive })
	}
	if s.budget.acquires > 0 && (s.started == 1 || m.fault == EarlyTicket) && s.gone == 0 {
		for e := uint8(1); e <= s.attach; e++ {
			if s.acquires[e] == 0 {
				do(actAcquire, e, 0, func() { n.acquires[e]++; n.budget.acquires-- })
			}
		}
	}
	for e := uint8(1); e < uint8(len(s.acquires)); e++ {
		if s.acquires[e] == 0 {
			continue
		}
		if g < shards {
			do(actReceiveAcquire, g, e, func() { n.acquires[e]--; m.acquire(&n, g, e) })
		}
		for i := range uint8(shards) {
			if m.fault == FrozenGrants && s.shards[i].copies[sem].state == frozen {
				do(actReceiveAcquire, i, e, func() { n.acquires[e]--; m.acquire(&n, i, e) })
			}
		}
	}
	if s.budget.releases > 0 && s.owned == 1 && g < shards && s.shards[g].copies[sem].held == 1 {
		do(actRelease, g, 0, func() {
			n.budget.releases--
			n.shards[g].copies[sem].held, n.owned = 0, 0
			m.updateRecord(&n, g)
		})
	}

	// The session at its home.
	for i := range uint8(shards) {
		x := &s.shards[i].copies[home]
		if x.session != alive {
			continue
		}
		if s.budget.ends > 0 && (x.state == active || m.fault == FrozenExpires && x.state == frozen) {
			do(actEnd, i, 0, func() { n.budget.ends--; m.end(&n, i) })
		}
		if s.budget.attaches > 0 && x.state == active {
			do(actAttach, i, 0, func() { n.budget.attaches--; m.takeOver(&n, i) })
		}
	}

	m.faults(s, &n, do)
	m.moveSteps(s, &n, do)
	m.protocolSteps(s, &n, do)
}

// faults are leader changes, and messages that are lost or repeated.
func (m *model) faults(s, n *state, do func(is, a, b uint8, f func())) {
	if s.budget.leaders > 0 {
		for i := range uint8(shards) {
			do(actLeader, i, 0, func() { n.budget.leaders--; m.newLeader(n, i) })
		}
	}
	if s.budget.resets > 0 {
		for i := range uint8(shards) {
			switch s.shards[i].belief.state {
			case asked:
				do(actTimeout, i, 0, func() { n.budget.resets--; n.askAgain(i, false) })
				do(actReset, i, 0, func() { n.budget.resets--; n.askAgain(i, true) })
			case subscribed:
				do(actReset, i, 0, func() { n.budget.resets--; n.askAgain(i, true) })
			}
		}
	}
	for k := range uint8(len(s.questions)) {
		if s.questions[k].sent != 0 {
			do(actLoseQuestion, k, 0, func() { n.questions[k] = question{} })
		}
	}
	for k := range uint8(len(s.answers)) {
		if s.answers[k].verdict != 0 {
			do(actLoseAnswer, k, 0, func() { n.answers[k] = answer{} })
		}
	}
	for k := range uint8(len(s.notices)) {
		if s.notices[k].verdict != 0 && s.notices[k].lossy == 1 {
			do(actLoseNotice, k, 0, func() { n.notices[k] = notice{} })
		}
	}
	for i := range uint8(shards) {
		if m.fault == ReleaseOnce && s.shards[i].belief.state == toRelease {
			do(actReleaseLost, i, 0, func() { n.shards[i].belief.state = assumed })
		}
	}
}

func (m *model) moveSteps(s, n *state, do func(is, a, b uint8, f func())) {
	for b := range uint8(2) {
		left := s.budget.homeMoves
		if b == sem {
			left = s.budget.semMoves
		}
		v := s.moves[b]
		if v.phase == moveNone {
			for to := range uint8(shards) {
				if left > 0 && to != s.owners[b][s.newest[b]] {
					do(actMove, b, to, func() {
						if b == home {
							n.budget.homeMoves--
						} else {
							n.budget.semMoves--
						}
						n.moves[b] = move{moveFreeze, to, n.nextEp[b]}
						n.nextEp[b]++
					})
				}
			}
			continue
		}
		do(actStep, b, v.phase, func() { m.step(n, b) })
		if s.budget.dups > 0 && s.duplicate.kind == 0 && v.phase != moveCommit {
			do(actStepTwice, b, v.phase, func() { n.budget.dups--; n.duplicate = m.step(n, b) })
		}
		if s.budget.aborts > 0 && v.phase <= moveCommit {
			do(actAbort, b, 0, func() { n.budget.aborts--; m.abort(n, b) })
		}
	}
	if s.duplicate.kind != 0 {
		do(actRepeat, s.duplicate.kind, s.duplicate.at, func() { m.apply(n, &n.duplicate); n.duplicate = command{} })
	}
	for i := range uint8(shards) {
		for b := range uint8(2) {
			if s.shards[i].knows[b] != s.newest[b] && (b == home || m.fault == HomePushes) {
				do(actUpdateMap, i, b, func() { m.updateMap(n, i, b) })
			}
		}
	}
}

// protocolSteps is the protocol itself.
func (m *model) protocolSteps(s, n *state, do func(is, a, b uint8, f func())) {
	for i := range uint8(shards) {
		x := &s.shards[i]
		switch x.belief.state {
		case toAsk:
			if s.questions[1].sent == 0 {
				do(actAsk, i, 0, func() { m.ask(n, i) })
			}
		case asked:
			if !s.inFlight(i) {
				do(actTimeout, i, 0, func() { n.askAgain(i, false) })
			}
		case subscribed:
			// The sign of life behind a barrier is missing, or another leader's: a lost link.
			if x.belief.stale == 1 && m.fault != NoHomeResub {
				do(actLinkDead, i, 0, func() { n.askAgain(i, true) })
			}
		case toRelease:
			do(actLogRelease, i, 0, func() { m.release(n, i) })
		}
	}
	for k := range uint8(len(s.questions)) {
		q := s.questions[k]
		if q.sent == 0 {
			continue
		}
		do(actReceiveQuestion, q.to, q.from, func() { n.questions[k] = question{}; m.receiveQuestion(n, q) })
		if s.budget.dups > 0 {
			do(actReceiveQuestionTwice, q.to, q.from, func() { n.budget.dups--; m.receiveQuestion(n, q) })
		}
		if x := &s.shards[q.to]; x.deposed == 1 {
			do(actDeposedAnswers, q.to, q.from, func() {
				n.questions[k] = question{}
				n.shards[q.to].deposed, n.shards[q.to].deposedTable = 2, bucketCopy{}
				n.addAnswer(answer{verdict: m.verdict(&x.deposedTable, q.epoch), from: q.to, to: q.from, attach: x.deposedTable.attach, current: q.current})
			})
		}
	}
	for k := range uint8(len(s.answers)) {
		a := s.answers[k]
		if a.verdict == 0 {
			continue
		}
		do(actReceiveAnswer, a.to, a.verdict, func() { n.answers[k] = answer{}; m.receiveAnswer(n, a) })
		if s.budget.dups > 0 {
			do(actReceiveAnswerTwice, a.to, a.verdict, func() { n.budget.dups--; m.receiveAnswer(n, a) })
		}
	}
	for k := range uint8(len(s.notices)) {
		v := s.notices[k]
		if v.verdict == 0 {
			continue
		}
		do(actReceiveNotice, v.to, v.verdict, func() { n.notices[k] = notice{}; m.receiveNotice(n, v) })
	}
	if u := s.unsubscribe; u.sent != 0 {
		do(actUnsubscribe, u.to, u.from, func() {
			n.unsubscribe = question{}
			if u.to < shards {
				n.shards[u.to].subs[u.from] = 0
			}
		})
	}
	if a := s.lookup; a.verdict != 0 {
		do(actRegister, a.from, a.to, func() {
			n.lookup = answer{}
			m.register(n, a.from, a.to, true, a.verdict)
			n.addAnswer(a)
		})
	}
}

// inFlight says whether an answer to the present question may still come.
func (s *state) inFlight(i uint8) bool {
	for _, q := range s.questions {
		if q.sent != 0 && q.from == i && q.current == 1 {
			return true
		}
	}
	for _, a := range s.answers {
		if a.verdict != 0 && a.to == i && a.current == 1 {
			return true
		}
	}
	return s.lookup.verdict != 0 && s.lookup.to == i && s.lookup.current == 1
}

// check looks for violations.
func (m *model) check(s *state) {
	if s.violation != noViolation {
		return
	}
	for b := range uint8(2) {
		n := 0
		for i := range s.shards {
			if s.shards[i].copies[b].state == active {
				n++
			}
		}
		if n > 1 {
			s.violation = twoOwners
			return
		}
	}
	if g := s.activeAt(sem); s.owned == 1 && s.gone == 0 && g < shards && s.shards[g].copies[sem].held == 0 {
		s.violation = lost
	}
}

var shardNames = [...]string{"X", "Y", "Z", "nobody"}

var phaseNames = [...]string{"", "freeze", "import the first chunk", "import the last one", "commit", "activate", "drop", "activate the owner's again", "drop the copy"}

var bucketNames = [...]string{"home bucket", "semaphore's bucket"}

var verdictNames = [...]string{"", "alive", "gone", "retry"}

func (a action) String() string {
	x := func(i uint8) string { return shardNames[i] }
	switch a.kind {
	case actStart:
		return fmt.Sprintf("the session starts at %s", x(a.a))
	case actAcquire:
		return fmt.Sprintf("the client with attach epoch %d sends an acquire", a.a)
	case actReceiveAcquire:
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
		return fmt.Sprintf("move of the %s: %s, and a duplicate stays in flight", bucketNames[a.a], phaseNames[a.b])
	case actRepeat:
		return fmt.Sprintf("the duplicate reaches %s", x(a.b))
	case actAbort:
		return fmt.Sprintf("the move of the %s is aborted", bucketNames[a.a])
	case actUpdateMap:
		return fmt.Sprintf("%s learns where the %s is", x(a.a), bucketNames[a.b])
	case actAsk:
		return fmt.Sprintf("%s asks about the session", x(a.a))
	case actReceiveQuestion:
		return fmt.Sprintf("%s answers %s's question", x(a.a), x(a.b))
	case actReceiveQuestionTwice:
		return fmt.Sprintf("%s answers %s's question, and a duplicate stays in flight", x(a.a), x(a.b))
	case actLoseQuestion:
		return "a question is lost"
	case actDeposedAnswers:
		return fmt.Sprintf("the deposed leader of %s answers %s's question", x(a.a), x(a.b))
	case actRegister:
		return fmt.Sprintf("%s registers %s's subscription", x(a.a), x(a.b))
	case actReceiveAnswer:
		return fmt.Sprintf("%s receives %q", x(a.a), verdictNames[a.b])
	case actReceiveAnswerTwice:
		return fmt.Sprintf("%s receives %q, and a duplicate stays in flight", x(a.a), verdictNames[a.b])
	case actLoseAnswer:
		return "an answer is lost"
	case actReceiveNotice:
		return fmt.Sprintf("%s is notified of %q", x(a.a), verdictNames[a.b])
	case actLoseNotice:
		return "a notice is lost"
	case actLinkDead:
		return fmt.Sprintf("%s gets no sign of life of the leader that answered it", x(a.a))
	case actReset:
		return fmt.Sprintf("%s abandons its link", x(a.a))
	case actTimeout:
		return fmt.Sprintf("%s gets no answer in time", x(a.a))
	case actLogRelease:
		return fmt.Sprintf("%s logs the release", x(a.a))
	case actReleaseLost:
		return fmt.Sprintf("the proposal of the release at %s is lost", x(a.a))
	case actUnsubscribe:
		return fmt.Sprintf("%s removes %s's subscription", x(a.a), x(a.b))
	}
	return fmt.Sprintf("action %d", a.kind)
}
