package sim

// recordFaults are in what is saved, or moves with a bucket.
var recordFaults = []plantedFault{
	{
		"former-unsaved", "shard/record.go",
		[]string{"List(f, &n.formerGraces,", "List(f, new([]formerGrace),"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"open-unsaved", "shard/record.go",
		[]string{"List(f, &t.open,", "List(f, new([]takeover),"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"ending-unsaved", "shard/record.go",
		[]string{"&x.ending,", "new([]uint64),"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"dropped-unsaved", "shard/record.go",
		[]string{"List(f, &x.dropped,", "List(f, new([]nodeIDs),"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"floor-unrestored", "shard/record.go",
		[]string{"&n.graceFloor, &n.graceFloorAt", "&n.graceFloor, new(uint64)"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"restore-overflows", "shard/restore_link.go",
		[]string{" || s.used+e.count < s.used", ""},
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"import-overflows", "shard/import.go",
		[]string{"(s.waiters.n > 0 && !s.core().Late() || s.used+r.count < s.used)", "s.waiters.n > 0 && !s.core().Late()"},
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"nonce-unmoved", "shard/chunk.go",
		[]string{"f = varint.Append(f, s.nonce)", "f = varint.Append(f, 0)"},
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"since-unimported", "shard/import.go",
		[]string{"timeout: r.timeout, since: r.since, data: cloneOrNil(r.data)", "timeout: r.timeout, data: cloneOrNil(r.data)"},
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"completed-unsaved", "shard/process/record.go",
		[]string{"f.Uint(&m.session, &m.completedEpoch, &m.until)", "f.Uint(&m.session, new(uint64), &m.until)"},
		"shard/process", "TestEveryFieldIsKept", "",
	},
	{
		"report-time-unsaved", "shard/rollout/record.go",
		[]string{"&i.seq, &i.reportGen, &i.reportAt)", "&i.seq, &i.reportGen, new(uint64))"},
		"shard/rollout", "TestEveryFieldIsKept", "",
	},
}
