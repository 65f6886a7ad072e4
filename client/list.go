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

type listPage[T any] struct {
	items []T
	next  []byte               // cursor of the next page; empty: there is none
	runs  []protocol.BucketRun // which buckets it is about
}

// shardList reads the list of a shard page by page.
type shardList[T any] struct {
	shard  uint64
	cursor []byte        // of the next page
	over   bool          // there is none
	served *bucketEpochs // what the pages are about
	items  []T           // that were read and not taken
}

// fill reads until there is an item, or the list is over.
func (l *shardList[T]) fill(read func(shard uint64, cursor []byte) (listPage[T], error)) error {
	for len(l.items) == 0 && !l.over {
		p, err := read(l.shard, l.cursor)
		if err != nil {
			return err
		}
		served := newBucketEpochs(p.runs)
		if l.served != nil && !l.served.equal(served) {
			return errBucketsMoved
		}
		l.served, l.items, l.cursor, l.over = served, p.items, p.next, len(p.next) == 0
	}
	return nil
}

var (
	// errShardsChanged: the shards that are listed are not those of the node any more.
	errShardsChanged = errors.New("shards have come or gone")
	// errBucketsMoved: pages of a shard are about different buckets, so that a name whose bucket
	// moved may be in none, or a bucket is in no page at all.
	errBucketsMoved = errors.New("buckets move between shards")
)

// listShards yields what every shard of the node lists, in order of key, which is also the cursor
// behind the item. page reads a page of a shard's list from a cursor on. Every shard begins behind
// the cursor first. When shards have come or gone, or buckets have moved, the shards are listed
// again behind what was yielded. So what is there all the time is yielded once. The sequence ends
// after its first error, which names what is listed, and after o.most items.
func listShards[T any](
	ctx context.Context, n *Node, op, name string, o readOptions, first []byte, key func(*T) string,
	page func(shard uint64, cursor []byte) (listPage[T], error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		retry := backoff{base: retryBase, max: retryMax}
		m := listMerge[T]{key: key, page: page, shards: func() ([]uint64, error) { return n.shards(ctx) },
			first: first, most: o.most}
		for {
			yielded := m.yielded
			err := m.run(func(item T) bool { return yield(item, nil) })
			if m.yielded > yielded {
				retry.failures = 0
			}
			switch {
			case errors.Is(err, errShardsChanged):
			case errors.Is(err, errBucketsMoved):
				if err = n.c.waitBucketsMoved(ctx, &retry); err == nil {
					continue
				}
				fallthrough
			case err != nil:
				var none T
				yield(none, withOp(op, name, err))
				return
			default:
				return
			}
		}
	}
}

type listMerge[T any] struct {
	key     func(*T) string
	page    func(shard uint64, cursor []byte) (listPage[T], error)
	shards  func() ([]uint64, error)
	first   []byte // the cursor where all begin
	most    int    // how many items; 0: all
	yielded int
}

// run lists once, until it is done, or yield is false, or an error. After errShardsChanged and
// errBucketsMoved it can run again.
func (m *listMerge[T]) run(yield func(T) bool) error {
	shards, err := m.shards()
	if err != nil {
		return err
	}
	read := func(shard uint64, cursor []byte) (listPage[T], error) {
		if now, err := m.shards(); err != nil || !slices.Equal(now, shards) {
			return listPage[T]{}, cmp.Or(err, errShardsChanged)
		}
		return m.page(shard, cursor)
	}
	lists := make([]shardList[T], len(shards))
	for i, shard := range shards {
		lists[i] = shardList[T]{shard: shard, cursor: m.first}
	}
	last := string(m.first)
	for whole := false; m.most == 0 || m.yielded < m.most; whole = true {
		var least *shardList[T]
		for i := range lists {
			l := &lists[i]
			for err = l.fill(read); err == nil && whole && len(l.items) > 0; err = l.fill(read) {
				if m.key(&l.items[0]) > last {
					break
				}
				l.items = l.items[1:] // two shards had it, one after the other
			}
			if err != nil {
				return err
			}
			if len(l.items) > 0 && (least == nil || m.key(&l.items[0]) < m.key(&least.items[0])) {
				least = l
			}
		}
		if !whole && !serveAll(lists) {
			return errBucketsMoved
		}
		if least == nil {
			return nil
		}
		item := least.items[0]
		last = m.key(&item)
		least.items, m.first, m.yielded = least.items[1:], []byte(last), m.yielded+1
		if !yield(item) {
			return nil
		}
	}
	return nil
}

// serveAll says that the lists together are about every bucket. Servers that do not know of buckets
// in lists are believed.
func serveAll[T any](lists []shardList[T]) bool {
	var all *bucketEpochs
	for i := range lists {
		if lists[i].served == nil {
			return true
		}
		all = all.newer(lists[i].served)
	}
	return all == nil || !slices.Contains(all.epochs, 0)
}

// List lists the semaphores whose name begins with prefix, in order of name, over all shards;
// OfSession, After and MaxItems limit it. The sequence ends after its first error.
func (n *Node) List(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[SemaphoreInfo, error] {
	o := readOptionsOf(opts)
	name := func(s *SemaphoreInfo) string { return s.Name }
	read := func(shard uint64, cursor []byte) (page listPage[SemaphoreInfo], err error) {
		req := &protocol.List{
			Shard: shard, Node: n.id, Prefix: []byte(prefix), Session: o.session,
			Consistency: o.consistency, Cursor: cursor,
			Limit: uint32(o.most), MinIndex: n.c.readIndex(shard).Load(),
		}
		var reply protocol.ListReply
		where := n.readAt(o, n.bucketOf(shard), n.c.atShard(n.tier, shard), &req.Consistency)
		if _, err := n.c.request(ctx, where, protocol.KindList, req, &reply); err != nil {
			return page, err
		}
		raiseTo(n.c.readIndex(shard), reply.Index)
		items := make([]SemaphoreInfo, len(reply.Semaphores))
		for i, w := range reply.Semaphores {
			items[i] = SemaphoreInfo{
				Name: string(w.Name), Limit: w.Limit, Used: w.Used, Ephemeral: w.Ephemeral,
				Version: w.Version, DataLen: w.DataLen,
				NumOwners: w.NumOwners, NumWaiters: w.NumWaiters, Token: w.OrderID,
				Count: w.Count, Waiting: w.Waiting,
			}
		}
		return listPage[SemaphoreInfo]{items, reply.Cursor, reply.Runs}, nil
	}
	return listShards(ctx, n, "list", prefix, o, []byte(o.after), name, read)
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
	id := func(s *SessionInfo) string { return string(binary.BigEndian.AppendUint64(nil, s.ID)) }
	read := func(shard uint64, cursor []byte) (page listPage[SessionInfo], err error) {
		var reply protocol.SessionListReply
		req := &protocol.SessionList{Shard: shard, Node: n.id, Cursor: cursor, Limit: uint32(o.most)}
		if _, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindSessionList, req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionInfo, len(reply.Sessions))
		for i := range reply.Sessions {
			items[i] = sessionInfo(&reply.Sessions[i])
		}
		return listPage[SessionInfo]{items, reply.Cursor, reply.Runs}, nil
	}
	return listShards(ctx, n, "list sessions of", n.path, o, first, id, read)
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
	read := func(shard uint64, cursor []byte) (page listPage[SessionObject], err error) {
		var reply protocol.SessionObjectsReply
		req := &protocol.SessionObjects{Shard: shard, Node: n.id, Session: id, Cursor: cursor}
		if _, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindSessionObjects,
			req, &reply); err != nil {
			return page, err
		}
		items := make([]SessionObject, len(reply.Objects))
		for i, w := range reply.Objects {
			items[i] = SessionObject{Kind: ObjectKind(w.Type), Name: string(w.Name),
				Label: w.Label, Instances: w.Count}
		}
		return listPage[SessionObject]{items, reply.Cursor, reply.Runs}, nil
	}
	return listShards(ctx, n, "list objects of sessions of", n.path, readOptions{}, nil, key, read)
}

// processes lists the node's processes whose name begins with prefix, in order of name.
func (n *Node) processes(
	ctx context.Context, prefix string, opts []ReadOption,
) iter.Seq2[protocol.ProcessItem, error] {
	o := readOptionsOf(opts)
	name := func(i *protocol.ProcessItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (listPage[protocol.ProcessItem], error) {
		var reply protocol.ProcessListReply
		req := &protocol.ProcessList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Consistency: protocol.Strict,
			Cursor: cursor, Limit: uint32(o.most)}
		_, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindProcessList, req, &reply)
		return listPage[protocol.ProcessItem]{reply.Processes, reply.Cursor, reply.Runs}, err
	}
	return listShards(ctx, n, "list processes", prefix, o, []byte(o.after), name, read)
}

// tracks lists the node's tracks whose name begins with prefix, in order of name.
func (n *Node) tracks(ctx context.Context, prefix string, opts []ReadOption) iter.Seq2[protocol.TrackItem, error] {
	o := readOptionsOf(opts)
	name := func(i *protocol.TrackItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (listPage[protocol.TrackItem], error) {
		var reply protocol.TrackListReply
		req := &protocol.TrackList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Consistency: protocol.Strict,
			Cursor: cursor, Limit: uint32(o.most)}
		_, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindTrackList, req, &reply)
		return listPage[protocol.TrackItem]{reply.Tracks, reply.Cursor, reply.Runs}, err
	}
	return listShards(ctx, n, "list rollouts", prefix, o, []byte(o.after), name, read)
}

// limits lists the node's rate limits whose name begins with prefix, in order of name.
func (n *Node) limits(ctx context.Context, prefix string, opts []ReadOption) iter.Seq2[protocol.LimitItem, error] {
	o := readOptionsOf(opts)
	name := func(i *protocol.LimitItem) string { return string(i.Name) }
	read := func(shard uint64, cursor []byte) (listPage[protocol.LimitItem], error) {
		var reply protocol.LimitListReply
		req := &protocol.LimitList{Shard: shard, Node: n.id, Prefix: []byte(prefix), Cursor: cursor, Limit: uint32(o.most)}
		_, err := n.c.request(ctx, n.c.atShard(n.tier, shard), protocol.KindLimitList, req, &reply)
		return listPage[protocol.LimitItem]{reply.Limits, reply.Cursor, reply.Runs}, err
	}
	return listShards(ctx, n, "list rate limits", prefix, o, []byte(o.after), name, read)
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
	where := n.c.atBucket(protocol.SessionTier(id), protocol.SessionBucket(id))
	if _, err := n.c.request(ctx, where, protocol.KindSessionDescribe,
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
	where := n.c.atBucket(protocol.SessionTier(id), protocol.SessionBucket(id))
	repeated, err := n.c.request(ctx, where, protocol.KindSessionKill,
		&protocol.SessionKill{Session: id, Node: n.id, Reason: reason}, &protocol.Empty{})
	if err == nil || repeated && sessionGone(err) {
		return nil // a first sending did it
	}
	return withSession("kill", id, outcomeUnknown(repeated && !answered(err), err))
}
