package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Lease is a number of units of a semaphore that a session holds. It ends when it is released, when
// the session ends, or when it is taken away. Its context ends with it, before another session can
// be granted the units.
//
// A lock cannot stop a process that does not check it. Send Token with every write to what the
// lease protects, and let the resource reject tokens that are lower than one it has seen.
type Lease struct {
	s         *Session
	name      string
	bucket    uint32
	token     uint64
	ephemeral bool

	// Guarded by session.mu.
	count  uint64
	data   []byte
	ask    *protocol.AcquireOptions // that it was acquired with; nil: a plain one
	slots  []string
	seq    uint64       // number of the acquire that the server's entry carries
	route  requestRoute // where that was answered
	over   error        // why it ended, if not with the session
	ctx    context.Context
	cancel context.CancelCauseFunc
	// The server is to be asked whether the session still has the lease: by a goroutine, or when
	// its turn comes in a queue.
	confirming bool
	queued     *confirmQueue
	recall     func(owner uint64) // while it is asked: gives up if another shard than the one asked owns it

	observation *observedHold // whom its end is reported to; nil: nobody
}

// Name is the semaphore's name.
func (l *Lease) Name() string { return l.name }

// Token is the fencing token. It is higher for every later grant of the same semaphore name, for as
// long as the coordination node exists. With a limit above 1 each holder has a token of its own,
// and the resource must compare per holder.
func (l *Lease) Token() uint64 { return l.token }

// Session is the session that holds the lease.
func (l *Lease) Session() *Session { return l.s }

// Count is the number of units held.
func (l *Lease) Count() uint64 {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.count
}

// Context ends with the lease. Its cause is Lost, or ErrReleased. It ends 5 % of the session's
// timeout before the last moment at which the lease may be relied on, so that work has time to
// stop.
func (l *Lease) Context() context.Context {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(l.s.ctx)
		if l.over != nil {
			l.cancel(l.over)
		}
	}
	return l.ctx
}

// Held says whether the lease may be relied on now. It reads the clock, so late timers do not make
// it wrong.
func (l *Lease) Held() bool {
	l.s.c.checkClocks()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.over == nil && l.s.heldLocked()
}

// Lost is nil while the lease is held, and after it was released. Otherwise it says why the lease
// was lost: ErrLeaseLost, or the session's Err.
func (l *Lease) Lost() error {
	l.s.endErr()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.lostLocked()
}

func (l *Lease) lostLocked() error {
	switch {
	case l.over == ErrReleased:
		return nil
	case l.over != nil:
		return l.over
	}
	return l.s.err
}

// end ends the lease. session.mu is held.
func (l *Lease) end(cause error) {
	if l.over != nil {
		return
	}
	l.over = cause
	l.reportHold(cause)
	if l.cancel != nil {
		l.cancel(cause)
	}
}

// Release gives the units back. The lease ends at once; the call returns when the server has
// answered. When ctx ends first, even before the call, the release goes on in the background and
// the error is that of ctx. It also goes on when a connection is refused. Releasing twice is no
// error; releasing a lost lease returns Lost. If the session is lost before the answer, the error
// wraps ErrOutcomeUnknown and the session's: the units are free at the latest when the server ends
// the session.
func (l *Lease) Release(ctx context.Context) error {
	s := l.s
	s.mu.Lock()
	if l.over != nil || s.err != nil {
		defer s.mu.Unlock()
		return l.lostLocked()
	}
	hold := l.takeObservation()
	l.end(ErrReleased)
	e := s.nameLocks.get(l.name)
	r, _ := releasePool.Get().(*releaseOp)
	if r == nil {
		r = new(releaseOp)
	}
	r.s, r.e, r.bucket, r.token = s, e, l.bucket, l.token
	if e.locked {
		// A change of the lease is under way. The release comes next, before a caller that wants to
		// acquire again.
		r.turn = make(chan struct{}, 1)
		e.queue = append([]nameTurn{{granted: r.turn}}, e.queue...)
	}
	e.locked = true
	s.mu.Unlock()
	if hold != nil {
		hold.ended(s.c.clock.now(), ErrReleased)
	}
	var done bool
	var err error
	if ctx.Err() == nil {
		done, err = r.work(ctx)
	} else { // the error, however soon the answer would come
		err = interrupted(ctx, nil)
	}
	if done {
		r.recycle()
	} else {
		s.continueInBackground(r.workInBackground)
	}
	return withOp("release", l.name, err)
}

// releaseTimeout bounds how long the end of a Run waits for its release to be answered.
const releaseTimeout = 2 * time.Second

// during calls work with a context that ends with the lease, at once, and with ctx. It releases the
// lease when work has returned; if that is not answered, it goes on in the background.
func (l *Lease) during(ctx context.Context, work func(ctx context.Context) error) error {
	both, end := bothContexts(l.Context(), ctx)
	defer func() {
		end()
		release, done := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer done()
		_ = l.Release(release)
	}()
	return work(both)
}

// run is during, whose error says if the lease was lost.
func (l *Lease) run(ctx context.Context, work func(ctx context.Context, l *Lease) error) error {
	err := l.during(ctx, func(ctx context.Context) error { return work(ctx, l) })
	lost := l.Lost()
	switch {
	case lost == nil:
		return err
	case err != nil && !errors.Is(err, context.Canceled):
		lost = fmt.Errorf("%w (the work ended with: %w)", lost, err)
	}
	return withOp("hold", l.name, lost)
}

// maxReleaseAll bounds how many leases Close gives back one by one, and releaseAllTimeout for how
// long.
const (
	maxReleaseAll     = 1024
	releaseAllTimeout = time.Second
)

// releaseAll gives back what the session holds, all at once, before it is stopped. The stop
// releases it too, but for other shards than the home that needs a message between shards. What is
// not answered in time is left to the stop.
func releaseAll(ctx context.Context, s *Session, cause error) {
	ctx, cancel := context.WithTimeout(ctx, releaseAllTimeout)
	defer cancel()
	var all []*releaseOp
	s.mu.Lock()
	if s.err == nil && s.attachment != nil && !s.attachment.cn.isLost() {
		for e := range s.nameLocks.all {
			if e.locked || e.lease == nil || e.lease.over != nil || len(all) == maxReleaseAll {
				continue
			}
			e.lease.end(cause)
			e.locked = true
			all = append(all, &releaseOp{s: s, e: e, bucket: e.lease.bucket, token: e.lease.token})
		}
	}
	s.mu.Unlock()
	var answers sync.WaitGroup
	for _, r := range all {
		answers.Go(func() {
			if done, _ := r.work(ctx); !done {
				s.nameLocks.unlockOf(s, r.e)
			}
		})
	}
	answers.Wait()
}

// releaseOp is a release in progress. It holds the lock of its name, or waits for it.
type releaseOp struct {
	s      *Session
	e      *nameLock
	bucket uint32
	token  uint64 // 0: whatever the session has there
	turn   chan struct{}
	after  uint64 // number of the acquire that it undoes, which may be on its way still; 0: none
	on     *conn  // the connection that the acquire was sent on; nil: on several
	x      requestState
	req    protocol.Release
	reply  protocol.ReleaseReply
}

// releasePool are used again: nothing refers to one when its work is done.
var releasePool sync.Pool

func (r *releaseOp) recycle() {
	name := r.req.Name[:0]
	*r = releaseOp{}
	r.req.Name = name
	releasePool.Put(r)
}

// releaseNext releases in the background, after a pause, what nobody relies on. It does so before
// anybody else works on the name, whose lock the caller holds. session.mu is held.
func releaseNext(s *Session, e *nameLock, bucket uint32, token uint64, pause time.Duration) {
	r := &releaseOp{s: s, e: e, bucket: bucket, token: token, turn: make(chan struct{}, 1)}
	e.queue = append([]nameTurn{{granted: r.turn}}, e.queue...)
	s.c.run(func() {
		sleep(s.ctx, nil, pause)
		r.finish()
	})
}

// finish works in the background.
func (r *releaseOp) finish() {
	if done, _ := r.workInBackground(r.s.ctx); !done {
		r.s.continueInBackground(r.workInBackground)
	}
}

// workInBackground is work whose error no caller gets.
func (r *releaseOp) workInBackground(ctx context.Context) (done bool, err error) {
	done, err = r.work(ctx)
	if done && err != nil && r.s.Err() == nil {
		r.s.c.cfg.Logger.Warn("semaphore stays held until the session ends", "session", r.s.id,
			"semaphore", r.e.name, "error", err)
	}
	return done, err
}

// work goes on until the release was answered.
func (r *releaseOp) work(ctx context.Context) (done bool, err error) {
	s := r.s
	if r.turn != nil {
		select {
		case <-r.turn:
			r.turn = nil
		case <-ctx.Done():
			return false, interrupted(ctx, nil)
		case <-s.ctx.Done():
			return true, releaseOutcome(ctx, s)
		}
	}
	if r.x.head == nil {
		r.x.head = &r.req.Head
		r.req.Name, r.req.OrderID = append(r.req.Name[:0], r.e.name...), r.token
		if r.after != 0 {
			r.x.after, r.x.sentVia = r.after, r.on
		}
	}
	_, _, err = s.send(ctx, protocol.KindRelease, r.bucket, &r.x, &r.req, &r.reply)
	if err != nil && !answered(err) {
		if s.endErr() == nil {
			return false, err
		}
		err = releaseOutcome(ctx, s)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.x.seq != 0 {
		s.seqs.Close(r.x.seq)
	}
	r.e.lease = nil
	s.nameLocks.unlock(r.e)
	return true, err
}

// releaseOutcome is the result of a release whose session ended before the answer. A session that
// was closed has given back everything once the server has heard of it. Any other one may live on
// at the server for a while, with its units.
func releaseOutcome(ctx context.Context, s *Session) error {
	over := s.endErr()
	if errors.Is(over, ErrSessionClosed) {
		if over = s.awaitStop(ctx); over == nil {
			return nil
		}
	}
	return outcomeUnknown(true, over)
}

// Reduce gives back all but count units, 1 up to the units held. The place among the owners and the
// token stay. Of slots the last ones are given back, or those that Keep does not name. More than is held is BadRequest: acquire it with another session, or release first.
func (l *Lease) Reduce(ctx context.Context, count uint64, opts ...ReduceOption) error {
	ch := &changeOp{count: count}
	for _, f := range opts {
		f(ch)
	}
	return withOp("reduce", l.name, l.change(ctx, ch))
}

// UpdateData replaces the data shown beside the entry. The token stays.
func (l *Lease) UpdateData(ctx context.Context, data []byte) error {
	return withOp("update data of", l.name, l.change(ctx, &changeOp{data: bytes.Clone(data), same: true}))
}

// changeOp is a change of a held lease in progress: the acquire is set again. It holds the name's
// lock.
type changeOp struct {
	l     *Lease
	e     *nameLock
	count uint64
	same  bool     // the count stays
	keep  []string // slots; nil: the first ones
	data  []byte
	seq   uint64
	sent  bool // some sending of it was not answered
	req   protocol.Acquire
	reply protocol.AcquireReply
}

func (l *Lease) change(ctx context.Context, ch *changeOp) error {
	e, _, _, err := l.s.nameLocks.lock(ctx, l.s, l.name, lockNext)
	if err != nil {
		return err
	}
	ch.l, ch.e = l, e
	return l.s.finishInBackground(ctx, ch.work)
}

func (ch *changeOp) work(ctx context.Context) (done bool, err error) {
	l := ch.l
	s := l.s
	s.mu.Lock()
	// A change that may be on its way is completed, whatever became of the lease: behind the
	// release it would be an acquire that nobody waits for.
	if s.err != nil || l.over != nil && !ch.sent {
		err := cmp.Or(l.over, s.err)
		if ch.seq != 0 {
			s.seqs.Close(ch.seq)
		}
		s.nameLocks.unlock(ch.e)
		s.mu.Unlock()
		return true, err
	}
	if ch.seq == 0 {
		if ch.same {
			ch.count = l.count
		} else {
			ch.data = l.data
		}
		ch.seq = s.seqs.Take()
		ch.req = protocol.Acquire{Name: []byte(l.name), Count: ch.count, Data: ch.data, Ephemeral: l.ephemeral,
			Options: l.changedOptions(ch.keep)}
	}
	s.mu.Unlock()
	route, sent, err := s.send(ctx, protocol.KindAcquire, l.bucket, &requestState{seq: ch.seq, head: &ch.req.Head}, &ch.req, &ch.reply)
	if err != nil && !answered(err) && s.endErr() == nil {
		if ch.sent = ch.sent || sent; ch.sent {
			return false, outcomeUnknown(true, err)
		}
		s.mu.Lock() // nothing was applied, and nothing is to be later
		defer s.mu.Unlock()
		s.seqs.Close(ch.seq)
		s.nameLocks.unlock(ch.e)
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seqs.Close(ch.seq)
	defer s.nameLocks.unlock(ch.e)
	switch {
	case err != nil:
		// A refusal that decides nothing about an earlier sending leaves open how much is held, and
		// under which number. As with a refused confirm, nobody relies on the lease any more. All
		// that the session has there is of this lease or of this change.
		open := (ch.sent || sent) && !endsEntry(err)
		if open && s.err == nil {
			var pause time.Duration
			if l.over == nil && ch.e.lease == l {
				s.nameLocks.lose(ch.e, err.Error())
				pause = s.m.Timeout() / 20
			}
			releaseNext(s, ch.e, l.bucket, 0, pause)
		}
		return true, outcomeUnknown(open, err)
	case ch.reply.State == protocol.Acquired && ch.reply.OrderID == l.token:
		l.count, l.data, l.seq, l.route, l.slots = ch.count, ch.data, ch.seq, route, slotsOf(ch.reply.Grant)
		return true, nil
	}
	// The server had nothing of ours to change: the lease was taken away, and nobody could tell us.
	l.end(fmt.Errorf("%w: the server does not know it any more", ErrLeaseLost))
	if ch.reply.State == protocol.Acquired {
		releaseNext(s, ch.e, l.bucket, ch.reply.OrderID, 0) // what it granted instead is nobody's
	} else if ch.e.lease == l {
		ch.e.lease = nil
	}
	return true, l.over
}
