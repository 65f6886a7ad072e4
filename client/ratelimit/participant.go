package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/boottime"
)

// Times of refreshes.
const (
	refreshGap  = 60 * time.Millisecond  // the server takes one each 50 ms
	demandGap   = 100 * time.Millisecond // between refreshes because a demand changed
	minTry      = 250 * time.Millisecond // a refresh is given up after half a lease, or this
	retryAfter  = time.Second            // of what the server refuses
	firstLength = 3_000                  // ms of a lease, until the server says more
)

// participant is a session's part in one tree: it joins, refreshes the leases of the leaves that
// are open, and hears of the server when it is to refresh at once. It runs while a leaf is open.
type participant struct {
	table  *table
	object *handle.Object
	root   string
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	poke   chan struct{} // a demand may have changed: a call is denied, or waits
	notice chan struct{} // the server asks for a refresh

	mu     sync.Mutex
	leaves []*leaf
	demand map[*leaf]*demand
	closed []protocol.LimitLeaf // to be reported
	opened chan struct{}
	stats  refreshStats

	// Of the loop.
	bucketEpoch, leaderEpoch uint64
	joined, before           bool
	length                   uint64 // of a lease, in ms
	sent, looked             time.Duration
}

// refreshStats counts what a participant sends.
type refreshStats struct{ refreshes, failed, acquires uint64 }

// table has the participants of a client's sessions.
type table struct {
	seq  atomic.Uint64 // of the latest refresh: a tree that is opened again has higher ones than before
	mu   sync.Mutex
	list map[tableKey]*participant
}

type tableKey struct {
	session *client.Session
	root    string
}

func tableOf(s *client.Session) *table {
	v, _ := s.Client().Handle(handle.Key{}).Values.LoadOrStore(tableKey{}, &table{list: map[tableKey]*participant{}})
	return v.(*table)
}

// now is the time of decisions, in ns since the program started.
func now() int64 { return int64(boottime.Now() - start) }

var start = boottime.Now() - 1

// open finds or starts the session's part in the tree, and adds a leaf.
func open(s *client.Session, path string) (*participant, *leaf) {
	t := tableOf(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	key := tableKey{s, protocol.LimitRoot(path)}
	p := t.list[key]
	if p == nil {
		p = &participant{table: t, object: limitOf(s, key.root), root: key.root, ended: make(chan struct{}),
			poke: make(chan struct{}, 1), notice: make(chan struct{}, 1), demand: map[*leaf]*demand{}, length: firstLength,
			opened: make(chan struct{})}
		p.ctx, p.cancel = context.WithCancel(s.Context())
		t.list[key] = p
		go p.run()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leaves {
		if l.path == path {
			l.users++
			return p, l
		}
	}
	l := newLeaf(path)
	p.leaves = append(p.leaves, l)
	p.demand[l] = new(demand)
	signal(p.notice)
	return p, l
}

// release closes a leaf of which this was the last user, and the part in the tree with the last
// leaf.
func (p *participant) release(s *client.Session, l *leaf) (last bool) {
	t := p.table
	t.mu.Lock()
	defer t.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.users--; l.users > 0 {
		return false
	}
	p.leaves = slices.DeleteFunc(p.leaves, func(x *leaf) bool { return x == l })
	delete(p.demand, l)
	l.mu.Lock()
	l.drop(now())
	for len(l.queue) > 0 {
		l.finish(l.queue[0], ErrClosed)
	}
	l.mu.Unlock()
	p.closed = append(p.closed, protocol.LimitLeaf{Path: []byte(l.path), Closed: true,
		Allowed: l.allowed.Load(), Denied: l.denied.Load(), Waited: l.waited.Load()})
	if len(p.leaves) > 0 {
		signal(p.notice)
		return false
	}
	delete(t.list, tableKey{s, p.root})
	return true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run joins and refreshes until the participant ends.
func (p *participant) run() {
	defer close(p.ended)
	var watching sync.WaitGroup
	watching.Go(p.watch)
	defer watching.Wait()
	defer p.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p.sleep(timer, p.step()) {
	}
	p.fail(context.Cause(p.ctx))
}

// sleep waits until the next refresh is due, the server asks for one, or a demand has changed; false:
// the participant ends.
func (p *participant) sleep(timer *time.Timer, wait time.Duration) bool {
	due := boottime.Now() + wait
	look := due // at the demands
	if patience := p.patience(); patience > 0 {
		look = p.sent + patience
	}
	poke := p.poke
	for {
		timer.Reset(max(min(due, look)-boottime.Now(), 0))
		select {
		case <-p.ctx.Done():
			return false
		case <-timer.C:
			if boottime.Now() >= due || p.changed() {
				return p.ctx.Err() == nil
			}
			poke, look = p.poke, due
			if patience := p.patience(); patience > 0 {
				look = boottime.Now() + patience
			}
		case <-poke:
			poke, look = nil, min(look, max(p.sent, p.looked)+demandGap)
		case <-p.notice:
			due = min(due, p.sent+refreshGap)
		}
	}
}

// patience is the shortest of any leaf.
func (p *participant) patience() (least time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.demand { // the shortest: in any order
		if t := d.patience(); t > 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

// changed reports whether the server is to hear at once of a demand.
func (p *participant) changed() (changed bool) {
	p.looked = boottime.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leaves {
		l.mu.Lock()
		changed = p.demand[l].changed(int64(p.looked-start), l) || changed
		l.mu.Unlock()
	}
	return changed
}

// step joins if it has to, refreshes, and returns when to do so again.
func (p *participant) step() (wait time.Duration) {
	lease := time.Duration(p.length) * time.Millisecond
	ctx, cancel := context.WithTimeout(p.ctx, max(lease/2, minTry))
	defer cancel()
	if !p.joined {
		m := &protocol.LimitJoin{Path: []byte(p.root), Again: p.before}
		if err := p.object.Change(ctx, protocol.KindLimitJoin, &m.Head, m, &protocol.Empty{}); err != nil {
			return p.refused(err)
		}
		p.joined, p.before = true, true
	}
	again, err := p.refresh(ctx)
	switch {
	case err != nil:
		return p.refused(err)
	case again:
		return max(p.sent+refreshGap-boottime.Now(), 0)
	}
	return max(p.sent+time.Duration(p.length)*time.Millisecond/3-boottime.Now(), 0)
}

// refused notes a failure, and returns when to try again.
func (p *participant) refused(err error) time.Duration {
	p.mu.Lock()
	p.stats.failed++
	p.mu.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return 0
	case errors.Is(err, protocol.StatusPreconditionFailed):
		p.joined = false // the session was attached again
		return refreshGap
	case errors.Is(err, protocol.StatusNotFound), errors.Is(err, protocol.StatusForbidden), errors.Is(err, protocol.StatusBadRequest):
		p.joined = p.joined && !errors.Is(err, protocol.StatusNotFound)
		p.fail(err)
		return retryAfter
	}
	return demandGap
}

// fail gives an error to all calls, until a refresh succeeds.
func (p *participant) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leaves {
		l.mu.Lock()
		if l.err = err; p.ctx.Err() == nil {
			l.drop(now())
		}
		for len(l.queue) > 0 {
			l.finish(l.queue[0], err)
		}
		l.mu.Unlock()
	}
	p.answered()
}

// answered wakes who waits for the first answer of the server. mu is held.
func (p *participant) answered() {
	close(p.opened)
	p.opened = make(chan struct{})
}

// refresh asks for the leases of all leaves. Again: the server is to hear at once that they were
// taken.
func (p *participant) refresh(ctx context.Context) (again bool, err error) {
	q := &protocol.LimitRefresh{Session: p.object.SessionID(), Path: []byte(p.root), Seq: p.table.seq.Add(1),
		BucketEpoch: p.bucketEpoch, LeaderEpoch: p.leaderEpoch}
	p.sent = boottime.Now()
	sent := int64(p.sent - start)
	p.mu.Lock()
	leaves := slices.Clone(p.leaves)
	closed := p.closed
	p.closed = nil
	for _, l := range leaves {
		l.mu.Lock()
		q.Leaves = append(q.Leaves, l.report(sent, p.demand[l]))
		l.mu.Unlock()
	}
	for _, x := range closed {
		if !slices.ContainsFunc(leaves, func(l *leaf) bool { return l.path == string(x.Path) }) {
			q.Leaves = append(q.Leaves, x)
		}
	}
	p.stats.refreshes++
	p.mu.Unlock()
	var r protocol.LimitRefreshReply
	if err := p.object.Send(ctx, protocol.KindLimitRefresh, q, &r); err != nil {
		p.mu.Lock()
		p.closed = append(p.closed, closed...)
		p.mu.Unlock()
		return false, err
	}
	if len(r.Leaves) != len(q.Leaves) {
		return false, protocol.Errorf(protocol.StatusInternal, "a refresh of %d leaves was answered with %d", len(q.Leaves), len(r.Leaves))
	}
	p.bucketEpoch, p.leaderEpoch, p.length = r.BucketEpoch, r.LeaderEpoch, r.Length
	until := sent + int64(r.Length)*int64(time.Millisecond)/beliefDen*beliefNum
	again = r.Again
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, l := range leaves {
		again = p.take(l, &r.Leaves[i], until) || again
	}
	p.answered()
	return again, nil
}

// take gives a leaf its lease. It reports whether the leaf uses less from now on: others wait for
// the confirmation.
func (p *participant) take(l *leaf, x *protocol.LimitLease, until int64) (less bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now()
	switch x.State {
	case protocol.LimitMissing:
		l.err = protocol.Errorf(protocol.StatusNotFound, "there is no resource %s; create it first", l.path)
		l.drop(at)
	case protocol.LimitInner:
		l.err = protocol.Errorf(protocol.StatusPreconditionFailed, "resource %s has children; use one of them", l.path)
		l.drop(at)
	default:
		l.err = nil
		less = x.Rate < l.rate || x.Burst < l.burst
		l.install(at, x, until)
	}
	l.wake(p)
	return less
}

// watch hears of the server when a refresh is wanted.
func (p *participant) watch() {
	req := &protocol.LimitWatch{Node: p.object.NodeID(), Path: []byte(p.root), Session: p.object.SessionID()}
	read := func(protocol.Header) (struct{}, core.Step, error) { return struct{}{}, core.Replace, nil }
	for p.ctx.Err() == nil {
		for _, err := range handle.Watch(p.ctx, p.object, protocol.KindLimitWatch, req,
			func() func(protocol.Header) (struct{}, core.Step, error) { return read }) {
			if err != nil {
				break
			}
			signal(p.notice)
		}
		signal(p.notice)
		select {
		case <-p.ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// leave gives back what is leased, and leaves the tree. It is called when the loop has ended.
func (p *participant) leave(ctx context.Context) error {
	if !p.joined {
		return nil
	}
	if _, err := p.refresh(ctx); err != nil {
		return err
	}
	m := &protocol.LimitLeave{Path: []byte(p.root)}
	return p.object.Change(ctx, protocol.KindLimitLeave, &m.Head, m, &protocol.Empty{})
}

// limitOf is the tree of a rate limit as a session reaches it.
func limitOf(s *client.Session, root string) *handle.Object {
	own := s.Handle(handle.Key{})
	return handle.Limit(own.Node, own.Session, root)
}
