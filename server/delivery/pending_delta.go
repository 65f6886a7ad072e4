package delivery

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pendingDelta merges the changes of one semaphore until its window ends.
//
// Merging keeps the changes that a reader of any state in between needs to reach index. A deletion
// and a removal stay even if the creation or the addition that they undo was merged too, because a
// snapshot page may have been read in between. A pendingDelta has at most one deletion, one
// creation after it, one change of data, one of the limit, one of the options, and one per owner
// (order ids are never reused).
type pendingDelta struct {
	node  *watchedNode
	key   string
	due   time.Duration
	index uint64
	size  int  // estimated bytes of the delta
	many  bool // by [fanout.Many]

	deleted bool
	created bool
	data    bool
	limit   bool
	options bool
	base    protocol.SemaphoreChange // Limit, Ephemeral, Version, Data as created or last changed

	owners       []protocol.SemaphoreChange // in the order of their first change, since the last deletion or creation
	ownerIndexes map[uint64]int             // order id to index in owners, when there are many
}

const (
	changeCost     = 64 // estimated bytes of a change without its data
	manyOwners     = 16 // from this number on, owners are found by a map
	maxFreePending = 64 // recycled deltas kept
	maxFreeOwners  = 1024
)

// merge adds a change and returns by how many bytes the delta grew.
func (p *pendingDelta) merge(index uint64, c *protocol.SemaphoreChange) int {
	p.index = index
	before := p.size
	switch c.Kind {
	case protocol.ChangeCreated:
		p.reset()
		p.created = true
		p.base = *c
		p.size += changeSize(c)
	case protocol.ChangeDeleted:
		p.deleted = true
		p.reset()
	case protocol.ChangeData:
		p.size += len(c.Data) - len(p.base.Data)
		if !p.created && !p.data {
			p.size += changeCost
		}
		p.data = true
		p.base.Version, p.base.Data = c.Version, c.Data
	case protocol.ChangeLimit:
		if !p.created && !p.limit {
			p.size += changeCost
		}
		p.limit = true
		p.base.Limit = c.Limit
	case protocol.ChangeOptions:
		if !p.options {
			p.size += changeCost
		}
		p.options = true
	case protocol.ChangeOwnerAdded, protocol.ChangeOwnerChanged, protocol.ChangeOwnerRemoved:
		p.owner(c)
	}
	return p.size - before
}

// reset drops the changes that a deletion or a creation overrides.
func (p *pendingDelta) reset() {
	p.created, p.data, p.limit, p.options = false, false, false, false
	p.base = protocol.SemaphoreChange{}
	clear(p.owners)
	p.owners, p.ownerIndexes = p.owners[:0], nil
	p.size = 0
	if p.deleted {
		p.size = changeCost
	}
}

// owner replaces the last change of this owner. An addition that is changed stays an addition; one
// that is removed becomes a removal.
func (p *pendingDelta) owner(c *protocol.SemaphoreChange) {
	i := p.ownerIndex(c.Owner.OrderID)
	if i < 0 {
		p.owners = append(p.owners, *c)
		p.size += changeSize(c)
		if p.ownerIndexes != nil {
			p.ownerIndexes[c.Owner.OrderID] = len(p.owners) - 1
		}
		return
	}
	old := &p.owners[i]
	kind := c.Kind
	if kind == protocol.ChangeOwnerChanged && old.Kind == protocol.ChangeOwnerAdded {
		kind = protocol.ChangeOwnerAdded
	}
	p.size += changeSize(c) - changeSize(old)
	*old = *c
	old.Kind = kind
}

func (p *pendingDelta) ownerIndex(order uint64) int {
	if p.ownerIndexes == nil {
		if len(p.owners) < manyOwners {
			for i := range p.owners {
				if p.owners[i].Owner.OrderID == order {
					return i
				}
			}
			return -1
		}
		p.ownerIndexes = make(map[uint64]int, 2*manyOwners)
		for i := range p.owners {
			p.ownerIndexes[p.owners[i].Owner.OrderID] = i
		}
	}
	if i, ok := p.ownerIndexes[order]; ok {
		return i
	}
	return -1
}

// changeSize estimates the bytes of a change in a delta.
func changeSize(c *protocol.SemaphoreChange) int {
	return changeCost + len(c.Data) + len(c.Owner.Data) + len(c.Owner.Description)
}

// changes appends the delta's changes in the order in which a reader applies them.
func (p *pendingDelta) changes(to []protocol.SemaphoreChange) []protocol.SemaphoreChange {
	if p.deleted {
		to = append(to, protocol.SemaphoreChange{Kind: protocol.ChangeDeleted})
	}
	switch b := &p.base; {
	case p.created:
		to = append(to, protocol.SemaphoreChange{Kind: protocol.ChangeCreated, Limit: b.Limit,
			Ephemeral: b.Ephemeral, Version: b.Version, Data: b.Data})
	default:
		if p.data {
			to = append(to, protocol.SemaphoreChange{Kind: protocol.ChangeData, Version: b.Version, Data: b.Data})
		}
		if p.limit {
			to = append(to, protocol.SemaphoreChange{Kind: protocol.ChangeLimit, Limit: b.Limit})
		}
	}
	if p.options {
		to = append(to, protocol.SemaphoreChange{Kind: protocol.ChangeOptions})
	}
	return append(to, p.owners...)
}
