package sim

// clientFaults are in the engine of the SDK: sessions, attaches, requests.
var clientFaults = []plantedFault{
	{
		"from-receipt", "client/internal/core/keep_alive.go",
		[]string{"v.at = max(v.at, c.keepAlive.sentAt(ping))", "v.at = max(v.at, c.heard)"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"old-low", "client/internal/core/request.go",
		[]string{"Seq: r.seq, Low: r.session.numbers.Low()}", "Seq: r.seq, Low: min(r.seq, r.session.numbers.Low())}"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"release-overtakes", "client/internal/core/request.go",
		[]string{"case r.after != 0 && r.via != c && s.numbers.Low() <= r.after:", "case r.after != 0 && r.via != c && s.numbers.Low() < 1:"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"epoch-doubled", "client/internal/core/attachment.go",
		[]string{"(a.msg.Epoch == 0 || a.unanswered)", "a.msg.Epoch == 0"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"grant-over-lost-route", "client/internal/core/acquire.go",
		[]string{"case a.att != s.attachment || a.from.over || e.routes.moved(a.tier, a.arg, a.shard, a.from), ", "case s.attachment == nil, "},
		"client/internal/core", "TestScripts", "",
	},
	{
		"pong-of-another", "client/internal/core/session.go",
		[]string{"\t\ts.machine.Renewed(a.renewal.at)\n", "\t\tfor _, c := range e.conns {\n\t\t\ts.machine.Renewed(c.renewal(a.shard).at)\n\t\t}\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"abandoned-stays", "client/internal/core/acquire.go",
		[]string{"case sent && a.Lease != nil:\n\t\ta.undo(e)", "case sent && a.Lease == nil:\n\t\ta.undo(e)"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"bad-session-ignored", "client/internal/core/request.go",
		[]string{"\t\tr.session.notKnownOn(e, r, on)\n", ""},
		"client/internal/core", "TestScripts", "",
	},
	{
		"bad-session-of-one", "client/internal/core/session.go",
		[]string{"\t\tc.detachHome(e, a.shard)\n", "\t\ts.connLost(e)\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"ticket-kept", "client/internal/core/ticket.go",
		[]string{"== protocol.StatusBadSession && !p.att.over {", "== protocol.StatusBadSession && p.att.over {"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"release-forgotten", "client/internal/core/retry.go",
		[]string{"if r.op.left(e, err); r.state != Over {", "if r.op.left(e, err); r.state == Over {"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"silent-behind-hello", "client/internal/core/keep_alive.go",
		[]string{"\tif k.busy { // requests", "\tif false { // requests"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"ticket-forever", "client/internal/core/session.go",
		[]string{"r.att == a && r.badSessions > 1:", "r.att == a && r.badSessions > 99:"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"stop-given-up", "client/internal/core/stop.go",
		[]string{"case err == nil || sessionGone(err):", "case err == nil || sessionGone(err) || bad && x.msg.Epoch == x.own:"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"wait-renumbered", "client/internal/core/request.go",
		[]string{"\tcase again:\n", "\tcase again:\n\t\tr.seq = 0\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"granted-forgotten", "client/internal/core/acquire.go",
		[]string{"\t\ta.unanswered = true // it has an entry at the server\n", ""},
		"client/internal/core", "TestScripts", "",
	},
	{
		"stop-unsent", "client/internal/core/session.go",
		[]string{"\tif stop {\n", "\tif stop && s.attachment != nil {\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"whole-timeout", "client/internal/sessionstate/window.go",
		[]string{"return min(timeout*85/100, ", "return max(timeout, "},
		"client/internal/sessionstate", "TestWindow", "",
	},
	{
		"abandoned-place-taken", "client/internal/core/ring.go",
		[]string{"for r.slots[id&mask].id != 0 {", "for r.slots[id&mask].of != nil {"},
		"client/internal/core", "TestRing", "",
	},
	{
		"queue-overtaken", "client/internal/core/request.go",
		[]string{"case full || !c.queue.empty() && !c.admitting:", "case full:"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"admits-one", "client/internal/core/conn.go",
		[]string{"\tfor !c.over && !c.queue.empty() &&", "\tif !c.over && !c.queue.empty() &&"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"too-long-takes-room", "client/internal/core/conn.go",
		[]string{"\t\te.tasks = append(e.tasks, &tooLong{r, length, c.maxFrame})\n", "\t\te.tasks = append(e.tasks, &tooLong{r, length, c.maxFrame})\n\t\tc.requests.Put(id, nil)\n"},
		"client/internal/core", "TestScripts", "",
	},
}
