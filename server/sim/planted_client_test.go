package sim

// clientFaults are in the engine of the SDK: sessions, attaches, requests.
var clientFaults = []plantedFault{
	{
		"from-receipt", "client/core/keep_alive.go",
		[]string{"v.at = max(v.at, c.keepAlive.sentAt(ping))", "v.at = max(v.at, c.heard)"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"old-low", "client/core/request.go",
		[]string{"Seq: r.seq, Low: r.session.numbers.Low()}", "Seq: r.seq, Low: min(r.seq, r.session.numbers.Low())}"},
		"client/core", "TestScripts", "",
	},
	{
		"release-overtakes", "client/core/request.go",
		[]string{"case r.after != 0 && r.via != c && s.numbers.Low() <= r.after:", "case r.after != 0 && r.via != c && s.numbers.Low() < 1:"},
		"client/core", "TestScripts", "",
	},
	{
		"epoch-doubled", "client/core/attachment.go",
		[]string{"(a.msg.Epoch == 0 || a.unanswered)", "a.msg.Epoch == 0"},
		"client/core", "TestScripts", "",
	},
	{
		"grant-over-lost-route", "client/core/acquire.go",
		[]string{"case a.att != s.attachment || a.from.over || e.routes.moved(a.tier, a.arg, a.shard, a.from), ", "case s.attachment == nil, "},
		"client/core", "TestScripts", "",
	},
	{
		"pong-of-another", "client/core/session.go",
		[]string{"\t\ts.machine.Renewed(a.renewal.at)\n", "\t\tfor _, c := range e.conns {\n\t\t\ts.machine.Renewed(c.renewal(a.shard).at)\n\t\t}\n"},
		"client/core", "TestScripts", "",
	},
	{
		"abandoned-stays", "client/core/acquire.go",
		[]string{"case sent && a.Lease != nil:\n\t\ta.undo(e)", "case sent && a.Lease == nil:\n\t\ta.undo(e)"},
		"client/core", "TestScripts", "",
	},
	{
		"bad-session-ignored", "client/core/request.go",
		[]string{"\t\tr.session.notKnownOn(e, r, on)\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"bad-session-of-one", "client/core/session.go",
		[]string{"\t\tc.detachHome(e, a.shard)\n", "\t\ts.connLost(e)\n"},
		"client/core", "TestScripts", "",
	},
	{
		"ticket-kept", "client/core/ticket.go",
		[]string{"== protocol.StatusBadSession && !p.att.over {", "== protocol.StatusBadSession && p.att.over {"},
		"client/core", "TestScripts", "",
	},
	{
		"release-forgotten", "client/core/retry.go",
		[]string{"if r.op.left(e, err); r.state != Over {", "if r.op.left(e, err); r.state == Over {"},
		"client/core", "TestScripts", "",
	},
	{
		"silent-behind-hello", "client/core/keep_alive.go",
		[]string{"\tif k.busy { // requests", "\tif false { // requests"},
		"client/core", "TestScripts", "",
	},
	{
		"ticket-forever", "client/core/session.go",
		[]string{"r.att == a && r.badSessions > 1:", "r.att == a && r.badSessions > 99:"},
		"client/core", "TestScripts", "",
	},
	{
		"stop-given-up", "client/core/stop.go",
		[]string{"case err == nil || sessionGone(err):", "case err == nil || sessionGone(err) || bad && x.msg.Epoch == x.own:"},
		"client/core", "TestScripts", "",
	},
	{
		"wait-renumbered", "client/core/request.go",
		[]string{"\tcase again:\n", "\tcase again:\n\t\tr.seq = 0\n"},
		"client/core", "TestScripts", "",
	},
	{
		"granted-forgotten", "client/core/acquire.go",
		[]string{"\t\ta.unanswered = true // it has an entry at the server\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"stop-unsent", "client/core/session.go",
		[]string{"\tif stop {\n", "\tif stop && s.attachment != nil {\n"},
		"client/core", "TestScripts", "",
	},
	{
		"whole-timeout", "client/sessionstate/window.go",
		[]string{"return min(timeout*85/100, ", "return max(timeout, "},
		"client/sessionstate", "TestWindow", "",
	},
	{
		"abandoned-place-taken", "client/core/ring.go",
		[]string{"for r.slots[id&mask].id != 0 {", "for r.slots[id&mask].of != nil {"},
		"client/core", "TestRing", "",
	},
	{
		"queue-overtaken", "client/core/request.go",
		[]string{"case full || !c.queue.empty() && !c.admitting:", "case full:"},
		"client/core", "TestScripts", "",
	},
	{
		"admits-one", "client/core/conn.go",
		[]string{"\tfor !c.over && !c.queue.empty() &&", "\tif !c.over && !c.queue.empty() &&"},
		"client/core", "TestScripts", "",
	},
	{
		"too-long-takes-room", "client/core/conn.go",
		[]string{"\t\te.tasks = append(e.tasks, &tooLong{r, length, c.maxFrame})\n", "\t\te.tasks = append(e.tasks, &tooLong{r, length, c.maxFrame})\n\t\tc.requests.Put(id, nil)\n"},
		"client/core", "TestScripts", "",
	},
}
