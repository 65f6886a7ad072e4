package core

import (
	"bytes"
	"cmp"
	"slices"
	"sort"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pages are those of a snapshot.
type pages struct {
	building map[string]*snapshot // while pages come; nil otherwise
	covered  []pageRange          // what came, in order of name
	newest   uint64               // the highest index of the pages
	epochs   *BucketEpochs        // of the snapshot
	held     []delta              // changes that came between pages
}

// pageRange is what a page covers: read at an index, it has all names up to one, after those of the
// page before.
type pageRange struct {
	upTo  string
	last  bool // all names that follow
	index uint64
}

// snapshot is a semaphore in a snapshot.
type snapshot struct {
	attributes
	owners []protocol.Owner // by order id
}

// attributes of a semaphore.
type attributes struct {
	limit     uint64
	ephemeral bool
	version   uint64
	data      []byte
}

func (x *pages) add(m *protocol.Snapshot) {
	page := pageRange{last: m.Last, index: m.Index}
	for i := range m.Semaphores {
		item := &m.Semaphores[i]
		page.upTo = string(item.Name)
		s := x.building[page.upTo]
		if s == nil {
			s = &snapshot{attributes: attributes{item.Limit, item.Ephemeral, item.Version, bytes.Clone(item.Data)}}
			x.building[page.upTo] = s
		}
		for j := range item.Owners {
			s.owners = putOwner(s.owners, ownOwner(&item.Owners[j]))
		}
	}
	x.covered, x.newest = append(x.covered, page), max(x.newest, m.Index)
}

// covers reports whether a change holds something new of a name that the pages have. A page that is
// to come has the others.
func (x *pages) covers(d *delta) bool {
	if x.building == nil && len(x.covered) > 0 && d.index > x.newest {
		return true
	}
	i := sort.Search(len(x.covered), func(i int) bool { return x.covered[i].last || d.name <= x.covered[i].upTo })
	return i < len(x.covered) && d.index > x.covered[i].index
}

// delta is a protocol.Delta that refers to nothing of the reader's memory. All streams that it
// concerns share it.
type delta struct {
	name    string
	index   uint64
	changes []change
}

type change struct {
	kind protocol.SemaphoreChangeKind
	attributes
	owner protocol.Owner
}

// deltas decodes the changes of semaphores. Its memory is used again for each: a change that is
// delivered to each of thousands of clients would otherwise make garbage of half a kilobyte each
// time.
type deltas struct {
	message protocol.Delta
	streams []*shardStream
	delta   delta
}

// maxKeptChanges is how many changes a delta may have for its memory to be used again.
const maxKeptChanges = 64

// received hands the changes of a semaphore to the streams of a connection that they concern.
func (x *deltas) received(e *Engine, c *Conn, h *protocol.Header) error {
	if c.streams.len() == 0 {
		return nil // they were closed a moment ago
	}
	m := &x.message
	if err := m.DecodeBodyAgain(h.Body); err != nil {
		return err
	}
	x.streams = c.streams.matching(x.streams[:0], h.Arg, m.Node, m.Name)
	if len(x.streams) > 0 {
		d := x.own()
		known := d.isKnown()
		for _, p := range x.streams {
			switch {
			case p.open != c: // it is closed since
			case !known:
				p.restartWhole(e)
			default:
				p.of.(*Watch).delta(e, p, d)
			}
		}
	}
	if cap(m.Changes) > maxKeptChanges {
		*x = deltas{}
		return nil
	}
	clear(m.Changes)
	clear(x.streams)
	clear(x.delta.changes)
	m.Name, x.delta.name = nil, ""
	return nil
}

// own makes the delta of the message.
func (x *deltas) own() *delta {
	m, name := &x.message, ""
	if w := x.streams[0].of.(*Watch); w.Name == string(m.Name) {
		name = w.Name
	} else {
		name = string(m.Name)
	}
	x.delta.own(name, m)
	return &x.delta
}

// own makes a delta of the message about a name.
func (d *delta) own(name string, m *protocol.Delta) {
	d.name, d.index, d.changes = name, m.Index, d.changes[:0]
	for i := range m.Changes {
		c := &m.Changes[i]
		d.changes = append(d.changes,
			change{c.Kind, attributes{c.Limit, c.Ephemeral, c.Version, bytes.Clone(c.Data)}, ownOwner(&c.Owner)})
	}
}

// isKnown reports whether all changes are of known kinds. Of others a newer server's snapshot says
// what they came to. See R25.
func (d *delta) isKnown() bool {
	return !slices.ContainsFunc(d.changes, func(c change) bool {
		return c.kind < protocol.ChangeCreated || c.kind > protocol.ChangeOptions
	})
}

// ownOwner is an owner that refers to nothing of the reader's memory.
func ownOwner(o *protocol.Owner) protocol.Owner {
	own := *o
	own.Data = bytes.Clone(o.Data)
	return own
}

func byOrderID(o protocol.Owner, id uint64) int { return cmp.Compare(o.OrderID, id) }

func putOwner(list []protocol.Owner, o protocol.Owner) []protocol.Owner {
	i, found := slices.BinarySearchFunc(list, o.OrderID, byOrderID)
	if found {
		list[i] = o
		return list
	}
	return slices.Insert(list, i, o)
}

// sameOwner ignores what is only shown.
func sameOwner(a, b *protocol.Owner) bool {
	return a.Session == b.Session && a.Count == b.Count && bytes.Equal(a.Data, b.Data) && a.Description == b.Description
}
