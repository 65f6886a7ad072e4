package shard

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

var errNoSemaphore = protocol.Refuse(protocol.RefusalNoSemaphore, textNoSemaphore)

// Semaphores reads semaphores.
type Semaphores struct{ reader }

// A describe's cursor is the list (one byte) and the order id of the last entry of the page before:
// protocol.DescribeCursor makes it.
const (
	inOwners  = 1
	inWaiters = 2
	inLanes   = 3 // behind a waiter in a lane, see queue.Cursor
)

// Describe reads a page of a semaphore's description. Errors: BAD_REQUEST, WRONG_SHARD, NOT_FOUND.
// Slices of out alias the machine's memory, which is never changed in place. A page holds at most
// the request's limit of entries and about PageBytes.
func (r Semaphores) Describe(req *protocol.Describe, out *protocol.DescribeReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	list, after := byte(inOwners), uint64(0)
	lanes := len(req.Cursor) > 0 && req.Cursor[0] == inLanes
	if len(req.Cursor) > 0 && req.Cursor[0] != inLanes {
		if len(req.Cursor) != 9 || req.Cursor[0] != inOwners && req.Cursor[0] != inWaiters {
			return badCursor()
		}
		list, after = req.Cursor[0], binary.BigEndian.Uint64(req.Cursor[1:])
	}
	b, err := r.bucket(req.Node, req.Name)
	if err != nil {
		return err
	}
	s := r.m.semaphores.lookup(b, req.Node, req.Name)
	if s == nil {
		return errNoSemaphore
	}
	*out = protocol.DescribeReply{
		Index: r.m.applied, Revision: s.revision, Name: s.name, Version: s.version,
		Used: s.used, Limit: s.limit, Ephemeral: s.ephemeral,
		CreatedAt: s.created, NumOwners: uint64(s.owners.n), NumWaiters: uint64(s.waiters.n),
		Owners: out.Owners[:0], Waiters: out.Waiters[:0],
	}
	p := newPage(req.Limit, PageBytes)
	if len(req.Cursor) == 0 {
		out.Data = s.data
		p.bytes = len(s.data)
		out.Details = s.queue().details(req.Flags&protocol.WithSlots != 0)
	}
	if list == inOwners && !lanes {
		if req.Flags&protocol.WithOwners != 0 {
			for e := s.owners.seekOrder(after); e != nil; e = next(e, byOrder) {
				if !p.takes(entrySize(e)) {
					out.Cursor = protocol.DescribeCursor(true, after)
					return nil
				}
				o := owner(e)
				if g := e.grantOf(); g != nil {
					o.Options.Left = g.Left(r.m.bucketTime(b))
					o.Options.Preempted, o.Options.Silent = g.Preempted() != 0, g.Silent()
				}
				out.Owners = append(out.Owners, o)
				after = e.orderID
			}
		}
		after = 0
	}
	if req.Flags&protocol.WithWaiters != 0 && s.queue().laned() {
		return s.queue().describe(req.Cursor, &p, out)
	}
	if req.Flags&protocol.WithWaiters != 0 {
		for e := s.waiters.seekOrder(after); e != nil; e = next(e, byOrder) {
			if !p.takes(entrySize(e)) {
				out.Cursor = protocol.DescribeCursor(false, after)
				return nil
			}
			out.Waiters = append(out.Waiters, describeWaiter(e, s.core().Ask(e.orderID).Options()))
			after = e.orderID
		}
	}
	return nil
}

// describeWaiter is a waiter as clients see it.
func describeWaiter(e *entry, o *protocol.WaiterOptions) protocol.Waiter {
	return protocol.Waiter{
		OrderID: e.orderID, Session: e.session.id, Count: e.count, Data: e.data,
		Description: e.session.description, Since: e.since, Timeout: e.timeout, Options: o,
	}
}

// List reads a page of a node's semaphores in this shard, in order of name. With a session, only
// those it owns or waits for. The cursor is the last name of the page before. Errors: BAD_REQUEST,
// NOT_FOUND.
func (r Semaphores) List(req *protocol.List, out *protocol.ListReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	n, err := r.node(req.Node)
	if err != nil {
		return err
	}
	l, err := newListing(req.Prefix, req.Cursor, req.Limit)
	if err != nil {
		return err
	}
	*out = protocol.ListReply{
		Index: r.m.applied, Semaphores: out.Semaphores[:0],
		UsedSessions: uint64(n.homeSessions.Len()), UsedSemaphores: n.objectCount(),
		UsedBytes: n.bytes, UsedWaiters: n.waiters,
		Runs: r.m.activeRuns(out.Runs),
	}
	item := func(s *semaphore, e *entry) bool {
		if take, more := l.look(s.name, s.bucket, 64, &out.Cursor); !take {
			return more
		}
		it := protocol.ListItem{
			Name: s.name, Limit: s.limit, Used: s.used, Ephemeral: s.ephemeral,
			Version: s.version, DataLen: uint64(len(s.data)),
			NumOwners: uint64(s.owners.n), NumWaiters: uint64(s.waiters.n),
		}
		if e != nil {
			it.OrderID, it.Count, it.Waiting = e.orderID, e.count, e.waiting
		}
		out.Semaphores = append(out.Semaphores, it)
		return true
	}
	if req.Session == 0 {
		r.m.semaphores.names(n, l.from, func(s *semaphore) bool { return item(s, nil) })
		return nil
	}
	if q := r.m.sessions.get(req.Session); q != nil && q.node == n {
		for e := q.entries.seekName(l.from); e != nil && item(e.semaphore, e); e = next(e, byName) {
		}
	}
	return nil
}

// entrySize is about what an entry takes in a frame.
func entrySize(e *entry) int { return 48 + len(e.data) + len(e.session.description) }

// reader is a machine for those who read it. The types that embed it read one subject each:
// [Semaphores], [Sessions], [Processes], [Tracks], [RateLimits], [Nodes], [Buckets], [Load],
// [Metrics]. They are pointers, so that making one costs nothing. Reads change nothing in the
// machine, not even its buffers: they may run beside each other, and exclude Apply.
type reader struct{ m *Machine }

// bucket is the bucket of a name. Errors: WRONG_SHARD; NOT_FOUND for the node.
func (r reader) bucket(node uint64, name []byte) (*bucket, error) {
	b := r.m.activeBucket(node, name)
	if b == nil {
		return nil, wrongShard()
	}
	_, err := r.node(node)
	return b, err
}

func wrongShard() error {
	return &protocol.Error{Status: protocol.StatusWrongShard, Message: textWrongShard}
}

// node finds a node. Errors: NOT_FOUND.
func (r reader) node(id uint64) (*node, error) {
	if n := r.m.nodes[id]; n != nil {
		return n, nil
	}
	if r.m.isDropped(id) {
		return nil, errNodeDropped
	}
	return nil, errNoNode
}

// History reads the holds of a semaphore that ended last. Errors: BAD_REQUEST, WRONG_SHARD,
// NOT_FOUND.
func (r Semaphores) History(req *protocol.SemaphoreHistory, out *protocol.SemaphoreHistoryReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	b, err := r.bucket(req.Node, req.Name)
	if err != nil {
		return err
	}
	s := r.m.semaphores.lookup(b, req.Node, req.Name)
	if s == nil {
		return errNoSemaphore
	}
	*out = protocol.SemaphoreHistoryReply{Index: r.m.applied, Holds: out.Holds[:0]}
	q := s.queue()
	if q == nil {
		return nil
	}
	ended := q.History()
	for i := len(ended) - 1; i >= 0; i-- {
		h := &ended[i]
		out.Holds = append(out.Holds, protocol.HistoryHold{Token: h.Token, Session: h.Session,
			Description: h.Description, Count: h.Count, Slots: h.Slots, Since: h.Since, Until: h.Until, Cause: h.Cause,
			Ending: h.Ending})
	}
	return nil
}
