package shard

// split says which slots an owner with this place keeps, and gives back, that asks for so many with this
// selector; false: it must not ask so. It keeps exactly those that it names, or else the lowest.
func (t *slotList) split(p *place, selector string, count uint64) (kept, given []uint32, ok bool) {
	labels, names := selected(selector)
	for _, i := range p.slots {
		switch admits := t.list[i].admits(labels, names); {
		case len(names) == 0 && !admits:
			return nil, nil, false
		case len(names) > 0 && admits, len(names) == 0 && uint64(len(kept)) < count:
			kept = append(kept, i)
		default:
			given = append(given, i)
		}
	}
	return kept, given, uint64(len(kept)) == count
}

// mark sets the mark "drained", and reports whether any slot changed.
func (t *slotList) mark(names []string, drained bool) (changed bool) {
	for _, name := range names {
		x := &t.list[t.find(name)]
		changed = changed || x.drained != drained
		x.drained = drained
	}
	return changed
}
