package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// EventKind says what an Event of a watch is.
type EventKind uint8

const (
	// EventChanged: the semaphore is as the event says. Created to Removed say what changed since
	// the last event about it.
	EventChanged EventKind = 1
	// EventDeleted: the semaphore and its owners are gone.
	EventDeleted EventKind = 2
	// EventSynced: everything that existed when the watch began, or resumed, has been delivered.
	EventSynced EventKind = 3
	// EventInterrupted: the stream is lost, and what was delivered may be old from now on. It comes
	// once for each interruption, before the watch resumes. The events up to the next EventSynced
	// are the differences to what was delivered before. What came and went in between is missing.
	EventInterrupted EventKind = 4
)

// Event is a step of a watch. Steps of one semaphore that a slow consumer has not taken yet are
// merged. Its slices must not be changed.
type Event struct {
	Kind EventKind
	Name string

	Created      bool // the semaphore was not known before this event
	DataChanged  bool
	LimitChanged bool
	Data         []byte
	Version      uint64
	Limit        uint64
	Ephemeral    bool

	Added   []Owner // by token
	Updated []Owner // with another count or data
	Removed []Owner // as last delivered
}

// Watch yields the state of a semaphore, which need not exist yet, and then every change, until ctx
// ends. It resumes by itself when the connection is lost. The last pair carries the error that
// ended it: ctx's, NotFound when the node was dropped, Forbidden. A watch that a limit keeps from
// being opened is tried until ctx ends; the error then names the limit.
//
// A consumer that stops taking events costs at most the memory of two copies of the state.
func (n *Node) Watch(ctx context.Context, name string) iter.Seq2[Event, error] {
	return n.watch(ctx, name, false)
}

// WatchPrefix is Watch for all semaphores whose name begins with prefix. Events of different shards
// have no order.
func (n *Node) WatchPrefix(ctx context.Context, prefix string) iter.Seq2[Event, error] {
	return n.watch(ctx, prefix, true)
}

// WatchFunc is [Node.Watch] for programs with thousands of watches: it calls a function with each
// step instead of blocking a goroutine. It returns at once. The watch goes on until ctx ends; the
// last call carries the error that ended it, as the last pair of Watch does.
//
// The calls of one watch do not overlap; those of different watches may. The functions of a client
// mostly share a goroutine, so one that blocks delays other watches. Close and CloseWithoutRelease
// return after the last calls: a function may use the client, but must not close it, nor wait for
// another goroutine that does. A watch that is started on a closed client gets its last call at
// once.
func (n *Node) WatchFunc(ctx context.Context, name string, step func(Event, error)) {
	n.c.dispatcher.watch(ctx, n, name, false, step)
}

// WatchPrefixFunc is WatchFunc for all semaphores whose name begins with prefix, as
// [Node.WatchPrefix].
func (n *Node) WatchPrefixFunc(ctx context.Context, prefix string, step func(Event, error)) {
	n.c.dispatcher.watch(ctx, n, prefix, true, step)
}

func (n *Node) watch(ctx context.Context, name string, prefix bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w := newWatch(n, name, prefix)
		n.c.watches.add(w)
		defer w.close()
		var ev Event
		var opened time.Time // when open returned
		delivered := true    // all that there was
		for {
			// While shards cannot be reached, open takes its time: what there is goes first, and at
			// least half of the time is the consumer's.
			if (delivered || time.Since(opened) >= openTimeout) && w.isIdle() {
				if err := w.open(ctx); err != nil {
					yield(Event{}, withOp("watch", name, err))
					return
				}
				opened = time.Now()
			}
			ok, err := w.next(&ev)
			delivered = !ok
			switch {
			case err != nil:
				yield(Event{}, withOp("watch", name, err))
				return
			case ok && !yield(ev, nil):
				return
			case !ok:
				if err := w.wait(ctx); err != nil {
					yield(Event{}, withOp("watch", name, err))
					return
				}
			}
		}
	}
}

// watch is a stream over a name or a prefix, with a shardWatch for each shard. Its consumer or the
// dispatcher drives it; the readers only add what arrives.
//
// A program may have a client for each of thousands of watches. Their memory is then in no cache
// when a change comes: what a change reads stands side by side, here and in the types below.
//
// mu guards what changes, except callback.
type watch struct {
	mu         sync.Mutex
	dispatcher *dispatcher // of a WatchFunc, else nil
	cluster    *cluster
	routes     *routeTable // the map that the parts were made by
	idle       int         // parts without a stream
	err        error
	prefix     bool
	lost       bool // EventInterrupted is to be delivered
	synced     bool // EventSynced was delivered

	recent *watchedSemaphore   // the one of names that a change was found for last, nil: none
	dirty  []*watchedSemaphore // with something to deliver, in order

	callback watchCallback // of a WatchFunc

	n            *Node
	name         string
	wake         chan struct{} // capacity 1
	shardWatches []*shardWatch
	names        map[string]*watchedSemaphore
	newestEpochs *bucketEpochs // of each bucket the newest epoch that a shard has sent; of a prefix
	unseen       int           // of dirty: came and went, and are not to be delivered
}

// shardWatch is a watch's part of one shard.
type shardWatch struct {
	w               *watch
	stream          *watchStream   // nil: closed
	epochs          *bucketEpochs  // what the shard served by its last complete snapshot; nil: it did not say
	seenIndex       uint64         // the newest index of the shard's log that was taken in
	readIndex       *atomic.Uint64 // the client's of the shard
	shard           uint64
	live            bool     // the snapshot is complete
	behindInstances []uint64 // the instances whose snapshots in a row were older than that
	retry           backoff
	due             time.Time // not to be opened before
	refused         bool      // the shard did not serve it; with another map it may
	err             error     // why it is not live, from the first failure on
}

// watchStream is one opening of a shardWatch on one connection.
type watchStream struct {
	shardWatch *shardWatch
	key        streamKey

	// Guarded by watch.mu.
	building    map[string]*snapshot // while pages come; nil otherwise
	newestPages uint64               // the highest index of the pages
	pages       []pageRange          // what the snapshot's pages covered, in order of name
	epochs      *bucketEpochs        // of the snapshot whose pages come
	held        []*delta             // changes that came between pages

	cn     *conn
	id     uint64
	bucket uint64
}

// pageRange says that a page read at an index has all names up to one, after those of the page
// before.
type pageRange struct {
	upTo  string
	last  bool // all names that follow
	index uint64
}

type snapshot struct {
	attributes
	owners []Owner
}

func newWatch(n *Node, name string, prefix bool) *watch {
	return &watch{cluster: n.c.cluster, n: n, name: name, prefix: prefix, wake: make(chan struct{}, 1),
		names: make(map[string]*watchedSemaphore)}
}

func newShardWatch(w *watch, shard uint64) *shardWatch {
	return &shardWatch{w: w, shard: shard, readIndex: w.n.c.readIndex(shard), retry: backoff{base: retryBase, max: retryMax}}
}

func (w *watch) isIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.routes == nil || w.idle > 0 || w.routes != w.cluster.routes.Load()
}

// layout has a part for each shard of the map. Those that there are go on: a shard that buckets
// come to, or leave, begins its streams again by itself. mu is held.
func (w *watch) layout(r *routeTable) {
	t := r.tier(w.n.tier)
	if w.routes == r || t == nil {
		return
	}
	want := t.shards
	if !w.prefix {
		want = []uint64{t.owner(protocol.Bucket(w.n.id, []byte(w.name), t.buckets)).shard}
	}
	w.routes = r
	old := w.shardWatches
	w.shardWatches, w.idle = nil, 0
	for _, p := range old {
		if slices.Contains(want, p.shard) {
			if p.refused {
				p.refused, p.due = false, time.Time{}
			}
			w.shardWatches = append(w.shardWatches, p)
			continue
		}
		if p.stream != nil {
			p.stream.unwatch()
		}
		w.markUnsynced()
	}
	for _, shard := range want {
		if !slices.ContainsFunc(w.shardWatches, func(p *shardWatch) bool { return p.shard == shard }) {
			w.shardWatches = append(w.shardWatches, newShardWatch(w, shard))
			w.markUnsynced()
		}
	}
	for _, p := range w.shardWatches {
		if p.stream == nil {
			w.idle++
		}
	}
}

// open opens the parts that are closed and due, as many as openTimeout is enough for. It waits for
// connections, but not for answers.
func (w *watch) open(ctx context.Context) error {
	if _, err := w.n.c.tierOf(ctx, w.n.tier); err != nil {
		return err
	}
	r := w.n.c.routes.Load() // no tier goes away
	w.mu.Lock()
	w.layout(r)
	var due []*shardWatch
	now := time.Now()
	for _, p := range w.shardWatches {
		if p.stream == nil && !now.Before(p.due) {
			due = append(due, p)
		}
	}
	// One after the other has its turn, although the time may not be enough for all at once.
	slices.SortStableFunc(due, func(a, b *shardWatch) int { return a.due.Compare(b.due) })
	w.mu.Unlock()
	limited, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("%w in time", ErrUnreachable))
	defer cancel()
	for _, p := range due {
		if limited.Err() != nil && ctx.Err() == nil {
			break // the others stay due
		}
		if err := p.open(limited); err != nil {
			if ctx.Err() != nil {
				return w.interrupted(ctx)
			}
			w.mu.Lock()
			p.failed(nil, err)
			err = w.err
			w.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// openTimeout bounds how long a watch stands still while parts of it wait for their connections.
const openTimeout = time.Second

func (p *shardWatch) open(ctx context.Context) error {
	w := p.w
	c := w.n.c
	cn, err := c.connToReplica(ctx, p.shard, p.retry.failures)
	if err != nil {
		return err
	}
	t := w.routes.tier(w.n.tier)
	bucket := uint64(t.someBucket[p.shard])
	if !w.prefix {
		bucket = uint64(protocol.Bucket(w.n.id, []byte(w.name), t.buckets))
	}
	st := &watchStream{shardWatch: p, cn: cn, bucket: bucket, key: streamKey{p.shard, w.n.id, w.name}}
	req := &protocol.Watch{Shard: p.shard, Node: w.n.id, Name: []byte(w.name), Prefix: w.prefix}
	w.mu.Lock()
	p.stream = st
	w.idle--
	w.mu.Unlock()
	_, _, err = cn.startCall(ctx, nil, protocol.KindWatch, bucket, req, func(id uint64, cl *call) {
		st.id = id
		cn.streams.add(st, w.prefix)
		cn.updatePeriod()
		cl.reply = func(status protocol.Status, body []byte, err error) {
			if err == nil && status != protocol.StatusOK {
				err = failure(status, body)
			}
			if err != nil {
				st.cut(err)
			}
		}
	})
	if err != nil {
		w.mu.Lock()
		if p.stream == st {
			p.stream = nil
			w.idle++
		}
		w.mu.Unlock()
	}
	return err
}

// failed processes that the stream is gone, or could not be opened; then st is nil. watch.mu is
// held.
func (p *shardWatch) failed(st *watchStream, err error) {
	tries, pause := p.retry.failures, p.retry.next()
	p.err = err
	p.due, p.refused = time.Now().Add(pause), protocol.StatusOf(err) == protocol.StatusWrongShard
	switch protocol.StatusOf(err) {
	case protocol.StatusNotFound, protocol.StatusForbidden, protocol.StatusUnauthenticated,
		protocol.StatusBadRequest, protocol.StatusUnsupported,
		protocol.StatusPreconditionFailed:
		p.w.err = err
	case protocol.StatusWrongShard:
		c := p.w.n.c
		var e *protocol.Error
		if st != nil && errors.As(err, &e) && e.MapVersion != 0 {
			until := time.Now().Add(retryMax) // or until it is known where to open it
			p.due = until
			c.run(func() { p.follow(st, e, tries, pause, until) })
		} else if r := c.routes.Load(); r == p.w.routes {
			c.run(func() { _, _ = c.refreshMap(c.ctx, r) })
		}
	}
	var refused *permanentError
	if errors.As(err, &refused) {
		p.w.err = err
	}
}

// follow uses what a refusal says of the shard. It may wait for an answer, and the part may have
// been opened and refused again by then: due is not until any more, and stays. pause is the
// back-off of a part that has nothing better to do.
func (p *shardWatch) follow(st *watchStream, e *protocol.Error, tries int, pause time.Duration, until time.Time) {
	c := p.w.n.c
	if c.updateRoutes(c.ctx, p.shard, st.bucket, st.cn, e, tries) {
		pause = 0
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if due := time.Now().Add(pause); p.due.Equal(until) && due.Before(until) {
		p.due = due
	}
	p.w.notify()
}

func (st *watchStream) cut(err error) {
	w := st.shardWatch.w
	st.cn.dropStream(st)
	w.mu.Lock()
	defer w.mu.Unlock()
	if st.shardWatch.stream != st {
		return
	}
	st.shardWatch.stream = nil
	w.idle++
	if st.shardWatch.live {
		st.shardWatch.live = false
		st.shardWatch.retry.failures = 0
		w.markUnsynced()
	}
	st.shardWatch.failed(st, err)
	w.notify()
}

// maxBehind is how many snapshots in a row are too old at least before one is believed all the
// same, and only if every replica of the shard has sent one: the shard has begun again, as one in
// memory does. Some replicas alone may be cut off from the others.
const maxBehind = 16

// shardRestarted says that so many openings in a row began before what was seen, and at every
// replica of the shard, that it must have begun again.
func shardRestarted(r *routeTable, shard uint64, behind []uint64) bool {
	if len(behind) < maxBehind {
		return false
	}
	w := r.byShard[shard]
	return w == nil || !slices.ContainsFunc(w.replicas, func(i uint64) bool { return !slices.Contains(behind, i) })
}

// rejectStale closes a stream whose replica has not applied what was seen elsewhere: the watch
// would go back in time. Another replica, or this one a moment later, has it. watch.mu is held.
func (st *watchStream) rejectStale() {
	p := st.shardWatch
	if p.live {
		p.live = false
		p.w.markUnsynced()
	}
	if len(p.behindInstances) < maxBehind || !slices.Contains(p.behindInstances, st.cn.instance) {
		p.behindInstances = append(p.behindInstances, st.cn.instance)
	}
	p.w.idle++
	st.unwatch()
	p.failed(st, protocol.Errorf(protocol.StatusUnavailable, "the replica is behind"))
	p.w.notify()
}

// markUnsynced says that a shard's stream is lost. The consumer gets one EventInterrupted until all are
// synced again. mu is held.
func (w *watch) markUnsynced() {
	if w.synced {
		w.lost, w.synced = true, false
	}
}

// notify wakes the consumer. Any locks but the dispatcher's may be held.
func (w *watch) notify() {
	if w.dispatcher != nil {
		w.dispatcher.queue(w)
		return
	}
	wake(w.wake)
}

func (w *watch) wait(ctx context.Context) error {
	var due <-chan time.Time
	if w.n.c.ctx.Err() != nil {
		return ErrClientClosed
	}
	w.mu.Lock()
	if w.routes != w.n.c.routes.Load() {
		w.mu.Unlock()
		return nil
	}
	if w.idle > 0 {
		next := time.Now().Add(retryMax)
		for _, p := range w.shardWatches {
			if p.stream == nil && p.due.Before(next) {
				next = p.due
			}
		}
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		due = t.C
	}
	w.mu.Unlock()
	select {
	case <-w.wake:
	case <-due:
	case <-ctx.Done():
		return w.interrupted(ctx)
	}
	return nil
}

// interrupted is the error of a watch whose context ended, with what keeps a part from being live.
func (w *watch) interrupted(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.shardWatches {
		if !p.live && p.err != nil {
			return interrupted(ctx, p.err)
		}
	}
	return interrupted(ctx, nil)
}

// watchTable is the watches of a client. Each is woken by a new map and by the end of the client,
// on its own channel: thousands of watches on one channel of the client would queue there each
// time.
type watchTable struct {
	mu  sync.Mutex
	all map[*watch]struct{}
}

func (t *watchTable) add(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[*watch]struct{})
	}
	t.all[w] = struct{}{}
	wake(w.cluster.mapWanted) // an announced map that was left alone may have other shards
}

func (t *watchTable) remove(w *watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, w)
}

func (t *watchTable) any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0
}

func (t *watchTable) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.all {
		w.notify()
	}
}

// close ends the streams at the server too.
func (w *watch) close() {
	w.n.c.watches.remove(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.shardWatches {
		if p.stream != nil {
			p.stream.unwatch()
		}
	}
}

// unwatch closes a stream. watch.mu is held.
func (st *watchStream) unwatch() {
	st.shardWatch.stream = nil
	c := st.shardWatch.w.n.c
	c.run(func() {
		if st.cn.dropStream(st) {
			_, _ = st.cn.roundTrip(c.ctx, protocol.KindUnwatch, 0, st.bucket, &protocol.Unwatch{WatchID: st.id}, &protocol.Empty{})
		}
	})
}
