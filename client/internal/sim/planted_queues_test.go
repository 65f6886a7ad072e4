package sim

// restartBounds gives each hold with a bound its time again.
const restartBounds = `for s := range m.semaphores.all(m.buckets) {
			for e := s.owners.first; e != nil; e = next(e, byOrder) {
				if g := e.grantOf(); g != nil && g.Expires != 0 {
					g.Expires = m.bucketTime(s.bucket) + 10_000
					e.scheduleBound(m)
				}
			}
		}`

// queueFaults are in queues: policies, slots, bounds, preemption.
var queueFaults = []plantedFault{
	{
		"token-at-enqueueing", "shard/queued.go",
		[]string{"\tq.s.bucket.orderCounter++\n\te.session.renumber(e, q.s.bucket.orderCounter)\n", ""},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"late-mark-unmoved", "shard/queue/record.go",
		[]string{"varint.Decode(r, q.Fields)\n\tnames", "varint.Decode(r, q.Fields)\n\tq.late = q.Laned()\n\tnames"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"claim-forgotten", "shard/queue/examine.go",
		[]string{"available.remove(l.admits)\n\t\t}\n\t\tif", "n = 0\n\t\t}\n\t\tif"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"highest-slot", "shard/queue/slot_list.go",
		[]string{"w &= w - 1 {", "w &^= 1 << (63 - bits.LeadingZeros64(w)) {", "list = append(list, uint32(i*64+bits.TrailingZeros64(w)))", "list = slices.Insert(list, 0, uint32(i*64+63-bits.LeadingZeros64(w)))"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"lane-kept", "shard/queue/queue.go",
		[]string{"if q.policy.class(d.Level, d.Key) == a.lane.class && d.Selector", "if d.Selector"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"virtual-time-stays", "shard/queue/fair.go",
		[]string{"max(f.virtual, tag)", "max(f.virtual, 0)"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"weight-of-enqueueing", "shard/queue/options.go",
		[]string{
			"\tlaned := q.Laned()\n", "\tlaned, was := q.Laned(), q.options.Weights\n",
			"q.policy = newPolicy(&q.options)\n", "q.policy = newPolicy(&q.options)\n\tif f, ok := q.policy.(*fair); ok {\n\t\tf.weights = was\n\t\tdefer func() { f.weights = q.options.Weights }()\n\t}\n",
		},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"start-not-moved", "shard/queue/fair.go",
		[]string{"k.start = tag", "k.start = min(k.start, tag)"},
		"shard", "TestFairBound", "",
	},
	{
		"aging-ignored", "shard/queue/policy.go",
		[]string{"if p.aging == 0 {", "if below < 100 {"},
		"shard", "TestAgingBound", "",
	},
	{
		"plain-marked", "shard/semaphore.go",
		[]string{"\t\ts.setQueue(queue.New(options, limit))\n\t}\n", "\t\ts.setQueue(queue.New(options, limit))\n\t} else {\n\t\ts.ownQueue().DrawLate()\n\t}\n"},
		"shard", "TestPlainUse", "",
	},
	{
		"ended-unknown", "shard/queue/entry.go",
		[]string{"(cause != protocol.HoldPreempted || g.known)", "(cause != protocol.HoldPreempted || g.number != 0)"},
		"shard", "TestScripts", "",
	},
	{
		"bound-unasked", "shard/queue/queue.go",
		[]string{"hold != 0 && d.KnowsBounds() {", "hold != 0 {"},
		"shard", "TestScripts", "",
	},
	{
		"late-known-counts", "shard/queue/preempt.go",
		[]string{"p.known = p.known || known == p.number", "p.known = true"},
		"shard", "TestScripts", "",
	},
	{
		"preemption-untold", "shard/queue/holdings.go",
		[]string{"Preemption: g.number}", "Preemption: 0 * g.number}"},
		"shard", "TestScripts", "",
	},
	{
		"more-preempted", "shard/queue/choice.go",
		[]string{"less.fits() {", "less.fits() && k < 0 {"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"bound-restarts", "shard/takeover.go",
		[]string{"m.transferring = false\n\t}", "m.transferring = false\n\t\t" + restartBounds + "\n\t}"},
		"shard", "TestScripts", "",
	},
	{
		"bound-restarts-moved", "shard/import.go",
		[]string{
			"s.used += e.count\n\t\trestoreEntry(m, e, r.part)\n",
			"s.used += e.count\n\t\trestoreEntry(m, e, r.part)\n\t\tif g := e.grantOf(); g != nil && g.Expires != 0 {\n\t\t\tg.Expires = m.bucketTime(s.bucket) + 10_000\n\t\t\te.scheduleBound(m)\n\t\t}\n",
		},
		"shard", "TestScripts", "",
	},
	{
		"partial-refused", "shard/restore_link.go",
		[]string{"q != nil && !l.s.bucket.state.isPartial()", "q != nil"},
		"shard", "TestScripts", "",
	},
	{
		"handed-to-dead", "shard/hand_off.go",
		[]string{"!to.waiting || m.waiterEnded(to) ||", "!to.waiting ||"},
		"shard", "TestTransferToWaiterOfNoTime", "",
	},
	{
		"stuck-by-arrival", "shard/queue.go",
		[]string{"if q := s.queue(); q.laned() {\n\t\treturn q.NextExceeds",
			"if q := s.queue(); q.laned() && s.limit == 0 {\n\t\treturn q.NextExceeds"},
		"shard", "TestScripts", "",
	},
	{
		"stuck-after-grant", "shard/queued.go",
		[]string{"\tq.s.updateStuck() // fair ranks a key that was granted behind others\n", ""},
		"shard", "TestScripts", "",
	},
	{
		"bound-from-receipt", "client/internal/core/bound.go",
		[]string{"\t\tb.reading = r\n", "\t\tb.reading = reading{true, e.clock(), r.now}\n"},
		"client/internal/sim", "TestFirstViolation", "",
	},
	{
		"lifted-by-same-now", "client/internal/core/bound.go",
		[]string{"case newer && !preempted:", "case !preempted:"},
		"client/internal/core", "TestScripts", "",
	},
	{
		"gate-pulse-missed", "client/recipes/gate.go",
		[]string{"return r.Open || r.Openings > w.openings", "return r.Open"},
		"client/recipes", "TestGateModel", "",
	},
	{
		"latch-counts-twice", "client/recipes/latch.go",
		[]string{"slices.Contains(r.Done, key)", "slices.Contains(r.Done[:min(1, len(r.Done))], key)"},
		"client/recipes", "TestLatchModel", "",
	},
}
