package sim

// leaderFaults are in what the leader of a shard does besides applying: pongs, detaches, remote
// sessions.
var leaderFaults = []plantedFault{
	{
		"detach-twice", "shard/leader/attached_sessions.go",
		[]string{"\t\tif s.detachID == 0 { // else", "\t\tif true { // else"},
		"shard/leader", "TestScripts", "",
	},
	{
		"detach-forgotten", "shard/leader/attached_sessions.go",
		[]string{"\t\tl.leave(s)\n\t\tif s.detachID == 0 {", "\t\tl.leave(s)\n\t\tif true {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"no-barrier", "shard/leader/pong.go",
		[]string{"\tc.waitingPing = ping\n",
			"\tif c.canPong() {\n\t\tl.ready.Pongs = append(l.ready.Pongs, Pong{connID, ping})\n\t\treturn\n\t}\n\tc.waitingPing = ping\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"early-barrier", "shard/leader/pong.go",
		[]string{"\tfor _, c := range l.pings.inFlight {\n\t\tping := c.inFlightPing", "\tfor _, c := range l.pings.waiting {\n\t\tif !c.pingInFlight {\n\t\t\tl.pings.inFlight = append(l.pings.inFlight, c)\n\t\t}\n\t\tc.pingInFlight, c.inFlightPing, c.pingWaiting, c.waitingPing = true, c.waitingPing, false, 0\n\t}\n\tl.pings.waiting = nil\n\tfor _, c := range l.pings.inFlight {\n\t\tping := c.inFlightPing"},
		"shard/leader", "TestScripts", "",
	},
	{
		"pong-in-doubt", "shard/leader/conn.go",
		[]string{"c.undecided == 0 && len(c.sessions) > 0", "len(c.sessions) > 0"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"moves-unasked", "shard/leader/event.go",
		[]string{
			"l.liveness.frozen(first, count)\n\t\tl.ready.Compare = true", "l.liveness.frozen(first, count)\n\t\tl.ready.Compare = false",
			"if l.enter(now) {\n\t\tl.ready.Compare = true", "if l.enter(now) {\n\t\tl.ready.Compare = false",
			"l.subscribers.left(first, count)\n\t\tl.ready.Compare = true", "l.subscribers.left(first, count)\n\t\tl.ready.Compare = false",
		},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"start-unasked", "shard/leader/remote_table.go",
		[]string{"range remotes {\n\t\tt.held(id)", "range remotes[:0] {\n\t\tt.held(id)"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"link-kept", "shard/leader/subscription.go",
		[]string{"now-s.lastProof > t.cfg.SelfCheck {", "now < s.lastProof {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"home-kept", "shard/leader/subscription.go",
		[]string{
			"if s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch {", "if false {",
			"case !m.known || s.homeEpoch != 0 && m.homeEpoch > s.homeEpoch:", "case false:",
		},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"non-owner", "shard/leader/subscriber_request.go",
		[]string{"active && epoch == a.bucketEpoch {", "active && epoch == a.bucketEpoch || true {"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"ask-unproved", "shard/leader/event.go",
		[]string{"l.subscribers.receiveSubscribe(from, m) })", "l.subscribers.receiveSubscribe(from, m)\n\t\t\tq := &l.subscribers.requests\n\t\t\tq.inFlight, q.waiting = append(q.inFlight, q.waiting...), nil\n\t\t\tl.subscribers.replyRequests(st)\n\t\t})"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"release-once", "shard/leader/remote_update.go",
		[]string{"\t\tg.releaseID = 0\n\t\tt.ended.push(g)\n", ""},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"retry-is-gone", "shard/leader/subscription_reply.go",
		[]string{"case stateRetry:\n", "case stateRetry:\n\t\t\tt.sessionEnded(e.session)\n\t\t\tcontinue\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"pause-counts", "shard/leader/clock.go",
		[]string{"if paused {", "if false {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"age-ignored", "shard/leader/attached_sessions.go",
		[]string{"furthest+age+v.Timeout", "furthest+v.Timeout"},
		"shard/leader", "TestMayAttachUnlogged", "",
	},
	{
		"epoch-kept", "shard/leader/remote_table.go",
		[]string{"|| epoch != g.bucketEpoch {", "|| false && epoch != g.bucketEpoch {"},
		"shard/leader", "TestScripts", "",
	},
	{
		"detached-untold", "shard/leader/remote_update.go",
		[]string{"if have.Tracks == 0 {", "if have.Session != ^uint64(0) {"},
		"client/rollout", "TestClusterDetachedGivesUpItsID", "",
	},
	{
		"proof-from-end", "shard/replica/barrier.go",
		[]string{"\tb.lastProof.note(start)\n", "\tb.lastProof.note(s.clock.Now())\n"},
		"shard/replica", "TestFreshness", "",
	},
	{
		"batch-proof-from-end", "shard/replica/apply.go",
		[]string{"s.barriers.lastProof.note(time.Duration(b.Began))", "s.barriers.lastProof.note(s.clock.Now())"},
		"shard/replica", "TestFreshness", "",
	},
	{
		"held-for-good", "shard/replica/proposal/hand_off.go",
		[]string{"\t\tq.Wake()\n\t}\n\tq.hold()\n}", "\t\tq.Wake()\n\t}\n}"},
		"shard/replica/proposal", "TestHoldBehindAnotherHold", "",
	},
	{
		"hold-of-the-first", "shard/replica/proposal/hand_off.go",
		[]string{"\th.runs, h.since = true, q.seq\n\tif h.timer == nil {\n", "\tif h.runs = true; h.timer == nil {\n\t\th.since = q.seq\n"},
		"shard/replica/proposal", "TestHoldBehindAnotherHold", "",
	},
	{
		"leader-alarm-kept", "shard/replica/leaderdriver/driver.go",
		[]string{"\t\t\ttimer.Stop()\n\t\t\tat = 0\n", "\t\t\ttimer.Stop()\n"},
		"shard/replica/leaderdriver", "TestNoticesAfterLeadershipIsBack", "",
	},
	{
		"leader-timer-fired", "shard/replica/leaderdriver/driver.go",
		[]string{"timeout, at = true, 0", "timeout = true"},
		"shard/replica/leaderdriver", "TestTicksAreOnTime", "",
	},
	{
		"leader-tick-put-off", "shard/replica/leaderdriver/driver.go",
		[]string{"at == 0 || next < at {", "at == 0 || next != at {"},
		"shard/replica/leaderdriver", "TestTicksAreOnTime", "",
	},
	{
		"leader-alarm-late", "shard/replica/leaderdriver/driver.go",
		[]string{"at == 0 || a.after(in) < at {", "at == 0 {"},
		"shard/replica/leaderdriver", "TestWakeWithin", "",
	},
	{
		"leader-part-left-out", "shard/replica/leaderdriver/driver.go",
		[]string{"d.parts {\n\t\tp.Stop()", "d.parts[:1] {\n\t\tp.Stop()"},
		"shard/replica/leaderdriver", "TestLeadershipsOfParts", "",
	},
	{
		"leader-begins-closed", "shard/replica/leaderdriver/driver.go",
		[]string{"\td.closed = true\n", ""},
		"shard/replica/leaderdriver", "TestLeadershipsOfParts", "",
	},
	{
		"leases-of-another-leader", "shard/replica/leaderdriver/rate_limits.go",
		[]string{"return p.term != 0 && m.Epoch()>>16 == p.term", "return p.term != 0"},
		"shard/replica/leaderdriver", "TestLeasesOfAnotherLeader", "",
	},
	{
		"leases-of-former-term", "shard/replica/leaderdriver/rate_limits.go",
		[]string{"\tp.leases.Reset()\n", ""},
		"shard/replica/leaderdriver", "TestLeasesOfAnotherLeader", "",
	},
	{
		"members-without-leader", "shard/replica/leaderdriver/members.go",
		[]string{"\tp.leads = false\n", ""},
		"shard/replica/leaderdriver", "TestMemberMessages", "",
	},
	{
		"members-unconfirmed", "shard/replica/leaderdriver/members.go",
		[]string{"== protocol.StatusNotFound && !m.confirmed:", "== protocol.StatusNotFound && m.Body == nil:"},
		"shard/replica/leaderdriver", "TestMemberMessages", "",
	},
}
