package client

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"time"

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

// pager reads a list page by page.
type pager[T any] struct {
	read   func(cursor []byte) (items []T, next []byte, err error)
	cursor []byte // of the next page
	over   bool   // there is none
	items  []T    // that were read and not taken
}

// fill reads until there is an item, or the list is over.
func (p *pager[T]) fill() (err error) {
	for len(p.items) == 0 && !p.over {
		if p.items, p.cursor, err = p.read(p.cursor); err != nil {
			return err
		}
		p.over = len(p.cursor) == 0
	}
	return nil
}

// errShardsChanged: the shards that are listed are not those of the node any more.
var errShardsChanged = errors.New("shards have come or gone")

// listShards yields what every shard of the node lists, in order of key. page reads a page of a
// shard's list from a cursor on, and returns the cursor of the next one, empty at the end. Every
// shard begins behind the cursor first, which is the same for all. When shards have come or gone
// meanwhile, all are listed again, and what was yielded is passed over. The sequence ends after its
// first error, which names what is listed, and after o.most items.
func listShards[T any, K cmp.Ordered](
	ctx context.Context, n *Node, op, name string, o readOptions, first []byte, key func(*T) K, page func(shard uint64, cursor []byte) (items []T, next []byte, err error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var last K // of what was yielded
		for yielded := 0; ; {
			shards, err := n.shards(ctx)
			if err != nil {
				yield(none, withOp(op, name, err))
				return
			}
			lists := make([]pager[T], len(shards))
			for i, shard := range shards {
				lists[i].cursor = first
				lists[i].read = func(cursor []byte) ([]T, []byte, error) {
					if now, err := n.shards(ctx); err != nil || !slices.Equal(now, shards) {
						return nil, nil, cmp.Or(err, errShardsChanged)
					}
					return page(shard, cursor)
				}
			}
			for err == nil && (o.most == 0 || yielded < o.most) {
				var least *pager[T]
				for i := range lists {
					p := &lists[i]
					for err = p.fill(); err == nil && yielded > 0 && len(p.items) > 0 && key(&p.items[0]) <= last; err = p.fill() {
						p.items = p.items[1:]
					}
					if err != nil {
						break
					}
					if len(p.items) > 0 && (least == nil || key(&p.items[0]) < key(&least.items[0])) {
						least = p
					}
				}
				switch {
				case err != nil:
				case least == nil:
					return
				default:
					item := least.items[0]
					least.items, last, yielded = least.items[1:], key(&item), yielded+1
					if !yield(item, nil) {
						return
					}
				}
			}
			switch {
			case err == nil:
				return
			case !errors.Is(err, errShardsChanged):
				yield(none, withOp(op, name, err))
				return
			}
		}
	}
}

// List lists the semaphores whose name begins with prefix, in order of name, over all shards;
// OfSession, After and MaxItems limit it. The sequence ends after its first error.
func (n *Node) List(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[SemaphoreInfo, error] {
	o := readOptionsOf(opts)
	name := func(s *SemaphoreInfo) string { return s.Name }
	return listShards(ctx, n, "list", prefix, o, []byte(o.after), name, func(shard uint64, cursor []byte) ([]SemaphoreInfo, []byte, error) {
		req := &protocol.List{
			Shard: shard, Node: n.id, Prefix: []byte(prefix), Session: o.session, Consistency: o.consistency, Cursor: cursor,
			Limit: uint32(o.most), MinIndex: n.c.readIndex(shard).Load(),
		}
		var reply protocol.ListReply
		where := n.readAt(o, n.bucketOf(shard), n.c.atShard(n.tier, shard), &req.Consistency)
		if _, err := n.c.request(ctx, where, protocol.KindList, req, &reply); err != nil {
			return nil, nil, err
		}
		raiseTo(n.c.readIndex(shard), reply.Index)
		items := make([]SemaphoreInfo, len(reply.Semaphores))
		for i, w := range reply.Semaphores {
			items[i] = SemaphoreInfo{
				Name: string(w.Name), Limit: w.Limit, Used: w.Used, Ephemeral: w.Ephemeral, Version: w.Version, DataLen: w.DataLen,
				NumOwners: w.NumOwners, NumWaiters: w.NumWaiters, Token: w.OrderID, Count: w.Count, Waiting: w.Waiting,
			}
		}
		return items, reply.Cursor, nil
	})
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
	shards, err := n.shards(ctx)
	for _, shard := range shards {
		req := &protocol.List{Shard: shard, Node: n.id, Limit: 1, Consistency: protocol.Relaxed}
		var reply protocol.ListReply
		if _, err = n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindList, req, &reply); err != nil {
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
	id := func(s *SessionInfo) uint64 { return s.ID }
	return listShards(ctx, n, "list sessions of", n.path, o, first, id, func(shard uint64, cursor []byte) ([]SessionInfo, []byte, error) {
		var reply protocol.SessionListReply
		req := &protocol.SessionList{Shard: shard, Node: n.id, Cursor: cursor, Limit: uint32(o.most)}
		if _, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindSessionList, req, &reply); err != nil {
			return nil, nil, err
		}
		items := make([]SessionInfo, len(reply.Sessions))
		for i := range reply.Sessions {
			items[i] = sessionInfo(&reply.Sessions[i])
		}
		return items, reply.Cursor, nil
	})
}

// ObjectKind is a kind of object that sessions take part in, beside semaphores.
type ObjectKind uint8

// A session is a member of a process, and has instances in a rollout's track.
const (
	ObjectProcess ObjectKind = 1
	ObjectTrack   ObjectKind = 2
)

// SessionObject is an object that a session takes part in.
type SessionObject struct {
	Kind      ObjectKind
	Name      string
	Label     string // the member's key, which may be empty; or the first of the instances' ids
	Instances uint64 // that the session has registered in the track; of a process 1
}

// SessionObjects lists the coordination processes that a session is a member of, and the tracks in
// which it has instances, over all shards: processes before tracks, each in order of name. The
// sequence ends after its first error. List with OfSession lists the semaphores.
func (n *Node) SessionObjects(ctx context.Context, id uint64) iter.Seq2[SessionObject, error] {
	key := func(o *SessionObject) string { return string(rune(o.Kind)) + o.Name }
	return listShards(ctx, n, "list objects of sessions of", n.path, readOptions{}, nil, key, func(shard uint64, cursor []byte) ([]SessionObject, []byte, error) {
		var reply protocol.SessionObjectsReply
		req := &protocol.SessionObjects{Shard: shard, Node: n.id, Session: id, Cursor: cursor}
		if _, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindSessionObjects, req, &reply); err != nil {
			return nil, nil, err
		}
		items := make([]SessionObject, len(reply.Objects))
		for i, w := range reply.Objects {
			items[i] = SessionObject{Kind: ObjectKind(w.Type), Name: string(w.Name), Label: w.Label, Instances: w.Count}
		}
		return items, reply.Cursor, nil
	})
}

// processes lists the node's processes whose name begins with prefix, in order of name.
func (n *Node) processes(ctx context.Context, prefix string, opts []ReadOption) iter.Seq2[protocol.ProcessItem, error] {
	o := readOptionsOf(opts)
	name := func(i *protocol.ProcessItem) string { return string(i.Name) }
	return listShards(ctx, n, "list processes", prefix, o, []byte(o.after), name, func(shard uint64, cursor []byte) ([]protocol.ProcessItem, []byte, error) {
		var reply protocol.ProcessListReply
		req := &protocol.ProcessList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Consistency: protocol.Strict, Cursor: cursor, Limit: uint32(o.most)}
		_, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindProcessList, req, &reply)
		return reply.Processes, reply.Cursor, err
	})
}

// tracks lists the node's tracks whose name begins with prefix, in order of name.
func (n *Node) tracks(ctx context.Context, prefix string, opts []ReadOption) iter.Seq2[protocol.TrackItem, error] {
	o := readOptionsOf(opts)
	name := func(i *protocol.TrackItem) string { return string(i.Name) }
	return listShards(ctx, n, "list rollouts", prefix, o, []byte(o.after), name, func(shard uint64, cursor []byte) ([]protocol.TrackItem, []byte, error) {
		var reply protocol.TrackListReply
		req := &protocol.TrackList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Consistency: protocol.Strict, Cursor: cursor, Limit: uint32(o.most)}
		_, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindTrackList, req, &reply)
		return reply.Tracks, reply.Cursor, err
	})
}

func sessionInfo(w *protocol.SessionInfo) SessionInfo {
	return SessionInfo{
		ID: w.Session, Attached: w.State == protocol.SessionAttached, Epoch: w.Epoch, Timeout: millis.Duration(w.Timeout), Remaining: millis.Duration(w.Remaining),
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
	where := n.c.atBucket(protocol.SessionTier(id), protocol.SessionBucket(id))
	if _, err := n.c.request(ctx, where, protocol.KindSessionDescribe, &protocol.SessionDescribe{Session: id, Node: n.id}, &reply); err != nil {
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
	where := n.c.atBucket(protocol.SessionTier(id), protocol.SessionBucket(id))
	repeated, err := n.c.request(ctx, where, protocol.KindSessionKill, &protocol.SessionKill{Session: id, Node: n.id, Reason: reason}, &protocol.Empty{})
	if err == nil || repeated && sessionGone(err) {
		return nil // a first sending did it
	}
	return withSession("kill", id, outcomeUnknown(repeated && !answered(err), err))
}
