package shard

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// names walks a node's semaphores in order of name, from the first one not below from.
func (m *Machine) names(n *node, from []byte, yield func(*semaphore) bool) {
	var recent []*semaphore
	if n.semaphoreCount > n.semaphores.n {
		for s := m.recent.first; s != nil; s = s.recentNext {
			if s.node == n && bytes.Compare(s.name, from) >= 0 {
				recent = append(recent, s)
			}
		}
		slices.SortFunc(recent, func(a, b *semaphore) int { return bytes.Compare(a.name, b.name) })
	}
	more := true
	n.semaphores.ascend(func(s *semaphore) bool { return bytes.Compare(s.name, from) < 0 }, func(s *semaphore) bool {
		for more && len(recent) > 0 && semaphoreLess(recent[0], s) {
			more = yield(recent[0])
			recent = recent[1:]
		}
		if more {
			more = yield(s)
		}
		return more
	})
	for more && len(recent) > 0 {
		more = yield(recent[0])
		recent = recent[1:]
	}
}

// listing is a page of names in their order, under a prefix.
type listing struct {
	prefix, from, last []byte
	page               page
}

// newListing begins behind the cursor, which is the last name of the page before. Errors:
// BAD_REQUEST.
func newListing(prefix, cursor []byte, limit uint32) (listing, error) {
	if len(cursor) > protocol.MaxNameLen {
		return listing{}, badCursor()
	}
	from := prefix
	if len(cursor) > 0 && bytes.Compare(cursor, from) >= 0 {
		from = append(bytes.Clone(cursor), 0) // the first name behind it
	}
	return listing{prefix: prefix, from: from, page: newPage(limit, PageBytes)}, nil
}

// look says whether the next name in order goes into the page, with so many bytes beside it, and
// whether to look further. Another shard lists the names in buckets that are not active here.
// When the page is full the cursor is set.
func (l *listing) look(name []byte, b *bucket, size int, cursor *[]byte) (take, more bool) {
	switch {
	case !bytes.HasPrefix(name, l.prefix):
		return false, false
	case b.state != bucketActive:
		return false, true
	case !l.page.takes(size + len(name)):
		*cursor = l.last
		return false, false
	}
	l.last = name
	return true, true
}

// List reads a page of a node's semaphores in this shard, in order of name. With a session, only
// those it owns or waits for. The cursor is the last name of the page before. Errors: BAD_REQUEST,
// NOT_FOUND.
func (m *Machine) List(req *protocol.List, out *protocol.ListReply) error {
	if err := req.Validate(); err != nil {
		return err
	}
	n, err := m.readNode(req.Node)
	if err != nil {
		return err
	}
	l, err := newListing(req.Prefix, req.Cursor, req.Limit)
	if err != nil {
		return err
	}
	*out = protocol.ListReply{
		Index: m.applied, Semaphores: out.Semaphores[:0],
		UsedSessions: uint64(n.homeSessions.n), UsedSemaphores: n.objectCount(),
		UsedBytes: n.bytes, UsedWaiters: n.waiters,
		Runs: m.activeRuns(out.Runs),
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
		m.names(n, l.from, func(s *semaphore) bool { return item(s, nil) })
		return nil
	}
	if q := m.sessions[req.Session]; q != nil && q.node == n {
		for e := q.entries.seekName(l.from); e != nil && item(e.semaphore, e); e = next(e, byName) {
		}
	}
	return nil
}

// SessionDescribe reads a session at its home. Errors: WRONG_SHARD, SESSION_EXPIRED.
func (m *Machine) SessionDescribe(req *protocol.SessionDescribe, out *protocol.SessionInfo) error {
	if m.activeHomeBucket(req.Session) == nil {
		return &protocol.Error{Status: protocol.StatusWrongShard, Message: textWrongShard}
	}
	p := m.sessions[req.Session]
	switch {
	case m.isDropped(req.Node):
		return &protocol.Error{Status: protocol.StatusSessionExpired, Message: textNodeDropped}
	case p == nil || p.home == nil || p.node.id != req.Node || !m.alive(p):
		return &protocol.Error{Status: protocol.StatusSessionExpired, Message: textSessionEnded}
	}
	*out = m.sessionInfo(p.home)
	return nil
}

func (m *Machine) sessionInfo(s *homeSession) protocol.SessionInfo {
	info := protocol.SessionInfo{
		Session: s.id, Node: s.node.id, State: protocol.SessionAttached, Epoch: s.epoch,
		Timeout: uint64(s.timeout), Description: s.description,
		Client: s.client, CreatedAt: s.created,
	}
	if attached, deadline := m.attached(s); !attached {
		info.State, info.Remaining = protocol.SessionDetached, deadline-m.bucketTime(m.homeBucketOf(s))
	}
	return info
}

// SessionList reads a page of the node's sessions at home in this shard, in order of id. The cursor
// is the last id of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (m *Machine) SessionList(req *protocol.SessionList, out *protocol.SessionListReply) error {
	var after uint64
	if len(req.Cursor) > 0 {
		if len(req.Cursor) != 8 {
			return badCursor()
		}
		after = binary.BigEndian.Uint64(req.Cursor)
	}
	n, err := m.readNode(req.Node)
	if err != nil {
		return err
	}
	*out = protocol.SessionListReply{Sessions: out.Sessions[:0], Runs: m.activeRuns(out.Runs)}
	p := newPage(req.Limit, PageBytes)
	n.homeSessions.ascend(func(s *homeSession) bool { return s.id <= after }, func(s *homeSession) bool {
		if !m.alive(s.sessionRecord) || m.activeHomeBucket(s.id) == nil {
			return true
		}
		if !p.takes(64 + len(s.description) + len(s.client)) {
			out.Cursor = binary.BigEndian.AppendUint64(nil, after)
			return false
		}
		after = s.id
		out.Sessions = append(out.Sessions, m.sessionInfo(s))
		return true
	})
	return nil
}

// SessionObjects reads a page of the hosted objects in the active buckets of this shard that a
// session takes part in: kind by kind, each in order of name. The cursor is the type and the name
// of the last one of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (m *Machine) SessionObjects(req *protocol.SessionObjects, out *protocol.SessionObjectsReply) error {
	var last protocol.ObjectType
	var after []byte
	if len(req.Cursor) > 0 {
		last, after = protocol.ObjectType(req.Cursor[0]), req.Cursor[1:]
		known := slices.ContainsFunc(hostedKinds[:], func(k hostedKind) bool { return k.object == last })
		if !known || len(after) > protocol.MaxNameLen {
			return badCursor()
		}
	}
	n, err := m.readNode(req.Node)
	if err != nil {
		return err
	}
	*out = protocol.SessionObjectsReply{Objects: out.Objects[:0], Runs: m.activeRuns(out.Runs)}
	p := m.sessions[req.Session]
	if p == nil || p.node != n || !m.alive(p) {
		return nil
	}
	pg := newPage(req.Limit, PageBytes)
	for kind := range kindCount {
		objects, object := p.objects(kindNumber(kind)), hostedKinds[kind].object
		if object < last {
			continue
		}
		if object == last {
			behind, found := objects.find(after)
			if found {
				behind++
			}
			objects = objects[behind:]
		}
		for _, x := range objects {
			if x.bucket.state != bucketActive {
				continue
			}
			label, count := x.state.part(p.id)
			if !pg.takes(16 + len(x.name) + len(label)) {
				end := &out.Objects[len(out.Objects)-1]
				out.Cursor = append([]byte{byte(end.Type)}, end.Name...)
				return nil
			}
			out.Objects = append(out.Objects,
				protocol.SessionObject{Type: object, Name: x.name, Label: label, Count: uint64(count)})
		}
	}
	return nil
}
