package sim

// restartBounds gives each hold with a bound its time again.
const restartBounds = `for s := range m.semaphores.all(m.buckets) {
			for e := s.owners.first; e != nil; e = next(e, byOrder) {
				if p := e.place(); p != nil && p.until != 0 {
					p.until = m.bucketTime(s.bucket) + 10_000
					scheduleBound(m, e)
				}
			}
		}`

// queueFaults are in queues: policies, slots, bounds, owners that are wanted.
var queueFaults = []plantedFault{
	{
		"token-at-enqueueing", "shard/queue.go",
		[]string{"\ts.bucket.orderCounter++\n\te.session.renumber(e, s.bucket.orderCounter)\n", ""},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"late-mark-unmoved", "shard/queue_record.go",
		[]string{"varint.Decode(r, q.fields)\n\tnames", "varint.Decode(r, q.fields)\n\tq.late = q.laned()\n\tnames"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"claim-forgotten", "shard/examine.go",
		[]string{"available.remove(l.admits)\n\t\t}\n\t\tif", "n = 0\n\t\t}\n\t\tif"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"highest-slot", "shard/slot_list.go",
		[]string{"w &= w - 1 {", "w &^= 1 << (63 - bits.LeadingZeros64(w)) {", "list = append(list, uint32(i*64+bits.TrailingZeros64(w)))", "list = slices.Insert(list, 0, uint32(i*64+63-bits.LeadingZeros64(w)))"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"lane-kept", "shard/lane.go",
		[]string{"if q.class(want) == p.lane.class && want.selector", "if want.selector"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"virtual-time-stays", "shard/fair_queue.go",
		[]string{"max(f.virtual, tag)", "max(f.virtual, 0)"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"weight-of-enqueueing", "shard/alter.go",
		[]string{"q.policy, q.aging, q.weights = o.Policy, o.Aging, cloneWeights(o.Weights) })", "q.policy, q.aging = o.Policy, o.Aging })\n\t\tq.weights = cloneWeights(o.Weights)"},
		"shard", "TestQueuesMatchModel", "",
	},
	{
		"start-not-moved", "shard/fair_queue.go",
		[]string{"k.start = tag", "k.start = min(k.start, tag)"},
		"shard", "TestFairBound", "",
	},
	{
		"aging-ignored", "shard/lane_order.go",
		[]string{"q.policy == protocol.PolicyPriority && q.aging == 0:", "q.policy == protocol.PolicyPriority:", "case q.policy == protocol.PolicyPriority:\n\t\t// Each", "case false:\n\t\t// Each"},
		"shard", "TestAgingBound", "",
	},
	{
		"plain-marked", "shard/semaphore.go",
		[]string{"\tif options != nil {\n\t\ts.setOptions(options)\n\t}\n", "\tif s.setOptions(new(protocol.SemaphoreOptions)); options != nil {\n\t\ts.setOptions(options)\n\t} else {\n\t\ts.ownQueue().late = true\n\t}\n"},
		"shard", "TestPlainUse", "",
	},
	{
		"ended-unknown", "shard/bound.go",
		[]string{"(cause != protocol.HoldWanted || p.want.known)", "(cause != protocol.HoldWanted || p.want.number != 0)"},
		"shard", "TestScripts", "",
	},
	{
		"bound-unasked", "shard/bound.go",
		[]string{"hold != 0 && p.knowsBounds() {", "hold != 0 {"},
		"shard", "TestScripts", "",
	},
	{
		"late-known-counts", "shard/wanted.go",
		[]string{"w.known = w.known || known == w.number", "w.known = true"},
		"shard", "TestScripts", "",
	},
	{
		"want-untold", "shard/place.go",
		[]string{"Want: p.want.number}", "Want: 0 * p.want.number}"},
		"shard", "TestScripts", "",
	},
	{
		"more-wanted", "shard/wanted_choice.go",
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
		[]string{"\t\t\tscheduleBound(m, e)", "\t\t\tif r.place.until != 0 {\n\t\t\t\tr.place.until = m.bucketTime(s.bucket) + 10_000\n\t\t\t}\n\t\t\tscheduleBound(m, e)"},
		"shard", "TestScripts", "",
	},
	{
		"partial-refused", "shard/restore_link.go",
		[]string{"q == nil || l.s.bucket.state.isPartial()", "q == nil"},
		"shard", "TestScripts", "",
	},
	{
		"handed-to-dead", "shard/hand_over.go",
		[]string{"!to.waiting || m.waiterEnded(to) ||", "!to.waiting ||"},
		"shard", "TestHandOverToWaiterOfNoTime", "",
	},
	{
		"bound-from-receipt", "client/core/bound.go",
		[]string{"\t\tb.reading = r\n", "\t\tb.reading = reading{true, e.clock(), r.now}\n"},
		"server/sim", "TestFirstViolation", "",
	},
	{
		"lifted-by-same-now", "client/core/bound.go",
		[]string{"case newer && !wanted:", "case !wanted:"},
		"client/core", "TestScripts", "",
	},
	{
		"gate-pulse-missed", "client/gate.go",
		[]string{"return r.Open || r.Openings > w.openings", "return r.Open"},
		"client", "TestGateModel", "",
	},
	{
		"latch-counts-twice", "client/latch.go",
		[]string{"slices.Contains(r.Done, key)", "slices.Contains(r.Done[:min(1, len(r.Done))], key)"},
		"client", "TestLatchModel", "",
	},
}
