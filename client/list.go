package client

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// SemaphoreInfo is a semaphore in a list.
type SemaphoreInfo struct {
	Name       string
	Limit      uint64
	Used       uint64
	Ephemeral  bool
	Version    uint64
	DataLen    uint64 // bytes
	NumOwners  uint64
	NumWaiters uint64
	// Of the session the list was limited to.
	Token   uint64
	Count   uint64
	Waiting bool
}

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
}

// List lists the semaphores whose name begins with prefix, in order of name, over all shards;
// OfSession, After and MaxItems limit it. The sequence ends after its first error.
func (n *Node) List(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[SemaphoreInfo, error] {
	o := readOptionsOf(opts)
	name := func(s *SemaphoreInfo) string { return s.Name }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SemaphoreInfo], err error) {
		req := &protocol.List{
			Shard: shard, Node: n.id, Prefix: []byte(prefix), Session: o.session, Cursor: cursor, Limit: uint32(o.most),
		}
		var reply protocol.ListReply
		r := n.c.d.Call(ctx, &core.Call{
			Kind: protocol.KindList, Msg: req, Reply: &reply, To: n.handle().AtShard(shard),
			Read: n.read(o, &req.Consistency, &req.MinIndex, &reply.Index),
		})
		if r.Err != nil {
			return page, driver.Err(r)
		}
		items := make([]SemaphoreInfo, len(reply.Semaphores))
		for i, w := range reply.Semaphores {
			items[i] = SemaphoreInfo{
				Name: string(w.Name), Limit: w.Limit, Used: w.Used, Ephemeral: w.Ephemeral,
				Version: w.Version, DataLen: w.DataLen,
				NumOwners: w.NumOwners, NumWaiters: w.NumWaiters, Token: w.OrderID,
				Count: w.Count, Waiting: w.Waiting,
			}
		}
		return handle.ListPage[SemaphoreInfo]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.handle(), "list", prefix, o.limits([]byte(o.after)), name, read)
}

// NodeUsage is what a node uses of its quotas, over all shards.
type NodeUsage struct {
	Sessions   uint64
	Semaphores uint64 // processes and rollouts too
	Bytes      uint64 // of names, data, descriptions and payloads
	Waiters    uint64
}

// Usage reads what the node uses of its quotas. The shards are read one after another.
func (n *Node) Usage(ctx context.Context) (NodeUsage, error) {
	var sum NodeUsage
	shards, err := n.handle().Shards(ctx)
	for _, shard := range shards {
		req := &protocol.List{Shard: shard, Node: n.id, Limit: 1, Consistency: protocol.Relaxed}
		var reply protocol.ListReply
		if _, err = n.c.request(ctx, n.handle().AtShard(shard), protocol.KindList, req, &reply); err != nil {
			break
		}
		sum.Sessions += reply.UsedSessions
		sum.Semaphores += reply.UsedSemaphores
		sum.Bytes += reply.UsedBytes
		sum.Waiters += reply.UsedWaiters
	}
	return sum, withOp("read the usage of", n.path, err)
}

// Sessions lists the sessions of the node, in order of id, over all shards; MaxItems and
// AfterSession limit it. The sequence ends after its first error. List with OfSession lists what a
// session holds.
func (n *Node) Sessions(ctx context.Context, opts ...ReadOption) iter.Seq2[SessionInfo, error] {
	o := readOptionsOf(opts)
	var first []byte
	if o.afterSession > 0 {
		first = binary.BigEndian.AppendUint64(nil, o.afterSession)
	}
	id := func(s *SessionInfo) string { return string(binary.BigEndian.AppendUint64(nil, s.ID)) }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SessionInfo], err error) {
		var reply protocol.SessionListReply
		req := &protocol.SessionList{Shard: shard, Node: n.id, Cursor: cursor, Limit: uint32(o.most)}
		if _, err := n.c.request(ctx, n.handle().AtShard(shard), protocol.KindSessionList, req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionInfo, len(reply.Sessions))
		for i := range reply.Sessions {
			items[i] = sessionInfo(&reply.Sessions[i])
		}
		return handle.ListPage[SessionInfo]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.handle(), "list sessions of", n.path, o.limits(first), id, read)
}

// ObjectKind is a kind of object that sessions take part in, beside semaphores.
type ObjectKind uint8

// A session is a member of a process, has instances in a rollout's track, and takes part in a rate
// limit.
const (
	ObjectProcess ObjectKind = 1
	ObjectTrack   ObjectKind = 2
	ObjectLimit   ObjectKind = 3
)

// SessionObject is an object that a session takes part in.
type SessionObject struct {
	Kind      ObjectKind
	Name      string
	Label     string // the member's key, which may be empty; or the first of the instances' ids
	Instances uint64 // that the session has registered in the track; of others 1
}

// SessionObjects lists the coordination processes that a session is a member of, the tracks in which
// it has instances, and the rate limits that it takes part in, over all shards: processes before
// tracks before rate limits, each in order of name. The sequence ends after its first error. List with OfSession lists the semaphores.
func (n *Node) SessionObjects(ctx context.Context, id uint64) iter.Seq2[SessionObject, error] {
	key := func(o *SessionObject) string { return string([]byte{byte(o.Kind)}) + o.Name }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SessionObject], err error) {
		var reply protocol.SessionObjectsReply
		req := &protocol.SessionObjects{Shard: shard, Node: n.id, Session: id, Cursor: cursor}
		if _, err := n.c.request(ctx, n.handle().AtShard(shard), protocol.KindSessionObjects,
			req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionObject, len(reply.Objects))
		for i, w := range reply.Objects {
			items[i] = SessionObject{Kind: ObjectKind(w.Type), Name: string(w.Name),
				Label: w.Label, Instances: w.Count}
		}
		return handle.ListPage[SessionObject]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.handle(), "list objects of sessions of", n.path, handle.ListLimits{}, key, read)
}

// limits are the list's, which begins behind first.
func (o *readOptions) limits(first []byte) handle.ListLimits {
	return handle.ListLimits{First: first, Most: o.most}
}

// atSession is the leader of a session's home.
func atSession(id uint64) core.Target {
	return core.Target{Of: core.AtBucket, Tier: protocol.SessionTier(id), Bucket: protocol.SessionBucket(id)}
}

func sessionInfo(w *protocol.SessionInfo) SessionInfo {
	return SessionInfo{
		ID: w.Session, Attached: w.State == protocol.SessionAttached, Epoch: w.Epoch,
		Timeout: millis.Duration(w.Timeout), Remaining: millis.Duration(w.Remaining),
		Description: w.Description, Client: w.Client, CreatedAt: wallTime(w.CreatedAt),
	}
}

// DescribeSession reads one session of the node at its home shard. Errors: ErrSessionExpired for a
// session that expired or never existed.
func (n *Node) DescribeSession(ctx context.Context, id uint64) (*SessionInfo, error) {
	var reply protocol.SessionInfo
	if err := n.c.checkSessionID(ctx, id); err != nil {
		return nil, withSession("describe", id, err)
	}
	if _, err := n.c.request(ctx, atSession(id), protocol.KindSessionDescribe,
		&protocol.SessionDescribe{Session: id, Node: n.id}, &reply); err != nil {
		return nil, withSession("describe", id, err)
	}
	info := sessionInfo(&reply)
	return &info, nil
}

// KillSession ends a session for an operator. What it holds is released at once, and its client
// gets reason, 1 to 1,024 bytes. It needs the right admin.
//
// A client that cannot be reached relies on its leases until it reconnects or its session's timeout
// is over, while others are granted them: only fencing tokens protect in that time. Errors:
// ErrSessionExpired for a session that is gone; BadRequest without a reason.
func (n *Node) KillSession(ctx context.Context, id uint64, reason string) error {
	if err := n.c.checkSessionID(ctx, id); err != nil {
		return withSession("kill", id, err)
	}
	repeated, err := n.c.request(ctx, atSession(id), protocol.KindSessionKill,
		&protocol.SessionKill{Session: id, Node: n.id, Reason: reason}, &protocol.Empty{})
	if err == nil || repeated && (errors.Is(err, protocol.StatusSessionExpired) || errors.Is(err, NotFound)) {
		return nil // a first sending did it
	}
	return withSession("kill", id, outcomeUnknown(repeated && !answered(err), err))
}
