package sim

// stepFaults break the rule of steps in the SDK's engine, or hand the record of a call to two owners
// in the engine or its driver.
var stepFaults = []plantedFault{
	{
		"end-inside-step", "client/internal/core/session.go",
		[]string{"\t\ts.err = notRenewed(e, s, ErrNotRenewed)\n\t}\n\ts.enqueue(e)\n", "\t\ts.err = notRenewed(e, s, ErrNotRenewed)\n\t}\n\ts.act(e)\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"grant-ends-session", "client/internal/core/acquire.go",
		[]string{"\t\ts.due(e)\n\t\te.pause(", "\t\ts.due(e)\n\t\ts.resolve(e)\n\t\te.pause("},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"close-inside-release", "client/internal/core/close.go",
		[]string{"\tx.s.end(e, sessionstate.Closed, x.cause)\n}\n\n// await", "\tx.s.end(e, sessionstate.Closed, x.cause)\n\tx.s.act(e)\n}\n\n// await"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"turn-inside-step", "client/internal/core/name.go",
		[]string{"\tn.ended = true\n\tn.enqueue(e)\n", "\tn.ended = true\n\tn.resolve(e)\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"tasks-of-tasks-dropped", "client/internal/core/engine.go",
		[]string{"\tfor i := 0; i < len(e.tasks); i++ {\n", "\tfor i, n := 0, len(e.tasks); i < n; i++ {\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"order-unqueued", "client/internal/core/request.go",
		[]string{"\t\ts.ordered = true\n\t\ts.enqueue(e)\n", "\t\ts.ordered = true\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"second-end-taken", "client/internal/core/request.go",
		[]string{"\t\te.broken(r, \"was completed twice\")\n\t\treturn\n", ""},
		"client/internal/core", "TestRulesAreKept", "",
	},
	{
		"late-answer-taken", "client/internal/core/request.go",
		[]string{"\t\tr.on.requests.Abandon(r.id) // the window counts it until it is answered\n", ""},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"timer-stays", "client/internal/core/request.go",
		[]string{"\tif r.delay.place != 0 {\n", "\tif r.delay.place < 0 {\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"background-handed-back", "client/internal/core/lease.go",
		[]string{"Result{Err: err, InBackground: true}", "Result{Err: err}"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"background-woken", "client/internal/core/request.go",
		[]string{"return r.Waiter != nil && !r.InBackground", "return r.Waiter != nil"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"background-pooled", "client/internal/driver/lease.go",
		[]string{"\tif !result.InBackground {\n\t\ttransferred = r.Transferred\n", "\t{\n\t\ttransferred = r.Transferred\n"},
		"client/internal/driver", "TestRecordsAreReused", "",
	},
	{
		"pooled-too-early", "client/internal/driver/call.go",
		[]string{"\tr := a.wait(ctx, d, queued, o.OnQueued)\n", "\tacquires.Put(a)\n\tr := a.wait(ctx, d, queued, o.OnQueued)\n", "\tacquires.Put(a)\n\treturn r\n", "\treturn r\n"},
		"client/internal/driver", "TestRecordsAreReused", "",
	},
	{
		"wake-left", "client/internal/driver/call.go",
		[]string{"\tcase ctx.Err() != nil:\n\t\td.giveUp(ctx, r)\n\t\t<-w\n", "\tcase ctx.Err() != nil:\n\t\td.giveUp(ctx, r)\n"},
		"client/internal/driver", "TestRecordsAreReused", "",
	},
	{
		"woken-again", "client/internal/driver/driver.go",
		[]string{"\t\tr.Reset()\n", ""},
		"client/internal/driver", "TestRecordsAreReused", "",
	},
	{
		"two-objects-of-one-id", "client/internal/core/session.go",
		[]string{"\t\tbefore.takenAway(e)\n", "\t\t_ = before\n"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"table-forgets-the-newer-object", "client/internal/core/session.go",
		[]string{"\tif known {\n\t\tdelete(e.sessions, s.ID)\n\t}", "\tdelete(e.sessions, s.ID)"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"paused-release-outlives-session", "client/internal/core/session.go",
		[]string{"\ts.later.each(add)\n", ""},
		"client/internal/core", "TestWorld", "",
	},
	{
		"unsent-release-without-outcome", "client/internal/core/lease.go",
		[]string{"\te.fail(&r.Request, err)\n\tif r.closing", "\tif r.attempts > 0 {\n\t\te.fail(&r.Request, err)\n\t}\n\tif r.closing"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"attachment-kept-alive", "client/internal/core/attachment.go",
		[]string{"\ta.conn.keepAlive.remove(e, a.period)\n", ""},
		"client/internal/core", "TestScripts", "",
	},
	{
		"waits-behind-other-instance", "client/internal/core/link.go",
		[]string{"\t\twanted.connectedAt = e.now\n\t\twanted.waiting.drain(e.send)\n", "\t\twanted.connectedAt = e.now\n"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"stale-ending", "client/internal/driver/lease.go",
		[]string{"if l.ending == nil || !ending && isClosed(l.ending) {", "if l.ending == nil {"},
		"client/internal/driver", "TestModel", "",
	},
	{
		"ending-closed-twice", "client/internal/driver/session.go",
		[]string{"l.ending != nil && !isClosed(l.ending) {", "l.ending != nil {"},
		"client/internal/driver", "TestModel", "",
	},
	{
		"sleep-unseen-by-lost", "client/internal/driver/lease.go",
		[]string{"\ts.d.readClocks(now)\n\tif over := l.OverAt", "\tif over := l.OverAt"},
		"client/internal/driver", "TestModel", "",
	},
	{
		"sleep-unseen-by-timer", "client/internal/driver/driver.go",
		[]string{"\t\td.readClocks(now)\n\t\td.engine.Tick", "\t\td.engine.Tick"},
		"client/internal/driver", "TestModel", "",
	},
	{
		"context-of-unobserved-stays", "client/internal/driver/session.go",
		[]string{"if l.cancel != nil {\n\t\t\t\tafter", "if l.cancel != nil && l.ended != nil {\n\t\t\t\tafter"},
		"client/internal/driver", "TestModel", "",
	},
}
