package desired

import (
	"cmp"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// What a resource of a rate limit guarantees to its children is bounded: their Min together is at
// most its Cap, at each moment. So what gets less is changed before what gets more: first from the
// leaves up all that is lowered, then from the root down all that is made or raised. In between
// each resource has the lower of its two guarantees, so that every sum fits.

// childrenOf are the limits of the cluster directly below one, in order of path.
func (p *planner) childrenOf(k Key) (children []*Object) {
	if p.children == nil {
		p.children = map[Key][]*Object{}
		for _, x := range p.sorted(func(k Key) bool { return k.Kind == Limit }) {
			if above := parentOf(x.Name); above != "" {
				parent := Key{Limit, x.Node, above}
				p.children[parent] = append(p.children[parent], p.now.Objects[x])
			}
		}
	}
	return p.children[k]
}

// checkLimits refuses what a tree cannot be in the end: a resource without a parent, and guarantees
// that are more than there is.
func (p *planner) checkLimits() error {
	absent := map[Key]bool{}
	for _, a := range p.d.Absent {
		absent[a.Key] = true
	}
	sums := map[Key]uint64{}
	final := func(k Key) *Object {
		if o := p.d.find(k); o != nil {
			return o
		}
		if absent[k] {
			return nil
		}
		return p.now.Objects[k]
	}
	for k, o := range p.now.Objects {
		if k.Kind == Limit && p.d.find(k) == nil && !absent[k] {
			sums[Key{Limit, k.Node, parentOf(k.Name)}] += o.Min
		}
	}
	named := p.d.Objects[:0:0]
	for _, o := range p.d.Objects {
		if o.Kind == Limit {
			named = append(named, o)
			sums[Key{Limit, o.Node, parentOf(o.Name)}] += o.Min
		}
	}
	for _, o := range named {
		above := Key{Limit, o.Node, parentOf(o.Name)}
		parent := o
		if above.Name != "" {
			if parent = final(above); parent == nil {
				return o.At.Errorf("%s has no parent: %s is neither in the document nor in the cluster; add it",
					o.Key, above.Name)
			}
			if sums[above] > parent.Cap {
				return o.At.Errorf("the children of %s have guarantees of %s, more than the %s that it has itself; lower their min",
					above.Name, protocol.LimitRate(sums[above]), protocol.LimitRate(parent.Cap))
			}
		}
		if sums[o.Key] > o.Cap {
			return o.At.Errorf("the children of %s have guarantees of %s, more than the %s that it has itself; lower their min",
				o.Name, protocol.LimitRate(sums[o.Key]), protocol.LimitRate(o.Cap))
		}
	}
	return nil
}

// orderLimits puts the changes of limits into an order in which each is allowed. Where a limit goes
// that has a guarantee, others of its tree may need that, so what goes there goes first.
func (p *planner) orderLimits() {
	type tree struct{ node, root string }
	of := func(c *Change) tree { return tree{c.Node, protocol.LimitRoot(c.Name)} }
	changed, freed := map[tree]bool{}, map[tree]bool{}
	var limits []*Change
	p.changes = slices.DeleteFunc(p.changes, func(c *Change) bool {
		if c.Kind != Limit {
			return false
		}
		c.lane = "limits " + c.Node + " " + of(c).root
		changed[of(c)] = changed[of(c)] || c.Op != Delete
		freed[of(c)] = freed[of(c)] || c.Op == Delete && c.Have.Min > 0
		limits = append(limits, c)
		return true
	})
	for _, c := range limits {
		if c.Op == Delete && changed[of(c)] && freed[of(c)] {
			c.stage = stageLimits
		}
	}
	slices.SortStableFunc(limits, compareLimits)
	p.changes = append(p.changes, limits...)
}

// compareLimits orders what goes, then what is lowered, both from the leaves up, and then the rest
// from the root down.
func compareLimits(a, b *Change) int {
	step := func(c *Change) int {
		switch {
		case c.Op == Delete:
			return 0
		case c.Op == Alter && c.Want.Cap <= c.Have.Cap:
			return 1
		}
		return 2
	}
	order := strings.Compare(a.Name, b.Name)
	if step(a) < 2 {
		order = -order
	}
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(step(a), step(b)), order)
}
