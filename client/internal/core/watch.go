package core

import (
	"cmp"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Watch follows a semaphore, which need not exist yet, or all semaphores with a prefix. It yields
// their state and then every change, and goes on by itself after whatever ends its streams. It is
// its maker's, who sets the fields that begin with a capital before.
type Watch struct {
	Waiter Waiter // is in Ready.Wake when there is something to take
	Node   uint64 // id of the coordination node
	Tier   uint8
	Name   string // or the prefix, which may be empty
	Prefix bool

	subscription
	copied localCopy
	newest *BucketEpochs // of each bucket the newest epoch that a shard has sent; of a prefix
	synced bool          // WatchSynced was taken, and no stream was lost since
	broken bool          // WatchInterrupted is to be taken
}

// WatchEvent is a step of a watch. Steps of one semaphore that are not taken yet are merged. Its
// slices must not be changed.
type WatchEvent struct {
	Kind WatchEventKind
	Name string

	Created      bool // the semaphore was not known before
	DataChanged  bool
	LimitChanged bool
	Data         []byte
	Version      uint64
	Limit        uint64
	Ephemeral    bool

	Added   []protocol.Owner // by order id
	Updated []protocol.Owner // with another count or data
	Removed []protocol.Owner // as taken last
}

// WatchEventKind is a kind of WatchEvent.
type WatchEventKind uint8

const (
	WatchChanged     WatchEventKind = iota + 1 // the semaphore is as the event says
	WatchDeleted                               // it and its owners are gone
	WatchSynced                                // all that there was when the watch began, or went on, was taken
	WatchInterrupted                           // a stream is lost: what follows up to WatchSynced are the differences
)

func (w *Watch) start(e *Engine) {
	w.begin(e, w, w.Waiter)
	w.copied.init()
	w.addPart(e, 0)
}

// addPart has a part of the watch opened: that of a shard, or of one that is still to be found.
func (w *Watch) addPart(e *Engine, shard uint64) {
	p := newShardStream(w, protocol.KindWatch, nil, w.Tier)
	p.msg = protocol.Watch{Node: w.Node, Name: []byte(w.Name), Prefix: w.Prefix}
	p.message, p.home, p.seen = &p.msg, shard, w.former[shard]
	w.parts = append(w.parts, p)
	w.interrupted(e)
	e.send(&p.Request)
}

// place is a replica of the shard that owns the name, or of the part's own shard.
func (w *Watch) place(e *Engine, p *shardStream) *Conn {
	t := e.routes.table.tier(w.Tier)
	var home *shardRoute
	switch {
	case t == nil:
	case !w.Prefix:
		p.arg = uint64(protocol.Bucket(w.Node, p.msg.Name, t.buckets))
		home = t.owner(uint32(p.arg))
	case p.home == 0: // the first one
		shards := t.shards()
		if len(shards) == 0 {
			break
		}
		home = shards[0]
		for _, other := range shards[1:] {
			w.addPart(e, other.shard)
		}
	default:
		home = e.routes.table.shard(p.home)
	}
	if home == nil {
		return e.routes.toLeader(e, &p.Request, nil)
	}
	if w.Prefix {
		bucket, ok := t.someBucket(home)
		if !ok { // layout closes it
			return e.routes.toLeader(e, &p.Request, nil)
		}
		p.arg = uint64(bucket)
	}
	p.follow(home)
	p.msg.Shard = home.shard
	c := e.routes.toReplica(e, &p.Request, home, p.after)
	p.msg.Known, p.msg.Epoch = 0, 0
	if c != nil {
		p.msg.Known, p.msg.Epoch = p.known, p.epoch
	}
	return c
}

// layout has a part for each shard of a new map. Those that there are go on: a shard that buckets
// come to, or leave, begins its streams again by itself.
func (w *Watch) layout(e *Engine) {
	t := e.routes.table.tier(w.Tier)
	if t == nil {
		return
	}
	if !w.Prefix {
		p := w.parts[0]
		home := t.owner(protocol.Bucket(w.Node, p.msg.Name, t.buckets))
		if home != nil && p.open != nil && p.home != home.shard {
			p.restart(e)
		}
		return
	}
	shards := t.shards()
	if len(shards) == 0 {
		return
	}
	parts := w.parts
	w.parts = nil
	for _, p := range parts {
		if p.home == 0 || slices.ContainsFunc(shards, func(x *shardRoute) bool { return x.shard == p.home }) {
			w.parts = append(w.parts, p)
			continue
		}
		p.leave()
		p.close(e)
		w.interrupted(e)
		w.wake(e) // the others may be all that was waited for
	}
	if len(w.parts) == 1 && w.parts[0].home == 0 {
		return // it makes the others when it is sent
	}
	for _, x := range shards {
		if !slices.ContainsFunc(w.parts, func(p *shardStream) bool { return p.home == x.shard }) {
			w.addPart(e, x.shard)
		}
	}
}

func (w *Watch) opening(p *shardStream) { p.pages = pages{} }

func (w *Watch) interrupted(e *Engine) {
	if w.synced {
		w.broken, w.synced = true, false
		w.wake(e)
	}
}

func (w *Watch) fail(e *Engine, err error) { w.end(e, err) }

// event takes a page of a snapshot in.
func (w *Watch) event(e *Engine, p *shardStream, h *protocol.Header) error {
	if h.Kind != protocol.KindSnapshot {
		return nil
	}
	var m protocol.Snapshot
	if err := protocol.DecodeBody(&m, h.Body); err != nil {
		return err
	}
	if m.Resumed {
		return w.resumed(e, p, &m)
	}
	if m.First {
		if !p.begin(e, m.Index, m.Epoch) {
			return nil
		}
		p.lost(e) // the server begins again
		p.pages = pages{building: make(map[string]*snapshot), epochs: NewBucketEpochs(m.Runs)}
	}
	if p.pages.building == nil {
		return nil // pages without a first one
	}
	p.pages.add(&m)
	p.seen = max(p.seen, m.Index)
	if !m.Last {
		return nil
	}
	p.took(e, p.seen)
	p.epochs = p.pages.epochs
	w.newest = w.newest.Newer(p.epochs)
	w.replace(p)
	held := p.pages.held
	p.pages.building, p.pages.held = nil, nil
	if !w.Prefix {
		p.known = p.pages.covered[0].index
	}
	for i := range held {
		w.apply(p, &held[i])
	}
	p.isLive()
	w.wake(e)
	return nil
}

// resumed takes in what happened to the name since this watch knew it. See R28.
func (w *Watch) resumed(e *Engine, p *shardStream, m *protocol.Snapshot) error {
	if p.msg.Known == 0 || m.Index < p.msg.Known || p.begun {
		return errNotResumable
	}
	if !p.begin(e, p.seen, m.Epoch) {
		return nil
	}
	p.pages = pages{covered: []pageRange{{last: true, index: p.known}}, newest: p.known}
	for rest := m.Deltas; len(rest) > 0; {
		d, n, err := nextDelta(w.Name, rest)
		if err != nil {
			return err
		}
		if !d.isKnown() {
			p.restartWhole(e)
			return nil
		}
		p.took(e, d.index)
		w.apply(p, d)
		rest = rest[n:]
	}
	p.isLive()
	w.wake(e)
	return nil
}

// nextDelta is the first of some frames of deltas, which has n bytes.
func nextDelta(name string, frames []byte) (d *delta, n int, err error) {
	frame, n, err := protocol.SplitFrame(frames, protocol.MaxFrameLen)
	if n == 0 {
		return nil, 0, cmp.Or(err, errNotResumable)
	}
	h, err := protocol.ParseFrame(frame)
	if err != nil {
		return nil, 0, err
	}
	var m protocol.Delta
	if err := protocol.DecodeBody(&m, h.Body); err != nil {
		return nil, 0, err
	}
	d = new(delta)
	d.own(name, &m)
	return d, n, nil
}

var errNotResumable error = protocol.Errorf(protocol.StatusInternal,
	"the server resumes a watch from a state that the client does not have; report this")

// delta takes changes of one semaphore in, if the pages have covered its name. A later page has the
// others.
func (w *Watch) delta(e *Engine, p *shardStream, d *delta) {
	if !p.pages.covers(d) {
		return
	}
	if p.pages.building != nil {
		p.pages.held = append(p.pages.held, delta{d.name, d.index, slices.Clone(d.changes)})
		return
	}
	p.took(e, d.index)
	w.apply(p, d)
	if len(w.copied.dirty) > 0 {
		w.wake(e)
	}
}

// Next puts the next event into ev; ok is false if there is none now. err is why the watch is over.
func (w *Watch) Next(ev *WatchEvent) (ok bool, err error) {
	switch {
	case w.err != nil:
		return false, w.err
	case w.broken:
		w.broken = false
		*ev = WatchEvent{Kind: WatchInterrupted}
	case w.copied.next(ev):
	case w.isSynced():
		w.synced = true
		*ev = WatchEvent{Kind: WatchSynced}
	default:
		w.notified = false
		return false, nil
	}
	return true, nil
}

// isSynced reports whether WatchSynced is to be taken: all parts are live, and the newest owner of
// every bucket has sent its snapshot. It has not while some move.
func (w *Watch) isSynced() bool {
	if w.synced || w.ended || slices.ContainsFunc(w.parts, func(p *shardStream) bool { return !p.live }) {
		return false
	}
	var served *BucketEpochs
	for _, p := range w.parts {
		if p.epochs == nil {
			return true // nothing is said of buckets
		}
		served = served.Newer(p.epochs)
	}
	return served == nil || served.Equal(w.newest) && served.Complete()
}

// isNewest reports whether what a shard sends about a name is the newest: the shard serves the
// name's bucket, and no shard has served it under a newer epoch. Streams of shards come over
// different connections, so updates of a former owner may arrive late.
func (w *Watch) isNewest(p *shardStream, name string) bool {
	if p.epochs == nil {
		return true
	}
	b := protocol.Bucket(w.Node, []byte(name), p.epochs.buckets())
	own := p.epochs.epoch(b)
	return own > 0 && own >= w.newest.epoch(b)
}
