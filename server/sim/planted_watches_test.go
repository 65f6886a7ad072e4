package sim

// watchFaults are in how the SDK follows semaphores, and what it reads.
var watchFaults = []plantedFault{
	{
		"one-shot-stays", "client/gateway/describe.go",
		[]string{"\t\td.s.Driver.Disarm(&d.shot.OneShot) // nobody waits for it\n", ""},
		"client/gateway", "TestFailedDescribeWatchesNothing", "",
	},
	{
		"shard-forgotten", "client/core/watch.go",
		[]string{"&p.msg, shard, w.former[shard]", "&p.msg, shard, 0"},
		"client/core", "TestScripts", "",
	},
	{
		"home-forgotten", "client/core/shard_stream.go",
		[]string{"\t\tp.leave()\n", ""},
		"client/core", "TestScripts", "",
	},
	{
		"closed-part-silent", "client/core/watch.go",
		[]string{"\t\tw.wake(e) // the others", "\t\t// the others"},
		"client/core", "TestScripts", "",
	},
	{
		"stream-goes-back", "client/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if true {"},
		"client/core", "TestScripts", "",
	},
	{
		"bucket-epoch-unread", "client/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if index >= p.seen {"},
		"client/core", "TestScripts", "",
	},
	{
		"resume-unknown-kind", "client/core/shard_stream.go",
		[]string{"\tp.known = 0\n\tp.restart(e)", "\tp.restart(e)"},
		"client/core", "TestScripts", "",
	},
	{
		"resume-too-much-known", "client/core/watch.go",
		[]string{"p.msg.Known, p.msg.Epoch = p.known, p.epoch", "p.msg.Known, p.msg.Epoch = p.known+1, p.epoch"},
		"client/core", "TestWorld", "",
	},
	{
		"watch-not-reopened", "client/core/shard_stream.go",
		[]string{"\t\tp.retry.failures++\n\t\te.send(&p.Request)\n", "\t\tp.retry.failures++\n"},
		"client/core", "TestWorld", "",
	},
	{
		"change-beside-pages-lost", "client/core/watch.go",
		[]string{"p.pages.held = append(p.pages.held, delta{d.name, d.index, slices.Clone(d.changes)})",
			"p.pages.held = append(p.pages.held[:0], delta{d.name, d.index, slices.Clone(d.changes)})"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"copy-data-stale", "client/core/local_copy.go",
		[]string{"a.version, a.data = c.version, c.data", "a.version = c.version"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"copy-owner-stale", "client/core/local_copy.go",
		[]string{"if found && sameOwner(&s.owners[i], &o) {", "if found && i >= 0 {"},
		"client/core", "TestLocalCopy", "",
	},
	{
		"own-writes-hidden", "client/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"client/core", "TestWorld", "",
	},
	{
		"own-writes-hidden", "client/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"server/chaos", "TestCheckedHistories", "^SIGKILL of the leader while nothing of it arrives",
	},
	{
		"synced-without-owner", "client/core/watch.go",
		[]string{"served.Equal(w.newest) && served.Complete()", "served.Equal(w.newest)"},
		"client/core", "TestScripts", "",
	},
	{
		"synced-by-former-owner", "client/core/watch.go",
		[]string{"served.Equal(w.newest) && served.Complete()", "served.Complete()"},
		"client/core", "TestScripts", "",
	},
}
