package shard

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A stream's cursor is the order id of the last owner given, as 8 bytes, and the name of its
// semaphore. The highest order id says that the semaphore is complete.
const complete = math.MaxUint64

// StreamSnapshot reads a page of the state that a stream begins with: one semaphore, or those of a
// node with a prefix, in order of name, with their owners. A semaphore with more owners than fit
// goes on in the next page as another item with the same name, without data. next is the cursor of
// the following page, nil after the last. The first page of a prefix says which buckets are active
// here, and that of one name the epoch of its bucket. maxBytes 0 is PageBytes. Slices of out alias
// the machine's memory, which is never changed in place. Errors: BAD_REQUEST, WRONG_SHARD,
// NOT_FOUND for the node; a semaphore that does not exist is an empty snapshot.
//
// Entries may be applied between the pages; out.Index is that of each page. The caller then gives
// its reader the changes of the names that the pages have passed: a cursor stands behind the last
// thing given, so that nothing is jumped over.
func (r Semaphores) StreamSnapshot(
	node uint64, name []byte, prefix bool, cursor []byte, maxBytes int, out *protocol.Snapshot,
) (next []byte, err error) {
	if err := protocol.Validate(&protocol.Watch{Node: node, Name: name, Prefix: prefix}); err != nil {
		return nil, err
	}
	if len(cursor) > 0 && (len(cursor) < 9 || len(cursor) > 8+protocol.MaxNameLen) {
		return nil, badCursor()
	}
	w := streamPage{page: newPage(MaxEntries, maxBytes), out: out}
	from, after := name, uint64(0)
	if len(cursor) > 0 {
		from, after = cursor[8:], binary.BigEndian.Uint64(cursor)
	}
	*out = protocol.Snapshot{Index: r.m.applied, First: len(cursor) == 0,
		Semaphores: out.Semaphores[:0], Runs: out.Runs[:0]}
	if !prefix {
		b, err := r.bucket(node, name)
		if err != nil {
			return nil, err
		}
		if out.First {
			out.Epoch = b.epoch
		}
		if s := r.m.semaphores.lookup(b, node, name); s != nil && after != complete {
			w.add(s, len(cursor) == 0, after)
		}
	} else {
		n, err := r.node(node)
		if err != nil {
			return nil, err
		}
		if out.First {
			out.Runs = r.m.activeRuns(out.Runs)
		}
		r.m.semaphores.names(n, from, func(s *semaphore) bool {
			if !bytes.HasPrefix(s.name, name) {
				return false
			}
			if s.bucket.state != bucketActive {
				return true
			}
			if len(cursor) == 0 || !bytes.Equal(s.name, from) {
				return w.add(s, true, 0)
			}
			return after == complete || w.add(s, false, after)
		})
	}
	out.Last = w.next == nil
	return w.next, nil
}

// StreamPosition is where a stream of one name is that begins now: the index of the state, and the
// epoch of the name's bucket. Errors: WRONG_SHARD, NOT_FOUND for the node.
func (r Semaphores) StreamPosition(node uint64, name []byte) (index, epoch uint64, err error) {
	b, err := r.bucket(node, name)
	if err != nil {
		return 0, 0, err
	}
	return r.m.applied, b.epoch, nil
}

// streamPage fills one page.
type streamPage struct {
	page
	out  *protocol.Snapshot
	last []byte // cursor behind the page
	next []byte
}

// add puts a semaphore in: from its beginning, or from the owners behind the one with this order
// id; false: the page is full.
func (p *streamPage) add(s *semaphore, fresh bool, after uint64) bool {
	it := protocol.SnapshotItem{Name: s.name, Limit: s.limit, Ephemeral: s.ephemeral, Version: s.version}
	if fresh {
		it.Data = s.data
		if !p.takes(64 + len(s.name) + len(s.data)) {
			p.next = p.last
			return false
		}
	}
	full := false
	for e := s.owners.seekOrder(after); e != nil; e = next(e, byOrder) {
		if full = !p.takes(entrySize(e)); full {
			break
		}
		it.Owners = append(it.Owners, owner(e))
		after = e.orderID
	}
	p.out.Semaphores = append(p.out.Semaphores, it)
	if full {
		p.next = streamCursor(after, s.name)
		return false
	}
	p.last = streamCursor(complete, s.name)
	return true
}

func streamCursor(after uint64, name []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(name)), after), name...)
}
