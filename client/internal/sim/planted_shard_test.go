package sim

// shardFaults are in what a shard does with sessions, semaphores and moves of buckets.
var shardFaults = []plantedFault{
	{
		"version-repeats", "shard/semaphore.go",
		[]string{"\ts.bucket.versionFloor = max(s.bucket.versionFloor, s.version)\n", ""},
		"shard", "TestTables", "",
	},
	{
		"old-epoch", "shard/apply.go",
		[]string{"h.Epoch < m.epoch || h.Epoch > m.epoch && !takes", "h.Epoch > m.epoch && !takes"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"no-grace", "shard/node.go",
		[]string{"func (n *node) graceAt(at uint64) uint64 {\n", "func (n *node) graceAt(at uint64) uint64 {\n\treturn 0\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"grace-at-once", "shard/node.go",
		[]string{"if n.graceFloor > n.config.GracePeriod && at", "if n.graceFloor > n.config.GracePeriod && at > math.MaxUint64-1 && at"},
		"shard", "TestScripts", "",
	},
	{
		"time-restarts", "shard/takeover.go",
		[]string{"m.transferring = false\n\t}", "m.transferring = false\n\t\tfor p := range m.sessions.All() {\n\t\t\tif s := p.home; s != nil && !p.ended && !s.attached {\n\t\t\t\tm.touch(p)\n\t\t\t\tm.schedule(s, max(s.timer.at, m.logTime+uint64(s.timeout)))\n\t\t\t}\n\t\t}\n\t}"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"handed-stays", "shard/takeover.go",
		[]string{"m.transferring = c.body[0] == 1", "m.transferring = c.body[0] == 1 || m.transferring"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"sweep-restarts", "shard/takeover.go",
		[]string{"if !t.sweeping {\n\t\tt.sweeping,", "{\n\t\tt.sweeping,"},
		"shard", "TestScripts", "",
	},
	{
		"over-limit", "shard/semaphore.go",
		[]string{"count <= s.limit-s.used", "count-1 <= s.limit-s.used"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"past-queue", "shard/acquire.go",
		[]string{"s.waiters.n == 0 && s.fits(x.Count)", "s.fits(x.Count)"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"orders-restart", "shard/import.go",
		[]string{"b.orderCounter = max(b.orderCounter, r.orderCounter)\n", "b.orderCounter = max(b.orderCounter, 1)\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"no-memory", "shard/request.go",
		[]string{
			"q.kind == CmdAcquire && q.seq < p.low", "q.kind == 0 && q.seq < p.low",
			"again := p.findAnswer(head)", "p.findAnswer(head)\n\tvar again *answer",
			"case seq < p.low:", "case false:",
		},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"memory-stays", "shard/import.go",
		[]string{"if len(r.answers) > 0 || r.low > p.low {", "if false {"},
		"shard", "TestBucketsMove", "",
	},
	{
		"gone-forgotten", "shard/remote_session.go",
		[]string{"if m.endedRemotes.Has(id, m.logTime) {", "if false {"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"any-activate", "shard/move.go",
		[]string{"case b.state == bucketImported && b.epoch == epoch,\n\t\tb.state == bucketFrozen && b.moveEpoch < epoch,\n\t\tb.state",
			"case b.state == bucketImported,\n\t\tb.state == bucketFrozen,\n\t\tb.state"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"not-released", "shard/move.go",
		[]string{"if !woken {", "if woken || !woken {"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"nonce-ignored", "shard/session.go",
		[]string{"case x.Epoch == s.epoch && x.Nonce != s.nonce:", "case false:"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"gap-refused", "shard/session.go",
		[]string{"case x.Epoch < s.epoch:", "case x.Epoch < s.epoch || x.Epoch > s.epoch+1 && x.Nonce == s.nonce:"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"newer-refused", "shard/remote_session.go",
		[]string{"if epoch < p.epoch {", "if epoch != p.epoch {"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"wait-endless", "shard/import.go",
		[]string{"if r.timed {", "if r.timed && r.at == 0 {"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"detached-outlives-epoch", "shard/remote_session.go",
		[]string{"r.epoch, r.detached = epoch, false", "r.epoch = epoch"},
		"shard", "TestDetachedStateEndsWithEpoch", "",
	},
}
