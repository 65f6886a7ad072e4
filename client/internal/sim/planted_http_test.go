package sim

// httpFaults are in the gateway of HTTP callers: in the ends of their sessions, in long polls, and in what
// answers say of time.
var httpFaults = []plantedFault{
	{
		"started-after-its-caller", "server/httpapi/machine/session.go",
		[]string{"\tif s.calls == 0 {\n\t\ts.ends = now + s.Life()\n\t}\n", ""},
		"server/httpapi/machine", "TestModel", "",
	},
	{
		"refused-ttl-stays", "server/httpapi/session.go",
		[]string{"\ts.leave()\n\treturn err\n}", "\treturn err\n}"},
		"server/httpapi", "TestNameTwice", "",
	},
	{
		"timer-is-not-set-again", "server/httpapi/session.go",
		[]string{"\t\ts.timer.Reset(next - now)\n", ""},
		"server/httpapi", "TestReadsAreLinear", "",
	},
	{
		"ended-stream-stays", "server/httpapi/stream.go",
		[]string{"\tcase !st.own:\n\t\ts.leave()\n", "\tcase !st.own:\n"},
		"server/httpapi", "TestNamedStream", "",
	},
	{
		"read-joins-one-under-way", "server/httpapi/watch.go",
		[]string{"\tcase now.next == nil:\n\t\tnow.next = own\n\tdefault:\n\t\town = now.next\n", "\tdefault:\n\t\town = now\n"},
		"server/httpapi", "TestReadsAreLinear", "",
	},
	{
		"third-read-joins-one-under-way", "server/httpapi/watch.go",
		[]string{"\t\town = now.next\n", "\t\town = now\n"},
		"server/httpapi", "TestReadsAreLinear", "",
	},
	{
		"shared-read-is-relaxed", "server/httpapi/watch.go",
		[]string{"\topts := []client.ReadOption{client.ReadConsistency(client.Strict)}\n\tif x.s",
			"\topts := []client.ReadOption{client.ReadConsistency(client.Relaxed)}\n\tif x.s"},
		"server/httpapi", "TestPollAtCutReplica", "",
	},
	{
		"poll-drops-what-was-there-when-its-watch-began", "server/httpapi/watch.go",
		[]string{"func(_ client.Event, err error) {\n\t\t\tif err != nil {\n\t\t\t\tfail(err)\n\t\t\t}\n",
			"func(ev client.Event, err error) {\n\t\t\tif err != nil {\n\t\t\t\tfail(err)\n\t\t\t}\n" +
				"\t\t\tif first {\n\t\t\t\tfirst = ev.Kind != client.EventSynced\n\t\t\t\treturn\n\t\t\t}\n",
			"\t\twake := make(chan struct{}, 1)\n\t\tn.WatchFunc", "\t\twake, first := make(chan struct{}, 1), true\n\t\tn.WatchFunc"},
		"server/httpapi", "TestReadsAreLinear", "",
	},
	{
		"poll-knows-one-tag", "server/httpapi/watch.go",
		[]string{"if err != nil || !known(next) {", "if err != nil || next.tag != now.tag {"},
		"server/httpapi", "TestPollOfManyTags", "",
	},
	{
		"retry-after-rounds-down", "server/httpapi/problem.go",
		[]string{"(p.retry+time.Second-1)/time.Second", "p.retry/time.Second"},
		"server/httpapi", "TestRateLimit", "",
	},
	{
		"retry-after-nothing", "server/httpapi/problem.go",
		[]string{"strconv.Itoa(1+rand.N(5))", "strconv.Itoa(rand.N(5))"},
		"server/httpapi", "TestBounds", "",
	},
	{
		"belief-beyond-hold", "server/httpapi/session.go",
		[]string{"d = min(d, time.Until(until))", "_ = until"},
		"server/httpapi", "TestTimesOfAnswers", "",
	},
	{
		"keepalive-forgets-bounds", "server/httpapi/session.go",
		[]string{`"num_holds": len(leases)}, leases...)`, `"num_holds": len(leases)})`},
		"server/httpapi", "TestTimesOfAnswers", "",
	},
}
