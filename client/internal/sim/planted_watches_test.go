package sim

// watchFaults are in how the SDK follows semaphores, and what it reads.
var watchFaults = []plantedFault{
	{
		"one-shot-stays", "client/gateway/describe.go",
		[]string{"\t\td.s.Driver.Disarm(&d.shot.OneShot) // nobody waits for it\n", ""},
		"client/gateway", "TestFailedDescribeWatchesNothing", "",
	},
	{
		"shard-forgotten", "client/internal/core/watch.go",
		[]string{"&p.msg, shard, w.former[shard]", "&p.msg, shard, 0"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"home-forgotten", "client/internal/core/shard_stream.go",
		[]string{"\t\tp.leave()\n", ""},
		"client/internal/core", "TestScripts", "",
	},
	{
		"closed-part-silent", "client/internal/core/watch.go",
		[]string{"\t\tw.wake(e) // the others", "\t\t// the others"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"stream-goes-back", "client/internal/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if true {"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"bucket-epoch-unread", "client/internal/core/shard_stream.go",
		[]string{"if index >= p.seen && epoch >= p.epoch {", "if index >= p.seen {"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"resume-unknown-kind", "client/internal/core/shard_stream.go",
		[]string{"\tp.known = 0\n\tp.restart(e)", "\tp.restart(e)"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"resume-too-much-known", "client/internal/core/watch.go",
		[]string{"p.msg.Known, p.msg.Epoch = p.known, p.epoch", "p.msg.Known, p.msg.Epoch = p.known+1, p.epoch"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"watch-not-reopened", "client/internal/core/shard_stream.go",
		[]string{"\t\tp.retry.failures++\n\t\te.send(&p.Request)\n", "\t\tp.retry.failures++\n"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"change-beside-pages-lost", "client/internal/core/watch.go",
		[]string{"p.pages.held = append(p.pages.held, delta{d.name, d.index, slices.Clone(d.changes)})",
			"p.pages.held = append(p.pages.held[:0], delta{d.name, d.index, slices.Clone(d.changes)})"},
		"client/internal/core", "TestLocalCopy", "",
	},
	{
		"copy-data-stale", "client/internal/core/local_copy.go",
		[]string{"a.version, a.data = c.version, c.data", "a.version = c.version"},
		"client/internal/core", "TestLocalCopy", "",
	},
	{
		"copy-owner-stale", "client/internal/core/local_copy.go",
		[]string{"if found && sameOwner(&s.owners[i], &o) {", "if found && i >= 0 {"},
		"client/internal/core", "TestLocalCopy", "",
	},
	{
		"own-writes-hidden", "client/internal/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"client/internal/core", "TestWorld", "",
	},
	{
		"own-writes-hidden", "client/internal/core/read.go",
		[]string{"return !m.isRecent(now, grace) || m.instance == instance", "return m.written >= 0 || m.instance == instance"},
		"server/chaos", "TestCheckedHistories", "^SIGKILL of the leader while nothing of it arrives",
	},
	{
		"synced-without-owner", "client/internal/core/watch.go",
		[]string{"served.Equal(w.newest) && served.Complete()", "served.Equal(w.newest)"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"synced-by-former-owner", "client/internal/core/watch.go",
		[]string{"served.Equal(w.newest) && served.Complete()", "served.Complete()"},
		"client/internal/core", "TestScripts", "",
	},
}
