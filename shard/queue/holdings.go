package queue

import (
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// holdings is the state of a semaphore's owners beyond plain ones.
type holdings struct {
	rule   *protocol.SemaphoreOptions // options of the queue
	grants map[uint64]*Grant          // by token
	slots  slotList
	usage  Usage // of owners
}

// setGrant replaces the grant of an owner; nil removes it.
func (q *holdings) setGrant(token uint64, g *Grant) {
	if g != nil && g.isPlain() {
		g = nil
	}
	was := q.grants[token]
	q.usage.Bytes += g.bytes() - was.bytes() // modulo 2^64
	if was != nil {
		q.usage.Preempted -= bit(was.number != 0)
		q.usage.Silent -= bit(was.silent)
	}
	if g == nil {
		delete(q.grants, token)
		return
	}
	q.usage.Preempted += bit(g.number != 0)
	q.usage.Silent += bit(g.silent)
	q.grants[token] = g
}

// changed returns a copy of an owner's grant, to be changed and set again.
func (q *holdings) changed(token uint64) *Grant {
	g := Grant{Demand: plainDemand}
	if was := q.grants[token]; was != nil {
		g = *was
	}
	return &g
}

func bit(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// Reply returns an owner's part of the reply to an acquire beyond its token, or nil.
func (q *holdings) Reply(g *Grant, now uint64) *protocol.Grant {
	if g == nil || len(g.Slots) == 0 && !g.KnowsBounds() && g.number == 0 {
		return nil
	}
	r := &protocol.Grant{Slots: q.slots.names(g.Slots), Preemption: g.number}
	if g.KnowsBounds() || g.number != 0 {
		r.Now = now
		r.Until, _ = g.Bound()
	}
	return r
}

// OwnerOptions returns an owner as clients see it, nil for a plain one.
func (q *holdings) OwnerOptions(g *Grant) *protocol.OwnerOptions {
	if g == nil {
		return nil
	}
	return &protocol.OwnerOptions{Slots: q.slots.names(g.Slots), Priority: g.Level + 1, Key: []byte(g.Key)}
}

// SlotStates yields the state of each slot.
func (q *holdings) SlotStates(yield func(protocol.SlotState)) {
	for i := range q.slots {
		yield(q.slots[i].state())
	}
}

// SlotInfos describes the slots; owner fills in the session that holds one, and since when.
func (q *holdings) SlotInfos(owner func(token uint64, info *protocol.SlotInfo)) (list []protocol.SlotInfo) {
	for i := range q.slots {
		x := &q.slots[i]
		info := protocol.SlotInfo{Name: x.name, Labels: x.labels, State: x.state(), Token: x.token}
		if x.held {
			owner(x.token, &info)
		}
		list = append(list, info)
	}
	return list
}

// SlotNames returns the names of an owner's first slots, at most n.
func (q *holdings) SlotNames(g *Grant, n int) []string {
	if g == nil {
		return nil
	}
	return q.slots.names(g.Slots[:min(len(g.Slots), n)])
}

// AdmitsFewer reports whether fewer slots than count match the options of a request, so that no
// grant can be made with them.
func (q *holdings) AdmitsFewer(o *protocol.AcquireOptions, count uint64) bool {
	return uint64(q.slots.admitted(selectorOf(o.Labels, o.Names)).countIn(nil)) < count
}

// free takes slots back from their owner. A slot that leaves goes, and the indexes behind it move
// down.
func (q *holdings) free(e Entries, indexes []uint32) {
	t := q.slots
	for k := len(indexes) - 1; k >= 0; k-- {
		i := int(indexes[k])
		if t[i].held = false; !t[i].leaving {
			continue
		}
		for j := i + 1; j < len(t); j++ {
			e.Touch(t[j].token)
			own := q.grants[t[j].token].Slots
			own[slices.Index(own, uint32(j))]--
		}
		t = slices.Delete(t, i, i+1)
	}
	q.slots = t
}

// setSlots replaces the list of slots. Those with a name of before are the same slots. One that is
// left out goes at once if it is free, else when it is given back; named again meanwhile, it stays.
func (q *holdings) setSlots(e Entries, configs []protocol.Slot) {
	was := q.slots
	t := make(slotList, 0, len(configs))
	now := make([]uint32, len(was)) // indexes of those that stay or leave
	byName := make(map[string]int, len(was))
	for i := range was {
		byName[was[i].name] = i
	}
	stays := make([]bool, len(was))
	for _, c := range configs {
		x := slot{name: c.Name, labels: slices.Clone(c.Labels)}
		if i, ok := byName[c.Name]; ok {
			x.drained, x.token, x.held = was[i].drained, was[i].token, was[i].held
			now[i], stays[i] = uint32(len(t)), true
		}
		t = append(t, x)
	}
	for i := range was {
		if !stays[i] && was[i].held {
			was[i].leaving = true
			now[i] = uint32(len(t))
			t = append(t, was[i])
		}
	}
	seen := make(map[uint64]bool)
	for i := range t {
		token := t[i].token
		if !t[i].held || seen[token] {
			continue
		}
		seen[token] = true
		e.Touch(token)
		own := q.grants[token].Slots
		for k, at := range own {
			own[k] = now[at]
		}
		slices.Sort(own)
	}
	q.slots = t
}
