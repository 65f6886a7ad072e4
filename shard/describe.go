package shard

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Bounds of a page. A page may be larger by one semaphore's data or one entry, so that a walk
// always gets on; it fits in a frame.
const (
	PageBytes   = 256 << 10
	PageEntries = 1_000  // where the request leaves it to the server
	MaxEntries  = 10_000 // whatever the request says
)

// page counts what went into a page.
type page struct {
	entries, bytes       int
	maxEntries, maxBytes int
}

func newPage(limit uint32, maxBytes int) page {
	p := page{maxEntries: int(min(limit, MaxEntries)), maxBytes: maxBytes}
	if limit == 0 {
		p.maxEntries = PageEntries
	}
	if maxBytes <= 0 {
		p.maxBytes = PageBytes
	}
	return p
}

// takes says whether another entry of this size goes into the page, and counts it.
func (p *page) takes(size int) bool {
	if p.entries >= p.maxEntries || p.bytes > 0 && p.bytes+size > p.maxBytes {
		return false
	}
	p.entries++
	p.bytes += size
	return true
}

// readBucket is the bucket of a name for a read.
func (m *Machine) readBucket(node uint64, name []byte) (*bucket, *node, error) {
	b := m.activeBucket(node, name)
	if b == nil {
		return nil, nil, &protocol.Error{Status: protocol.StatusWrongShard, Message: textWrongShard}
	}
	n, err := m.readNode(node)
	return b, n, err
}

func (m *Machine) readNode(id uint64) (*node, error) {
	if n := m.nodes[id]; n != nil {
		return n, nil
	}
	if m.isDropped(id) {
		return nil, &protocol.Error{Status: protocol.StatusNotFound, Message: textNodeDropped}
	}
	return nil, &protocol.Error{Status: protocol.StatusNotFound, Message: textNoNode}
}

// A describe's cursor is the list (one byte) and the order id of the last entry of the page before:
// protocol.DescribeCursor makes it.
const (
	inOwners  = 1
	inWaiters = 2
)

// Describe reads a page of a semaphore's description. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
// Slices of out alias the machine's memory, which is never changed in place. A page holds at most
// the request's limit of entries and about PageBytes.
func (m *Machine) Describe(req *protocol.Describe, out *protocol.DescribeReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	list, after := byte(inOwners), uint64(0)
	if len(req.Cursor) > 0 {
		if len(req.Cursor) != 9 || req.Cursor[0] != inOwners && req.Cursor[0] != inWaiters {
			return badCursor()
		}
		list, after = req.Cursor[0], binary.BigEndian.Uint64(req.Cursor[1:])
	}
	b, _, err := m.readBucket(req.Node, req.Name)
	if err != nil {
		return err
	}
	s := b.lookup(req.Node, req.Name)
	if s == nil {
		return &protocol.Error{Status: protocol.StatusNotFound, Message: outcomeTable[outcomeNoSemaphore].text}
	}
	*out = protocol.DescribeReply{
		Index: m.applied, Revision: s.revision, Name: s.name, Version: s.version,
		Used: s.used, Limit: s.limit, Ephemeral: s.ephemeral,
		CreatedAt: s.created, NumOwners: uint64(s.owners.n), NumWaiters: uint64(s.waiters.n),
		Owners: out.Owners[:0], Waiters: out.Waiters[:0],
	}
	p := newPage(req.Limit, PageBytes)
	if len(req.Cursor) == 0 {
		out.Data = s.data
		p.bytes = len(s.data)
	}
	if list == inOwners {
		if req.Flags&protocol.WithOwners != 0 {
			for e := s.owners.seekOrder(after); e != nil; e = next(e, byOrder) {
				if !p.takes(entrySize(e)) {
					out.Cursor = protocol.DescribeCursor(true, after)
					return nil
				}
				out.Owners = append(out.Owners, owner(e))
				after = e.orderID
			}
		}
		after = 0
	}
	if req.Flags&protocol.WithWaiters != 0 {
		for e := s.waiters.seekOrder(after); e != nil; e = next(e, byOrder) {
			if !p.takes(entrySize(e)) {
				out.Cursor = protocol.DescribeCursor(false, after)
				return nil
			}
			out.Waiters = append(out.Waiters, protocol.Waiter{
				OrderID: e.orderID, Session: e.session.id, Count: e.count, Data: e.data,
				Description: e.session.description, Since: e.since, Timeout: e.timeout,
			})
			after = e.orderID
		}
	}
	return nil
}

func badCursor() error {
	return &protocol.Error{Status: protocol.StatusBadRequest,
		Message: "cursor was not made by this server; start again without one"}
}

// entrySize is about what an entry takes in a frame.
func entrySize(e *entry) int { return 48 + len(e.data) + len(e.session.description) }
