package sim

// recordFaults are in what is saved, or moves with a bucket.
var recordFaults = []plantedFault{
	{
		"former-unsaved", "shard/record.go",
		[]string{"uint64(len(n.formerGraces)))\n\tfor _, f := range n.formerGraces {", "0)\n\tfor _, f := range n.formerGraces[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"open-unsaved", "shard/record.go",
		[]string{"uint64(len(t.open)))\n\tfor _, o := range t.open {", "0)\n\tfor _, o := range t.open[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"ending-unsaved", "shard/record.go",
		[]string{"uint64(len(m.ending)))\n\tfor _, p := range m.ending {", "0)\n\tfor _, p := range m.ending[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"dropped-unsaved", "shard/record.go",
		[]string{"uint64(len(m.dropped)))", "0)", "range m.dropped {", "range m.dropped[:0] {"},
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"floor-unrestored", "shard/restore.go",
		[]string{"n.graceFloor, n.graceFloorAt = r.Uint(), r.Uint()", "n.graceFloor, n.graceFloorAt = r.Uint(), 0*r.Uint()"},
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
