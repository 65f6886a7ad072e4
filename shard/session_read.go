package shard

import (
	"encoding/binary"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Sessions reads sessions, those at home here and remote ones.
type Sessions struct{ reader }

// SessionView is a home session as the leader and the server see it.
type SessionView struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // attach epoch
	Nonce       uint64 // of the holder
	Key         [protocol.KeyLen]byte
	Timeout     uint64 // ms
	Grace       uint64 // ms, the node's
	Description string
	Client      string // address
	Attached    bool
	Deadline    uint64 // when detached: the last log time at which it exists
	CreatedAt   uint64 // wall clock, ms since 1970
	Held        int    // entries in this shard
}

// Home looks a session up in its home bucket, which must be active here. One that has ended or is
// overdue is not found.
func (r Sessions) Home(id uint64) (SessionView, bool) {
	p := r.m.sessions.get(id)
	if p == nil || p.home == nil || !r.m.alive(p) || r.m.activeHomeBucket(id) == nil {
		return SessionView{}, false
	}
	s := p.home
	attached, deadline := r.m.attached(s)
	if !attached {
		deadline = r.m.homeBucketOf(s).logTimeAt(deadline)
	}
	return SessionView{
		Session: id, Node: p.node.id, Epoch: p.epoch, Nonce: s.nonce, Key: s.key, Timeout: uint64(s.timeout),
		Grace:       p.node.config.GracePeriod,
		Description: p.description, Client: s.client, Attached: attached,
		Deadline: deadline, CreatedAt: s.created, Held: p.entries.n,
	}, true
}

// Ended reports whether the session existed, at home in a bucket that is active here, and has
// ended. It is false for an id that this machine has not given out yet.
func (r Sessions) Ended(id uint64) bool {
	b := r.m.activeHomeBucket(id)
	if b == nil || id <= r.m.homeIDsBelow(b.number) ||
		id > protocol.MakeSessionID(r.m.tier, uint16(b.number), b.sessionCounter) {
		return false
	}
	_, there := r.Home(id)
	return !there
}

// RemoteSessionView is what this shard knows of a remote session.
type RemoteSessionView struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // highest attach epoch seen
	Description string
	Held        int // entries it owns and waits with
	Tracks      int // tracks it has instances of
	Detached    bool
}

// Remote looks a remote session up. One that has ended is not found.
func (r Sessions) Remote(id uint64) (RemoteSessionView, bool) {
	p := r.m.sessions.get(id)
	if p == nil || r.m.atHome(p) || !r.m.alive(p) {
		return RemoteSessionView{}, false
	}
	return RemoteSessionView{
		Session: id, Node: p.node.id, Epoch: p.epoch, Description: p.description, Held: p.entries.n,
		Tracks: len(p.objects(kindTrack)), Detached: p.detached,
	}, true
}

// Remotes yields the sessions that own or wait for something here and have no active home bucket in
// this shard, in order of id. Sessions that have ended are skipped, even if they are not released
// yet.
func (r Sessions) Remotes(yield func(session, attachEpoch uint64) bool) {
	var ids []uint64
	away := r.m.homeIDRanges(func(is bucketState) bool { return is != bucketActive && is != bucketAbsent })
	r.m.nodeIndex.All(func(n *node) bool {
		n.remoteSessions.All(func(id uint64) bool {
			if r.m.sessions.get(id).hasReferences() {
				ids = append(ids, id)
			}
			return true
		})
		for s := n.homeSessionIn(away, 0); s != nil; s = n.homeSessionIn(away, s.id) {
			if s.hasReferences() {
				ids = append(ids, s.id)
			}
		}
		return true
	})
	slices.Sort(ids)
	for _, id := range ids {
		if !yield(id, r.m.sessions.get(id).epoch) {
			return
		}
	}
}

// TakenOver reports whether the session is known here under a higher attach epoch than this one:
// another client has it now.
func (r Sessions) TakenOver(session, epoch uint64) bool {
	p := r.m.sessions.get(session)
	return p != nil && p.epoch > epoch
}

// Describe reads a session at its home. Errors: WRONG_SHARD, SESSION_EXPIRED.
func (r Sessions) Describe(req *protocol.SessionDescribe, out *protocol.SessionInfo) error {
	p, ok := r.described(req)
	if !ok {
		return wrongShard()
	}
	switch {
	case r.m.isDropped(req.Node):
		return &protocol.Error{Status: protocol.StatusSessionExpired, Message: textNodeDropped}
	case p == nil || p.home == nil || p.node.id != req.Node || !r.m.alive(p):
		return &protocol.Error{Status: protocol.StatusSessionExpired, Message: textSessionEnded}
	}
	*out = r.info(p.home)
	return nil
}

// described finds the session that a request names; nil: there is none. ok is false if its home is
// not here.
func (r Sessions) described(req *protocol.SessionDescribe) (p *sessionRecord, ok bool) {
	if len(req.CreateID) == 0 {
		return r.m.sessions.get(req.Session), r.m.activeHomeBucket(req.Session) != nil
	}
	create := [protocol.KeyLen]byte(req.CreateID)
	buckets := uint32(len(r.m.buckets))
	if buckets == 0 || r.m.buckets[protocol.HomeBucket(create, buckets)].state != bucketActive {
		return nil, false
	}
	if s := r.m.byCreateID.get(create); s != nil {
		p = s.sessionRecord
	}
	return p, true
}

func (r Sessions) info(s *homeSession) protocol.SessionInfo {
	info := protocol.SessionInfo{
		Session: s.id, Node: s.node.id, State: protocol.SessionAttached, Epoch: s.epoch,
		Timeout: uint64(s.timeout), Description: s.description,
		Client: s.client, CreatedAt: s.created, Parent: s.node.families.parent(s.id),
	}
	if attached, deadline := r.m.attached(s); !attached {
		info.State, info.Remaining = protocol.SessionDetached, deadline-r.m.bucketTime(r.m.homeBucketOf(s))
	}
	return info
}

// List reads a page of the node's sessions at home in this shard, in order of id. The cursor is the
// last id of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (r Sessions) List(req *protocol.SessionList, out *protocol.SessionListReply) error {
	var after uint64
	if len(req.Cursor) > 0 {
		if len(req.Cursor) != 8 {
			return badCursor()
		}
		after = binary.BigEndian.Uint64(req.Cursor)
	}
	n, err := r.node(req.Node)
	if err != nil {
		return err
	}
	*out = protocol.SessionListReply{Sessions: out.Sessions[:0], Runs: r.m.activeRuns(out.Runs)}
	p := newPage(req.Limit, PageBytes)
	n.homeSessions.Ascend(func(s *homeSession) bool { return s.id <= after }, func(s *homeSession) bool {
		if !r.m.alive(s.sessionRecord) || r.m.activeHomeBucket(s.id) == nil {
			return true
		}
		if !p.takes(64 + len(s.description) + len(s.client)) {
			out.Cursor = binary.BigEndian.AppendUint64(nil, after)
			return false
		}
		after = s.id
		out.Sessions = append(out.Sessions, r.info(s))
		return true
	})
	return nil
}

// Objects reads a page of the objects that a session takes part in, in the active buckets of this
// shard: hosted objects, kind by kind, each in order of name, then its children. The cursor is the
// type and the name of the last one of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (r Sessions) Objects(req *protocol.SessionObjects, out *protocol.SessionObjectsReply) error {
	var last protocol.ObjectType
	var after []byte
	if len(req.Cursor) > 0 {
		last, after = protocol.ObjectType(req.Cursor[0]), req.Cursor[1:]
		known := last == protocol.ObjectSession && len(after) == 8 ||
			slices.ContainsFunc(hostedKinds[:], func(k hostedKind) bool { return k.object == last })
		if !known || len(after) > protocol.MaxNameLen {
			return badCursor()
		}
	}
	n, err := r.node(req.Node)
	if err != nil {
		return err
	}
	*out = protocol.SessionObjectsReply{Objects: out.Objects[:0], Runs: r.m.activeRuns(out.Runs)}
	pg := newPage(req.Limit, PageBytes)
	if p := r.m.sessions.get(req.Session); p != nil && p.node == n && r.m.alive(p) &&
		!r.hostedObjects(p, last, after, &pg, out) {
		return nil
	}
	afterChild := uint64(0)
	if last == protocol.ObjectSession {
		afterChild = binary.BigEndian.Uint64(after)
	}
	n.families.childrenAfter(req.Session, afterChild, func(id uint64) bool {
		p := r.m.sessions.get(id)
		if !r.m.alive(p) || r.m.activeHomeBucket(id) == nil {
			return true
		}
		return addObject(&pg, out, protocol.SessionObject{Type: protocol.ObjectSession,
			Name: binary.BigEndian.AppendUint64(nil, id), Label: p.description, Count: 1})
	})
	return nil
}

// addObject adds an object to a page. false: the page is full, and its cursor is set.
func addObject(p *page, out *protocol.SessionObjectsReply, o protocol.SessionObject) bool {
	if !p.takes(16 + len(o.Name) + len(o.Label)) {
		end := &out.Objects[len(out.Objects)-1]
		out.Cursor = append([]byte{byte(end.Type)}, end.Name...)
		return false
	}
	out.Objects = append(out.Objects, o)
	return true
}

// hostedObjects adds the hosted objects that a session takes part in, behind the last one of the
// page before. false: the page is full.
func (r Sessions) hostedObjects(
	p *sessionRecord, last protocol.ObjectType, after []byte, pg *page, out *protocol.SessionObjectsReply,
) bool {
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
			if !addObject(pg, out, protocol.SessionObject{Type: object, Name: x.name, Label: label, Count: uint64(count)}) {
				return false
			}
		}
	}
	return true
}
