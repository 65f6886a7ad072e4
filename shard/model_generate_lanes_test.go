package shard

import "github.com/signalbox-dev/signalbox/protocol"

var (
	modelKeys   = [][]byte{nil, []byte("a"), []byte("b"), []byte("c")}
	modelLabels = []string{"ssd", "gpu", "zone=1"}
)

// options are those of a semaphore with this limit.
func (g *gen) options(limit uint64) *protocol.SemaphoreOptions {
	o := &protocol.SemaphoreOptions{History: uint64(pick(g, 0, 2, 32))}
	switch g.n(4) {
	case 0, 1:
		o.Policy = protocol.PolicyPriority
		o.Aging = pick[uint64](g, 0, 1000, 60_000)
	case 2:
		o.Policy = protocol.PolicyFair
		o.Weights = g.keyWeights()
	}
	if limit <= 5 {
		switch g.n(4) {
		case 0:
			o.Numbered = true
		case 1, 2:
			for i := range limit {
				o.Slots = append(o.Slots, g.slot(int(i)))
			}
		}
	}
	if g.chance(40) {
		o.MaxHold, o.Extend = pick[uint64](g, 1000, 2500, 60_000), g.chance(50)
	}
	if g.chance(50) {
		o.Preempt = protocol.PreemptAny
		if o.Policy == protocol.PolicyPriority && g.chance(60) {
			o.Preempt = protocol.PreemptLower
		}
		if o.Grace = pick[uint64](g, 0, 1000, 5000, 60_000); o.Grace > 0 {
			o.MinHold = pick[uint64](g, 0, 0, 1, 3000, 60_000)
		}
	}
	if g.fault(3) {
		o.Preempt = pick(g, protocol.PreemptOff, protocol.PreemptLower)
	}
	if g.fault(5) {
		o.Aging, o.Weights = 1000, g.keyWeights()
	}
	if g.fault(3) {
		o.MaxHold, o.Extend = 0, true
	}
	return o
}

func (g *gen) keyWeights() (list []protocol.Weight) {
	for _, key := range modelKeys[g.n(3):] {
		list = append(list, protocol.Weight{Key: key, Weight: uint64(pick(g, 1, 2, 3, 1000))})
	}
	return list
}

func (g *gen) slot(i int) protocol.Slot {
	x := protocol.Slot{Name: string(rune('r' + i))}
	for _, label := range modelLabels {
		if g.chance(40) {
			x.Labels = append(x.Labels, label)
		}
	}
	return x
}

// asks are the options of an acquire, or none; of a semaphore with slots more often some.
func (g *gen) asks(sem *modelSemaphore, r *modelEntry, count *uint64) *protocol.AcquireOptions {
	if !g.queues || g.chance(20) {
		return nil
	}
	o := &protocol.AcquireOptions{Priority: uint8(pick(g, 0, 1, 6, 9, 10)), Key: pick(g, modelKeys...),
		Flags: pick(g, 0, 0, protocol.AskDeadlock)}
	if g.chance(85) {
		o.Flags |= protocol.KnowsBounds
	}
	if g.chance(30) {
		o.Hold = pick[uint64](g, 1000, 1500, 3000, 60_000)
	}
	switch {
	case r != nil && r.owner && r.want.number != 0 && g.chance(60):
		o.Known, o.Hold = r.want.number, 0
	case r != nil && r.owner && g.chance(20), g.fault(2):
		o.Known = pick[uint64](g, 1, 3, 9)
	}
	if r != nil && r.owner && g.chance(60) { // it mostly says again what it said
		o.Priority, o.Flags = r.ask.level+1, o.Flags|r.ask.flags
	}
	slots := sem != nil && sem.queue != nil && len(sem.queue.slots) > 0
	switch {
	case !slots && !g.fault(3), g.chance(40):
	case g.chance(60):
		for _, label := range modelLabels {
			if g.chance(30) {
				o.Labels = append(o.Labels, label)
			}
		}
	case slots:
		for _, x := range sem.queue.slots {
			if len(o.Names) < 3 && g.chance(40) || r != nil && x.owner == r && g.chance(80) {
				o.Names = append(o.Names, x.name)
			}
		}
		if n := len(o.Names); n > 0 {
			*count = uint64(n)
		}
	}
	return o
}

func (g *gen) alterOp() op {
	if !g.queues {
		return g.acquireOp()
	}
	return g.request(CmdAlter, func(_ *modelClient, h protocol.Head, name []byte) any {
		limit := uint64(3)
		sem := g.m.sem(1, name)
		if sem != nil {
			limit = sem.limit
		}
		x := &protocol.Alter{Head: h, Name: name, Options: *g.options(limit),
			Fields: pick[uint64](g, 1023, 31, 7, 119|896, 112, 96, 8, 896, 768, 0)}
		if sem == nil || sem.queue == nil || len(sem.queue.slots) == 0 {
			if g.chance(60) {
				x.Fields &^= protocol.AlterSlots // mostly there is somebody
			}
			return x
		}
		if g.chance(50) && len(x.Options.Slots) > 0 { // one more, or one less
			if g.chance(50) && len(x.Options.Slots) > 1 {
				x.Options.Slots = x.Options.Slots[1:]
			} else {
				x.Options.Slots = append(x.Options.Slots, g.slot(5))
			}
		}
		if !x.Options.Numbered && len(x.Options.Slots) == 0 {
			x.Fields &^= protocol.AlterSlots
		}
		for _, y := range sem.queue.slots {
			switch g.n(6) {
			case 0:
				x.Drain = append(x.Drain, y.name)
			case 1, 2:
				x.Undrain = append(x.Undrain, y.name)
			}
		}
		if g.fault(10) {
			x.Drain = append(x.Drain, "none")
		}
		return x
	})
}
