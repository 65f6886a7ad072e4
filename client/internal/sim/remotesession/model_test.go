package remotesession

import (
	"fmt"
	"strings"
)

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
				n.addAnswer(answer{verdict: m.verdict(&x.deposedTable, q.epoch), from: q.to, to: q.from,
					attach: x.deposedTable.attach, current: q.current})
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

// inFlight reports whether an answer to the present question may still come.
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

var (
	shardNames = []string{"X", "Y", "Z", "nobody"}
	phaseNames = []string{"", "freeze", "import the first chunk", "import the last one", "commit", "activate",
		"drop", "activate the owner's again", "drop the copy"}
	bucketNames  = []string{"home bucket", "semaphore's bucket"}
	verdictNames = []string{"", "alive", "gone", "retry"}
)

// actionTexts are actions for people. A and B are the shards that their numbers name.
var actionTexts = [numActions]string{
	actStart:                "the session starts at A",
	actAcquire:              "the client with attach epoch {a} sends an acquire",
	actReceiveAcquire:       "A gets the acquire of attach epoch {b}",
	actRelease:              "the client releases at A",
	actAttach:               "another client takes the session over at A",
	actEnd:                  "the session ends at A",
	actLeader:               "A gets a new leader",
	actMove:                 "the {bucket a} is to move to B",
	actStep:                 "move of the {bucket a}: {phase b}",
	actStepTwice:            "move of the {bucket a}: {phase b}, and a duplicate stays in flight",
	actRepeat:               "the duplicate reaches B",
	actAbort:                "the move of the {bucket a} is aborted",
	actUpdateMap:            "A learns where the {bucket b} is",
	actAsk:                  "A asks about the session",
	actReceiveQuestion:      "A answers B's question",
	actReceiveQuestionTwice: "A answers B's question, and a duplicate stays in flight",
	actLoseQuestion:         "a question is lost",
	actDeposedAnswers:       "the deposed leader of A answers B's question",
	actRegister:             "A registers B's subscription",
	actReceiveAnswer:        "A receives \"{verdict b}\"",
	actReceiveAnswerTwice:   "A receives \"{verdict b}\", and a duplicate stays in flight",
	actLoseAnswer:           "an answer is lost",
	actReceiveNotice:        "A is notified of \"{verdict b}\"",
	actLoseNotice:           "a notice is lost",
	actLinkDead:             "A gets no sign of life of the leader that answered it",
	actReset:                "A abandons its link",
	actTimeout:              "A gets no answer in time",
	actLogRelease:           "A logs the release",
	actReleaseLost:          "the proposal of the release at A is lost",
	actUnsubscribe:          "A removes B's subscription",
}

func (a action) String() string {
	name := func(names []string, i uint8) string {
		if int(i) < len(names) {
			return names[i]
		}
		return ""
	}
	return strings.NewReplacer(
		"A", name(shardNames, a.a), "B", name(shardNames, a.b), "{a}", fmt.Sprint(a.a), "{b}", fmt.Sprint(a.b),
		"{bucket a}", name(bucketNames, a.a), "{bucket b}", name(bucketNames, a.b), "{phase b}",
		name(phaseNames, a.b), "{verdict b}", name(verdictNames, a.b),
	).Replace(actionTexts[a.kind])
}
