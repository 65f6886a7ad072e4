package admin

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// SessionInfo describes a session as its home shard sees it.
type SessionInfo struct {
	ID          uint64
	Attached    bool
	Epoch       uint64 // attach epoch
	Timeout     time.Duration
	Remaining   time.Duration // until it expires, when it is not attached
	Description string
	Client      string // the client's address
	CreatedAt   time.Time
	Parent      uint64 // the session whose command started it; 0: none
}

// Sessions lists the sessions of the node, in order of id, over all shards; MaxItems and
// AfterSession limit it. The sequence ends after its first error. List with OfSession lists what a
// session holds.
func (n Node) Sessions(ctx context.Context, opts ...client.ReadOption) iter.Seq2[SessionInfo, error] {
	limits := access.SessionListLimits(opts)
	id := func(s *SessionInfo) string { return string(binary.BigEndian.AppendUint64(nil, s.ID)) }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SessionInfo], err error) {
		var reply protocol.SessionListReply
		req := &protocol.SessionList{Shard: shard, Node: n.h.ID, Cursor: cursor, Limit: uint32(limits.Most)}
		if _, err := n.h.Call(ctx, n.h.AtShard(shard), protocol.KindSessionList, req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionInfo, len(reply.Sessions))
		for i := range reply.Sessions {
			items[i] = sessionInfo(&reply.Sessions[i])
		}
		return handle.ListPage[SessionInfo]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.h, "list sessions of", n.h.Path, limits, id, read)
}

// ObjectKind is a kind of object that sessions take part in, beside semaphores.
type ObjectKind uint8

// A session is a member of a process, has instances in a rollout's track, takes part in a rate
// limit, and is the parent of the sessions that its command started.
const (
	ObjectProcess ObjectKind = 1
	ObjectTrack   ObjectKind = 2
	ObjectLimit   ObjectKind = 3
	ObjectSession ObjectKind = 4
)

// SessionObject is an object that a session takes part in.
type SessionObject struct {
	Kind      ObjectKind
	Name      string // empty for a session
	Session   uint64 // the child; 0 for others
	Label     string // the member's key, which may be empty; the first of the instances' ids; the child's description
	Instances uint64 // that the session has registered in the track; of others 1
}

// SessionObjects lists the coordination processes that a session is a member of, the tracks in which
// it has instances, the rate limits that it takes part in, and the sessions that its command
// started, over all shards: in this order, each in order of name or id. The sequence ends after its
// first error. List with OfSession lists the semaphores.
func (n Node) SessionObjects(ctx context.Context, id uint64) iter.Seq2[SessionObject, error] {
	key := func(o *SessionObject) string {
		k := append([]byte{byte(o.Kind)}, o.Name...)
		if o.Kind == ObjectSession {
			k = binary.BigEndian.AppendUint64(k, o.Session)
		}
		return string(k)
	}
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SessionObject], err error) {
		var reply protocol.SessionObjectsReply
		req := &protocol.SessionObjects{Shard: shard, Node: n.h.ID, Session: id, Cursor: cursor}
		if _, err := n.h.Call(ctx, n.h.AtShard(shard), protocol.KindSessionObjects,
			req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionObject, len(reply.Objects))
		for i, w := range reply.Objects {
			items[i] = SessionObject{Kind: ObjectKind(w.Type), Name: string(w.Name),
				Label: w.Label, Instances: w.Count}
			if w.Type == protocol.ObjectSession && len(w.Name) == 8 {
				items[i].Name, items[i].Session = "", binary.BigEndian.Uint64(w.Name)
			}
		}
		return handle.ListPage[SessionObject]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.h, "list objects of sessions of", n.h.Path, handle.ListLimits{}, key, read)
}

// atSession is the leader of a session's home.
func atSession(id uint64) core.Target {
	return core.Target{Of: core.AtBucket, Tier: protocol.SessionTier(id), Bucket: protocol.SessionBucket(id)}
}

func sessionInfo(w *protocol.SessionInfo) SessionInfo {
	return SessionInfo{
		ID: w.Session, Attached: w.State == protocol.SessionAttached, Epoch: w.Epoch,
		Timeout: millis.Duration(w.Timeout), Remaining: millis.Duration(w.Remaining),
		Description: w.Description, Client: w.Client, CreatedAt: millis.Time(w.CreatedAt),
		Parent: w.Parent,
	}
}

// DescribeSession reads one session of the node at its home shard. Errors: ErrSessionExpired for a
// session that expired or never existed.
func (n Node) DescribeSession(ctx context.Context, id uint64) (*SessionInfo, error) {
	var reply protocol.SessionInfo
	if err := n.h.CheckSession(ctx, id); err != nil {
		return nil, handle.AboutSession("describe", id, err)
	}
	if _, err := n.h.Call(ctx, atSession(id), protocol.KindSessionDescribe,
		&protocol.SessionDescribe{Session: id, Node: n.h.ID}, &reply); err != nil {
		return nil, handle.AboutSession("describe", id, err)
	}
	info := sessionInfo(&reply)
	return &info, nil
}

// KillSession ends a session for an operator. What it holds is released at once, and its client
// gets reason, 1 to 1,024 bytes. It needs the right admin.
//
// A client that cannot be reached relies on its leases until it reconnects or its session's timeout
// is over, while others are granted them: only fencing tokens protect in that time. Errors:
// ErrSessionExpired for a session that is gone; ErrBadRequest without a reason.
func (n Node) KillSession(ctx context.Context, id uint64, reason string) error {
	if err := n.h.CheckSession(ctx, id); err != nil {
		return handle.AboutSession("kill", id, err)
	}
	repeated, err := n.h.Call(ctx, atSession(id), protocol.KindSessionKill,
		&protocol.SessionKill{Session: id, Node: n.h.ID, Reason: reason}, &protocol.Empty{})
	if err == nil || repeated && (errors.Is(err, protocol.StatusSessionExpired) ||
		errors.Is(err, protocol.StatusNotFound)) {
		return nil // a first sending did it
	}
	return handle.AboutSession("kill", id, driver.OutcomeUnknown(repeated && !driver.Answered(err), err))
}
