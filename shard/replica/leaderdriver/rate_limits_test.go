package leaderdriver

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// limitReplica is a replica with a rate limit in which one session takes part. Its log time is the
// bubble's.
type limitReplica struct {
	*testing.T
	began time.Time

	mu       sync.Mutex // of the machine
	machine  *shard.Machine
	head     shard.Header
	session  uint64
	epoch    uint64
	seq      uint64
	notified chan time.Time
	answers  chan ratelimit.Answer

	deposed atomic.Bool  // barriers fail
	slow    atomic.Int32 // so many barriers take 600 ms
	panics  atomic.Bool  // the next answer does
}

func (r *limitReplica) View(fn func(*shard.Machine)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fn(r.machine)
}
func (r *limitReplica) LogTime() uint64 { return 1000 + uint64(time.Since(r.began)/time.Millisecond) }
func (r *limitReplica) NotifyLimit(uint64, string, uint64, uint64) {
	r.notified <- time.Now()
}
func (r *limitReplica) AnswerLimits(fn func(func(*ratelimit.Answer) bool)) {
	fn(func(a *ratelimit.Answer) bool {
		if r.panics.CompareAndSwap(true, false) {
			panic("planted")
		}
		r.answers <- *a
		return true
	})
}
func (r *limitReplica) Barrier(fn func(ok bool)) {
	go func() {
		if r.slow.Add(-1) >= 0 {
			time.Sleep(600 * time.Millisecond)
		}
		fn(!r.deposed.Load())
	}()
}
func (r *limitReplica) FlushLimits()   {}
func (r *limitReplica) ContainLimits() { _ = recover() }

// apply applies a command, and returns the reply.
func (r *limitReplica) apply(kind shard.CommandKind, body []byte) (reply shard.Event) {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head.Seq++
	r.head.LogTime = r.LogTime()
	entry := shard.AppendCommand(shard.AppendHeader(nil, r.head), shard.Command{Kind: kind, Node: 1, Epoch: r.epoch, Body: body})
	var out shard.Events
	r.machine.Apply(r.machine.AppliedIndex()+1, entry, &out)
	for _, e := range out.List {
		if e.Kind == shard.EventReply {
			reply = e
		}
	}
	if reply.Status != protocol.StatusOK {
		r.Fatalf("command %d: %v %s", kind, reply.Status, reply.Text)
	}
	return reply
}

// lead has the machine know a leadership of a term.
func (r *limitReplica) lead(term uint64) Term {
	r.Helper()
	r.head.Epoch = term<<16 | 1
	r.apply(shard.CmdTakeOver, nil)
	return Term{Epoch: r.head.Epoch, LogTime: r.LogTime()}
}

func (r *limitReplica) next() protocol.Head {
	r.seq++
	return protocol.Head{Session: r.session, Seq: r.seq, Low: r.seq}
}

// newLimitReplica returns a replica that does not lead.
func newLimitReplica(t *testing.T) *limitReplica {
	r := &limitReplica{T: t, began: time.Now(), machine: shard.New(2), notified: make(chan time.Time, 100), answers: make(chan ratelimit.Answer, 100),
		head: shard.Header{Format: shard.FormatVersion}}
	r.lead(1)
	r.apply(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: 16, Count: 16}))
	r.apply(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: protocol.DefaultNodeConfig()}))
	key := make([]byte, protocol.KeyLen)
	start := protocol.SessionStart{Node: 1, CreateID: key, Key: key, Timeout: 60_000, Nonce: 1}
	e := r.apply(shard.CmdSessionStart, protocol.AppendBody(nil, &start))
	r.session, r.epoch = e.Session, e.Epoch
	create := protocol.LimitCreate{Head: r.next(), Path: []byte("api"), Config: protocol.LimitConfig{Rate: 1_000_000}}
	r.apply(shard.CmdLimitCreate, protocol.AppendBody(nil, &create))
	join := protocol.LimitJoin{Head: r.next(), Path: []byte("api")}
	r.apply(shard.CmdLimitJoin, protocol.AppendBody(nil, &join))
	return r
}

// inLimitBubble runs f with the part of a replica, which does not lead.
func inLimitBubble(t *testing.T, f func(d *Driver, p *RateLimits, r *limitReplica)) {
	synctest.Test(t, func(t *testing.T) {
		r := newLimitReplica(t)
		p := NewRateLimits(r)
		d := New(p)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(d.Loops(stop)[0])
		defer wg.Wait()
		defer close(stop)
		f(d, p, r)
	})
}

// refresh refreshes the session's lease, and returns false if this replica does not lead.
func (r *limitReplica) refresh(p *RateLimits) (leads bool) {
	r.Helper()
	r.View(func(m *shard.Machine) {
		leads = p.Do(m, func(l *leader.RateLimits) {
			r.seq++
			q := ratelimit.Refresh{Session: r.session, Epoch: r.epoch, Seq: r.seq, Leaves: []ratelimit.LeafRefresh{{Leaf: "api", Waiting: 1}}}
			if err := l.Refresh(m, r.LogTime(), 1, []byte("api"), &q, new(ratelimit.Reply)); err != nil {
				r.Fatal(err)
			}
		})
	})
	return leads
}

// TestNoticesAfterLeadershipIsBack: sessions are notified as quickly in the second leadership of a
// replica as in its first, although a timer of the first fires between them.
func TestNoticesAfterLeadershipIsBack(t *testing.T) {
	inLimitBubble(t, func(d *Driver, p *RateLimits, r *limitReplica) {
		for term := uint64(2); term <= 8; term += 2 {
			d.Begin(r.lead(term))
			if !r.refresh(p) {
				t.Fatalf("the leader of term %d does not answer", term)
			}
			time.Sleep(200 * time.Millisecond)
			alter := protocol.LimitAlter{Head: r.next(), Path: []byte("api"), Revision: term / 2,
				Config: protocol.LimitConfig{Rate: 1_000_000 + term}}
			r.apply(shard.CmdLimitAlter, protocol.AppendBody(nil, &alter))
			asked := time.Now()
			r.refresh(p) // the leader sees the change now
			if in := (<-r.notified).Sub(asked); in > 10*time.Millisecond {
				t.Errorf("in term %d the session is notified after %v", term, in)
			}
			d.End()
			if r.refresh(p) {
				t.Errorf("after term %d a refresh is answered", term)
			}
			if term != 4 { // a timer fires while nobody leads here, or in the next leadership
				time.Sleep(10 * time.Second)
			}
		}
	})
}

// TestLeasesOfAnotherLeader: with a machine that another leadership has changed, nothing is
// answered although this replica has not heard of its end; nor with leases of an earlier one.
func TestLeasesOfAnotherLeader(t *testing.T) {
	inLimitBubble(t, func(d *Driver, p *RateLimits, r *limitReplica) {
		if r.refresh(p) {
			t.Error("a refresh is answered before a leadership")
		}
		d.Begin(r.lead(2))
		r.refresh(p)
		trees := func() (n int) {
			r.View(func(m *shard.Machine) {
				if !p.Do(m, func(l *leader.RateLimits) { n = l.Len() }) {
					t.Error("the leader does not answer")
				}
			})
			return n
		}
		if n := trees(); n != 1 {
			t.Errorf("there are leases of %d trees", n)
		}
		next := r.lead(3)
		if r.refresh(p) {
			t.Error("a refresh is answered with another leader's machine")
		}
		d.Begin(next)
		if n := trees(); n != 0 {
			t.Errorf("a leadership begins with leases of %d trees", n)
		}
	})
}

// acquire asks for units of the session's limit.
func (r *limitReplica) acquire(p *RateLimits, request, amount uint64) {
	r.Helper()
	r.View(func(m *shard.Machine) {
		p.Do(m, func(l *leader.RateLimits) {
			q := ratelimit.Acquire{Session: r.session, Epoch: r.epoch, Seq: request, Leaves: []string{"api"}, Amount: amount, Wait: true,
				From: ratelimit.Origin{Conn: 1, Request: request}}
			if err := l.Acquire(m, r.LogTime(), 1, []byte("api"), &q); err != nil {
				r.Fatal(err)
			}
			r.AnswerLimits(func(answer func(*ratelimit.Answer) bool) { l.Admit(m, r.LogTime(), r.LogTime(), answer) })
		})
	})
}

// answer is the next one.
func (r *limitReplica) answer() ratelimit.Answer {
	r.Helper()
	select {
	case a := <-r.answers:
		return a
	case <-time.After(time.Minute): // of the bubble
		r.Fatal("a call is not answered")
		return ratelimit.Answer{}
	}
}

// TestCallsWaitAtTheLeader: a call that waits is answered behind a barrier when its units are there, and when the
// leadership ends.
func TestCallsWaitAtTheLeader(t *testing.T) {
	inLimitBubble(t, func(d *Driver, p *RateLimits, r *limitReplica) {
		d.Begin(r.lead(2))
		for i := range uint64(3) {
			r.acquire(p, i+1, 400_000)
		}
		time.Sleep(2 * time.Second)
		r.refresh(p) // the leader learns of leases for longer, and nobody asks for anything after that
		for want := range uint64(2) {
			if a := r.answer(); a.To.Request != want+1 || !a.Granted || a.Err != nil {
				t.Fatalf("answered: %+v", a)
			}
		}
		r.deposed.Store(true)
		select {
		case a := <-r.answers:
			t.Fatalf("answered by a leader that was deposed: %+v", a)
		case <-time.After(time.Second): // it has the units for a third one by then
		}
		d.End()
		if a := r.answer(); a.To.Request != 3 || protocol.StatusOf(a.Err) != protocol.StatusUnavailable {
			t.Errorf("at the end of the leadership: %+v", a)
		}
	})
}

// TestSlowBarriers: what is admitted can be used. Behind a barrier that took too long nobody is admitted, and the next
// one is waited for.
func TestSlowBarriers(t *testing.T) {
	inLimitBubble(t, func(d *Driver, p *RateLimits, r *limitReplica) {
		d.Begin(r.lead(2))
		time.Sleep(4 * time.Second) // the leader has learned, and has a second's units
		r.slow.Store(4)
		for i := range uint64(3) {
			r.acquire(p, i+1, 400_000)
		}
		for want := range uint64(3) {
			a := r.answer()
			if left := int64(a.Until) - int64(r.LogTime()); a.To.Request != want+1 || !a.Granted || left < protocol.MaxLimitWithin/2 {
				t.Errorf("answered with %d ms to use the units: %+v", left, a)
			}
		}
	})
}

// TestPanicAnswers: after a panic while calls are admitted each of them is answered, but that whose answer it was, and
// those that come later are admitted.
func TestPanicAnswers(t *testing.T) {
	inLimitBubble(t, func(d *Driver, p *RateLimits, r *limitReplica) {
		d.Begin(r.lead(2))
		for i := range uint64(4) {
			r.acquire(p, i+1, 200_000)
		}
		r.panics.Store(true)
		time.Sleep(4 * time.Second) // the leader has learned
		for want := uint64(2); want <= 4; want++ {
			if a := r.answer(); a.To.Request != want || !a.Granted && protocol.StatusOf(a.Err) != protocol.StatusUnavailable {
				t.Errorf("answered: %+v", a)
			}
		}
		r.acquire(p, 5, 100_000)
		if a := r.answer(); a.To.Request != 5 || !a.Granted {
			t.Errorf("answered after the panic: %+v", a)
		}
	})
}
