package sim

// limitFaults are in rate limits.
var limitFaults = []plantedFault{
	{
		"limit-starts-full", "client/ratelimit/leaf.go",
		[]string{"if now >= ends {\n\t\tlevel = min(level, 0)", "if now >= ends || old.rate == 0 {\n\t\tlevel = int64(x.Burst)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{ // in the model of the simulation; limit-read-unconfirmed is the same in the server's code
		"limit-no-barrier", "client/ratelimit/simulation_test.go",
		[]string{"b.asked, b.led = true, l == x.leader", "b.asked, b.led = true, true"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-read-unconfirmed", "server/request/read.go",
		[]string{"body: h.Body, strict: true,", "body: h.Body,"},
		"server/integration", "TestLimitBarriers", "",
	},
	{
		"limit-unlearned", "shard/ratelimit/leases.go",
		[]string{"began: began, learning: true", "began: began, learning: began == 0"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-burst-again", "shard/ratelimit/node.go",
		[]string{"&& !l.learning && !r.again {", "&& !l.learning {"},
		"client/ratelimit", "TestSimulation", "",
	},
	{ // a limit that nobody has used begins empty on a leader that is older
		"limit-not-rested", "shard/ratelimit/leases.go",
		[]string{"; never && !r.again {", "; never && r.again {"},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // a limit that somebody may have used begins full with the next leader
		"limit-rested-twice", "shard/ratelimit/leases.go",
		[]string{"unused && r.created > tree.lastLeft;", "unused;"},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // sessions that joined after the backup may have used it
		"limit-rested-from-backup", "shard/ratelimit/tree.go",
		[]string{"t.lastLeft = t.clock\n}\n\nfunc (t *Tree) find(", "}\n\nfunc (t *Tree) find("},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // another leader may have begun since
		"limit-until-unconfirmed", "shard/ratelimit/remote.go",
		[]string{"l.confirmed = now\n", "l.confirmed = l.now\n"},
		"shard/ratelimit", "TestUnitsEndByTheBarrier", "",
	},
	{ // units of a leaf that was opened again while its close was late
		"limit-close-forgets-later", "shard/ratelimit/remote.go",
		[]string{"case u.seq < before:", "case true:"},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // an acquire whose end was lost, with a connection
		"limit-held-for-nobody", "shard/ratelimit/leases.go",
		[]string{"l.forgetBefore(m, q.Open)", "l.forgetBefore(m, 0)"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-held-unbounded", "shard/ratelimit/remote.go",
		[]string{"if m.waiting >= protocol.MaxLimitHeld {", "if m.waiting < 0 {"},
		"shard/ratelimit", "TestHeldIsBounded", "",
	},
	{ // a call waits for ever behind leases that are 5 % too large
		"limit-kept-too-large", "shard/ratelimit/leases.go",
		[]string{"rate >= held.Rate && burst >= held.Burst || l.blocked == 0", "rate >= held.Rate || l.blocked == 0"},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // the next leader may give the room for them to others
		"limit-stock-outlives-leader", "client/ratelimit/grant.go",
		[]string{"if l.stock != nil { //", "if l.stock != nil && l.users == 0 { //"},
		"client/ratelimit", "TestScripts", "",
	},
	{ // what a call has of another node is lost with the session at this one
		"limit-detached-everywhere", "client/ratelimit/machine.go",
		[]string{"return a.part == p }", "return a.part != nil }"},
		"client/ratelimit", "TestScripts", "",
	},
	{ // what withdraws an acquire waits behind those that are held
		"limit-window-full", "client/ratelimit/grant.go",
		[]string{"if !c.try && (m.wanted >= mostHeld ||", "if !c.try && (m.wanted < 0 ||"},
		"client/ratelimit", "TestHeldLeaveRoom", "",
	},
	{ // calls that wait for long at many limits keep those of others from being asked for
		"limit-held-to-the-last", "client/ratelimit/grant.go",
		[]string{"m.wanted < mostHeld-mostHeld/8\n", "m.wanted < mostHeld\n"},
		"client/ratelimit", "TestSlowLimitsStarveNoOther", "",
	},
	{
		"limit-try-unanswered", "client/ratelimit/machine.go",
		[]string{"c.try && !c.finished && len(c.leaves) == 1 {", "c.try && !c.finished && l.queued.Load() > mostOpen {"},
		"client/ratelimit", "TestScripts", "",
	},
	{
		"limit-wants-unsaid", "client/ratelimit/refreshes.go",
		[]string{"Seq: m.seq, Open: p.wantsFrom(m.seq)}", "Seq: m.seq, Open: m.seq}"},
		"client/ratelimit", "TestScripts", "",
	},
	{ // a stop waits for calls that wait for ever
		"limit-stop-waits", "server/request/client.go",
		[]string{"c.unanswered.Load() - c.held.Load()", "c.unanswered.Load()"},
		"server/integration", "TestStopWithHeldCalls", "",
	},
	{ // what was spent is taken from units that are here for Allow, and may go back
		"limit-spent-of-stock", "client/ratelimit/leaf.go",
		[]string{"b == nil || b.burst == 0 || b.rate == 0 {", "b == nil || b.burst == 0 {"},
		"client/ratelimit", "TestScripts", "",
	},
	{
		"limit-spent-for-ever", "client/ratelimit/bucket.go",
		[]string{"now*ticks+11*b.tolerance)", "now*ticks+30*b.tolerance)"},
		"client/ratelimit", "TestScripts", "",
	},
	{
		"limit-leases-outlive-deletion", "shard/ratelimit/tree.go",
		[]string{"deletedPath{path, t.unusedFrom(), ", "deletedPath{path, t.clock, "},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-grown-first", "shard/ratelimit/leases.go",
		[]string{"roomRate, roomBurst := l.room(h)", "roomRate, roomBurst := uint64(maxRate), uint64(maxRate)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-refresh-each-denial", "client/ratelimit/demand.go",
		[]string{"return byQuarter(wants, d.reported) ||", "return wants > 0 || byQuarter(wants, d.reported) ||"},
		"client/ratelimit", "TestDemandChanges", "",
	},
	{
		"limit-changed-unheard", "client/internal/core/event.go",
		[]string{", protocol.KindLimitChanged:\n", ":\n"},
		"client/internal/core", "TestEventsReachTheirStream", "",
	},
	{
		"limit-shrunk-for-lent", "shard/ratelimit/compute.go",
		[]string{"if wants := l.wants(h); wants < rate {", "if wants := l.wants(h); wants < rate/1000 {"},
		"shard/ratelimit", "TestNobodyShrinksForWhatIsLent", "",
	},
	{
		"limit-calls-jump", "client/ratelimit/demand.go",
		[]string{"rate > d.average && d.enough(attempted, need) {", "rate > d.average && attempted > 0 {"},
		"client/ratelimit", "TestFewCalls", "",
	},
	{
		"limit-members-kept", "shard/ratelimit/leases.go",
		[]string{"case len(l.members) > 0: //", "case len(l.members) > MaxParticipants: //"},
		"shard/ratelimit", "TestNothingIsKept", "",
	},
	{
		"limit-trees-kept", "shard/leader/rate_limits.go",
		[]string{"\tdelete(r.trees, string(r.keyOf(x.node, []byte(x.name))))\n", "\t_ = r.keyOf(x.node, []byte(x.name))\n"},
		"shard/leader", "TestRateLimitsComeAndGo", "",
	},
	{
		"limit-notice-late", "shard/ratelimit/leases.go",
		[]string{"return min(l.computed+l.every(), l.notifyAt), true", "return l.computed + l.every(), true"},
		"shard/ratelimit", "TestNotifiedAtOnce", "",
	},
	{
		"limit-number-twice", "shard/ratelimit/leases.go",
		[]string{"\tl.numbers++\n", "\tl.numbers = 1\n"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-units-uncounted", "shard/ratelimit/remote.go",
		[]string{"u.until+1", "l.now+1"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-units-late", "client/ratelimit/grant.go",
		[]string{"return now < g.until && g.gen == p.gen", "return g.gen == p.gen"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-units-not-back", "client/ratelimit/grant.go",
		[]string{"Path: []byte(p.root), Back: a.seq}", "Path: []byte(p.root), Used: a.seq}"},
		"client/ratelimit", "TestScripts", "",
	},
	{
		"limit-believed-long", "client/ratelimit/refreshes.go",
		[]string{"sent+int64(x.Length)*1e6/beliefDen*beliefNum)", "sent+int64(x.Length)*5e6)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-dead-share", "shard/ratelimit/compute.go",
		[]string{"return min(l.asks(h), l.newRate(h))", "return l.asks(h)"},
		"client/ratelimit", "TestKilledProgramsCostLittle", "",
	},
	{
		"limit-idle-calls", "shard/ratelimit/compute.go",
		[]string{"return h.leaf && !h.member.gone && l.now < h.liveUntil && l.wants(h) > 0", "return h.leaf && !h.member.gone",
			"{ return min(l.asks(h), l.newRate(h)) }", "{ return max(min(l.asks(h), l.newRate(h)), 10_000) }"},
		"client/ratelimit", "TestSituations", "",
	},
	{
		"limit-named-early", "client/ratelimit/refreshes.go",
		[]string{"return l.stale && l.burst > 0 })", "return false })"},
		"client/ratelimit", "TestAllLeasesArePresentedFirst", "",
	},
	{
		"limit-looks-at-all", "client/ratelimit/machine.go",
		[]string{"	if !p.wakeKnown {\n", "	if true {\n"},
		"client/ratelimit", "TestOtherTreesRest", "",
	},
	{
		"limit-former-length", "shard/ratelimit/leases.go",
		[]string{"longest = max(longest, tree.formerLease)",
			"longest = max(longest, min(longest, tree.formerLease))"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-length-twice", "shard/ratelimit/tree.go",
		[]string{"t.formerLease = max(t.formerLease, former)", "t.formerLease = former"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-bucket-back", "shard/leader/rate_limits.go",
		[]string{"x.leases == nil || x.leases.Leadership() != v.Leadership",
			"x.leases == nil || x.leases.Leadership().Epoch != v.Leadership.Epoch"},
		"shard/leader", "TestRateLimitBucketComesBack", "",
	},
	{
		"limit-lease-before-the-move", "shard/ratelimit/leases.go",
		[]string{"l.learning && q.Held.Number.Leadership.compare(l.at) < 0",
			"l.learning && q.Held.Number.Leadership.Epoch < l.at.Epoch"},
		"shard/leader", "TestRateLimitBucketComesBack", "",
	},
	{
		"limit-learned-in-silence", "shard/ratelimit/leases.go",
		[]string{"l.dirty, l.computed, l.admitAt = false, true, 0, l.now", "l.dirty, l.computed = false, true, 0"},
		"shard/replica/leaderdriver", "TestCallsWaitAtTheLeader", "",
	},
	{
		"limit-admitted-unconfirmed", "shard/replica/leaderdriver/rate_limits.go",
		[]string{"if ok && p.leads(m) {", "if p.leads(m) {"},
		"shard/replica/leaderdriver", "TestCallsWaitAtTheLeader", "",
	},
	{
		"limit-held-for-ever", "shard/leader/rate_limits.go",
		[]string{"\t\tr.lose(r.trees[key])\n", "\t\t_ = key\n"},
		"shard/replica/leaderdriver", "TestCallsWaitAtTheLeader", "",
	},
	{
		"limit-impossible-waits", "shard/ratelimit/remote.go",
		[]string{"if err := l.possible(t.holdings, t.calls[k].amount); err != nil {", "if err := l.possible(t.holdings, 0); err != nil {"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-back-to-nobody", "shard/ratelimit/remote.go",
		[]string{"n.bucket.level = addUpTo(n.bucket.level, u.amount*1000, n.ownBurst())", "l.accrue(n)"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-closed-waits", "shard/ratelimit/remote.go",
		[]string{"			l.endTurn(t, before, nil)\n", ""},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-given-up-waits", "shard/ratelimit/remote.go",
		[]string{"\t\tl.refuse(t, k, nil)\n\t\treturn\n", "\t\t_ = k\n\t\treturn\n"},
		"shard/ratelimit", "TestScripts", "",
	},
	{ // a call that waits for longer than its amount is remembered finds leases in the room that it needs
		"limit-need-forgotten", "shard/ratelimit/compute.go",
		[]string{"h.needs(t.calls[0].amount, l.now)", "h.needs(0, l.now)"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-turns-by-calls", "shard/ratelimit/remote.go",
		[]string{"return mulDiv(t.calls[0].amount, virtually, l.weight(h))", "return mulDiv(min(t.calls[0].amount, 1), virtually, l.weight(h))"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-deleted-keeps-units", "shard/ratelimit/node.go",
		[]string{"path != \"\"; path = parentPath(path) {", "path != \"\"; path = \"\" {"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"limit-units-twice", "client/ratelimit/bucket.go",
		[]string{"b.full.CompareAndSwap(level, level-int64(amount))", "b.full.CompareAndSwap(level, level)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-grant-half-paid", "shard/ratelimit/remote.go",
		[]string{"l.give(h.node, c.amount)", "l.give(h.node, c.amount/2)"},
		"client/ratelimit", "TestSimulation", "",
	},
	{
		"limit-floor-stays", "client/ratelimit/refreshes.go",
		[]string{"\t\tl.floor.Store(nil)\n", "\t\t_ = l.floor.Load()\n"},
		"client/ratelimit", "TestScripts", "",
	},
	{
		"limit-dead-waits", "shard/ratelimit/compute.go",
		[]string{"if h.waiting > 0 && h.liveUntil <= l.now", "if h.waiting > 0 && h.remote && h.liveUntil <= l.now"},
		"client/ratelimit", "TestRandomOracle", "",
	},
	{
		"limit-why-alone", "shard/ratelimit/status.go",
		[]string{"if n.calling > 1 {", "if n.calling > 0 {"},
		"shard/ratelimit", "TestWhy", "",
	},
	{
		"limit-why-elsewhere", "shard/ratelimit/status.go",
		[]string{"case l.within(h.node, i):\n", "case false:\n"},
		"shard/ratelimit", "TestWhy", "",
	},
	{
		"young-session-waits", "shard/ratelimit/remote.go",
		[]string{"max(n.rate/(n.calling+1), 1)", "max(min(n.rate/(n.calling+1), l.newRate(h)), 1)"},
		"shard/ratelimit", "TestScripts", "",
	},
	{
		"granted-again", "shard/ratelimit/remote.go",
		[]string{"func(u *grant) bool { return u.seq == q.Seq }); k >= 0", "func(u *grant) bool { return u.seq == q.Seq }); k > 0"},
		"shard/ratelimit", "TestAcquireSentAgain", "",
	},
	{
		"other-amount-taken", "shard/ratelimit/remote.go",
		[]string{"if amount != q.Amount || ", "if "},
		"shard/ratelimit", "TestAcquireSentAgain", "",
	},
}
