package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// agreeingHandler agrees with the others on a value: its coordinator locks all, by a message, and
// leaves the epoch as the value. One call in so many fails.
type agreeingHandler struct {
	BaseHandler
	unlucky int
	changed chan struct{} // capacity 1

	mu        sync.Mutex
	rnd       *rand.Rand
	locked    uint64 // epoch
	value     string
	epoch     uint64 // completed last
	members   int
	prepared  int
	quiet     int
	completed int
	ended     bool
	violation string
}

func newAgreeing(unlucky int) *agreeingHandler {
	return &agreeingHandler{unlucky: unlucky, changed: make(chan struct{}, 1), rnd: rand.New(rand.NewPCG(uint64(unlucky), 1))}
}

func (h *agreeingHandler) fails() error {
	if h.unlucky > 0 && h.rnd.IntN(h.unlucky) == 0 {
		switch h.rnd.IntN(3) {
		case 0:
			panic("unlucky")
		case 1:
			runtime.Goexit()
		}
		return errors.New("unlucky")
	}
	return nil
}

func (h *agreeingHandler) Prepare(r *Round) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fails(); err != nil {
		return err
	}
	if h.prepared != h.quiet {
		h.violation = fmt.Sprintf("round %d is prepared while another is open", r.Epoch())
	}
	h.prepared++
	r.SetAttachment(r.Epoch())
	return nil
}

func (h *agreeingHandler) Coordinate(r *Round) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fails(); err != nil {
		return err
	}
	return r.Broadcast([]byte("lock"), nil, Callback{Answered: func(a []Answer) {
		if len(a) == len(r.Members()) {
			_ = r.Complete(fmt.Append(nil, r.Epoch()))
		}
	}})
}

func (h *agreeingHandler) Process(q *Request) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.fails(); err != nil {
		return err
	}
	h.locked = q.Round().Epoch()
	return q.Reply([]byte("locked"))
}

func (h *agreeingHandler) Complete(r *Round) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.locked != r.Epoch() && !r.Resumed() || r.Attachment() != r.Epoch() {
		h.violation = fmt.Sprintf("round %d is complete without a lock, or with the attachment %v", r.Epoch(), r.Attachment())
	}
	h.quiet++
	h.completed++
	h.value, h.epoch, h.members = string(r.Result()), r.Epoch(), len(r.Members())
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *agreeingHandler) Cancel(r *Round) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.Context().Err() == nil {
		h.violation = fmt.Sprintf("round %d is cancelled before its context ended", r.Epoch())
	}
	h.quiet++
}

func (h *agreeingHandler) Terminate() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
}

// agreed waits until the handler has completed a round with so many members.
func (h *agreeingHandler) agreed(t *testing.T, members int) (epoch uint64, value string) {
	t.Helper()
	over := time.After(time.Minute)
	for {
		h.mu.Lock()
		epoch, value, n := h.epoch, h.value, h.members
		h.mu.Unlock()
		if n == members {
			return epoch, value
		}
		select {
		case <-h.changed:
		case <-over:
			t.Fatalf("no round of %d members is complete; the last one had %d", members, n)
		}
	}
}

// check is what must hold when the membership is over.
func (h *agreeingHandler) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.violation != "" {
		t.Error(h.violation)
	}
	if !h.ended || h.prepared != h.quiet {
		t.Errorf("%d rounds were prepared and %d ended; terminated: %v", h.prepared, h.quiet, h.ended)
	}
}

// holdTheSame waits until all handlers have agreed, and checks that they hold one value.
func holdTheSame(t *testing.T, handlers []*agreeingHandler) {
	t.Helper()
	epoch, value := handlers[0].agreed(t, len(handlers))
	for _, h := range handlers[1:] {
		if e, v := h.agreed(t, len(handlers)); e != epoch || v != value || v != fmt.Sprint(e) {
			t.Fatalf("a member holds %q of %d, another %q of %d", v, e, value, epoch)
		}
	}
}

// TestMembersComeAndGo: five members join one by one and leave one by one, each callback fails one
// time in three, and messages to the server get lost. After each change all hold the same value,
// and one round is complete for each change.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	b := newBackend(t, 5)
	ctx := t.Context()
	var members []*Membership
	var handlers []*agreeingHandler
	same := func() {
		t.Helper()
		holdTheSame(t, handlers)
		await.True(t, "all to have confirmed", func() bool { _, ok := b.quiet(len(handlers)); return ok })
	}
	for i := range 5 {
		h := newAgreeing(3)
		h.rnd = rand.New(rand.NewPCG(uint64(i), 2))
		p, _, err := b.join(ctx, uint64(100+i), h, Options{Synchronous: i%2 == 0, RetryInterval: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		members, handlers = append(members, p), append(handlers, h)
		same()
	}
	for len(members) > 1 {
		if err := members[0].Leave(ctx); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(members[0].Err(), ErrLeft) {
			t.Errorf("membership is over by %v", members[0].Err())
		}
		handlers[0].check(t)
		members, handlers = members[1:], handlers[1:]
		same()
	}
	if n := b.tally(); n.Completed != 9 || n.Changes != 9 {
		t.Errorf("%d rounds were complete for %d changes", n.Completed, n.Changes)
	}
	if err := members[0].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	handlers[0].check(t)
}

// blockedHandler stands still in one callback until it is told to go on, or the round is over.
type blockedHandler struct {
	*agreeingHandler
	in    string
	there chan uint64 // epoch; capacity 100
	free  chan struct{}
}

func (h *blockedHandler) block(in string, r *Round) {
	if in != h.in {
		return
	}
	h.there <- r.Epoch()
	select {
	case <-r.Context().Done():
	case <-h.free:
	}
}

func (h *blockedHandler) Prepare(r *Round) error {
	h.block("prepare", r)
	return h.agreeingHandler.Prepare(r)
}

func (h *blockedHandler) Coordinate(r *Round) error {
	h.block("coordinate", r)
	return h.agreeingHandler.Coordinate(r)
}

func (h *blockedHandler) Process(q *Request) error {
	h.block("process", q.Round())
	return h.agreeingHandler.Process(q)
}

func (h *blockedHandler) Complete(r *Round) {
	h.block("complete", r)
	h.agreeingHandler.Complete(r)
}

func wait[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited for %s in vain", what)
		panic("unreachable")
	}
}

// TestCoordinatorIsKilled in each of its callbacks: the others complete a round without it, and
// hold the same.
func TestCoordinatorIsKilled(t *testing.T) {
	for _, in := range []string{"prepare", "coordinate", "process", "complete"} {
		t.Run(in, func(t *testing.T) {
			b := newBackend(t, 0)
			first := &blockedHandler{agreeingHandler: newAgreeing(0), in: in, there: make(chan uint64, 100), free: make(chan struct{})}
			p, w, err := b.join(t.Context(), 1, first, Options{})
			if err != nil {
				t.Fatal(err)
			}
			wait(t, "the coordinator's callback", first.there)
			second, third := newAgreeing(0), newAgreeing(0)
			for i, h := range []*agreeingHandler{second, third} {
				q, _, err := b.join(t.Context(), uint64(2+i), h, Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := q.Leave(context.Background()); err != nil {
						t.Error(err)
					}
					h.check(t)
				}()
			}
			close(w.over) // nothing is sent from here on
			await.True(t, "the dead member to notice", func() bool { return p.Err() != nil })
			b.kill(1)
			close(first.free)
			wait(t, "the end of the dead member", p.Done())
			if !errors.Is(p.Err(), client.ErrSessionExpired) {
				t.Errorf("membership is over by %v", p.Err())
			}
			first.check(t)
			e2, v2 := second.agreed(t, 2)
			if e3, v3 := third.agreed(t, 2); e2 != e3 || v2 != v3 {
				t.Errorf("one holds %q of %d, the other %q of %d", v2, e2, v3, e3)
			}
		})
	}
}

// TestBusyHandler: the context of a round ends while its callback runs, and Cancel waits for that.
func TestBusyHandler(t *testing.T) {
	b := newBackend(t, 0)
	h := &blockedHandler{agreeingHandler: newAgreeing(0), in: "coordinate", there: make(chan uint64, 100), free: make(chan struct{})}
	p, _, err := b.join(t.Context(), 1, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	epoch := wait(t, "coordinate", h.there)
	q, _, err := b.join(t.Context(), 2, newAgreeing(0), Options{}) // supersedes it: Coordinate returns by its context alone
	if err != nil {
		t.Fatal(err)
	}
	if next := wait(t, "coordinate of the next round", h.there); next <= epoch {
		t.Errorf("epoch %d follows %d", next, epoch)
	}
	close(h.free)
	if err := p.WaitInitial(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.agreed(t, 2)
	for _, p := range []*Membership{p, q} {
		if err := p.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.check(t)
}

// TestEvicted: an operator ends a membership, and the handler is told in order.
func TestEvicted(t *testing.T) {
	b := newBackend(t, 0)
	h := newAgreeing(0)
	p, _, err := b.join(t.Context(), 1, h, Options{Synchronous: true})
	if err != nil {
		t.Fatal(err)
	}
	b.evict(t, 1)
	wait(t, "the end", p.Done())
	if !errors.Is(p.Err(), ErrEvicted) {
		t.Errorf("membership is over by %v", p.Err())
	}
	h.check(t)
	if err := p.Leave(t.Context()); err != nil {
		t.Errorf("leave of an evicted member: %v", err)
	}
}

// unansweredTransport loses the answer to the first join and to the first leave, as asked, after
// the server has taken it. Leaves wait for free, unless it is nil.
type unansweredTransport struct {
	*fakeTransport
	join, leave atomic.Bool
	free        chan struct{}
}

func (w *unansweredTransport) Change(ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message) error {
	lost := false
	switch m.(type) {
	case *protocol.ProcessJoin:
		lost = w.join.Swap(false)
	case *protocol.ProcessLeave:
		lost = w.leave.Swap(false)
		if w.free != nil {
			<-w.free
		}
	}
	err := w.fakeTransport.Change(ctx, kind, head, m, reply)
	if err == nil && lost {
		return fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, context.DeadlineExceeded)
	}
	return err
}

// TestLeaveIsNotAnswered: the server tells a session that has left nothing more. A leave whose
// answer is lost is sent again, and the membership ends.
func TestLeaveIsNotAnswered(t *testing.T) {
	b := newBackend(t, 0)
	w := &unansweredTransport{fakeTransport: &fakeTransport{b: b, session: 1}}
	w.leave.Store(true)
	h := newAgreeing(0)
	p, err := join(t.Context(), w, 1, nil, nil, "queue", h, Options{Synchronous: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Leave(t.Context()); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("leave gives %v", err)
	}
	wait(t, "the end of the membership", p.Done())
	if !errors.Is(p.Err(), ErrLeft) {
		t.Errorf("membership is over by %v", p.Err())
	}
	h.check(t)
}

// TestJoinIsNotAnswered: a join whose answer is lost leaves in the background. The session cannot
// join again before: the leave would end that membership, and nobody would be told.
func TestJoinIsNotAnswered(t *testing.T) {
	b := newBackend(t, 0)
	w := &unansweredTransport{fakeTransport: &fakeTransport{b: b, session: 1}, free: make(chan struct{})}
	w.join.Store(true)
	again := func() (*Membership, *agreeingHandler, error) {
		h := newAgreeing(0)
		p, err := join(t.Context(), w, 1, nil, nil, "queue", h, Options{})
		return p, h, err
	}
	if _, _, err := again(); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Fatalf("join gives %v", err)
	}
	if _, _, err := again(); !errors.Is(err, ErrAlreadyMember) {
		t.Fatalf("before the leave is answered, another join gives %v", err)
	}
	close(w.free)
	var p *Membership
	var h *agreeingHandler
	var err error
	await.True(t, "the leave to be answered", func() bool {
		p, h, err = again()
		return !errors.Is(err, ErrAlreadyMember)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.agreed(t, 1)
	if err := p.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.check(t)
}

// failingHandler cannot be initialized.
type failingHandler struct {
	*agreeingHandler
	fails func() error
}

func (h failingHandler) Initialize(context.Context) error {
	return h.fails()
}

// TestInitializeFails: the join fails with the cause, Terminate is called, and the server never
// hears of it.
func TestInitializeFails(t *testing.T) {
	b := newBackend(t, 0)
	for want, fails := range map[string]func() error{
		"no disk":         func() error { return errors.New("no disk") },
		"panicked":        func() error { panic("no disk") },
		errExited.Error(): func() error { runtime.Goexit(); return nil },
	} {
		h := failingHandler{newAgreeing(0), fails}
		if p, _, err := b.join(t.Context(), 1, h, Options{}); p != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("join gives %v", err)
		}
		h.check(t)
	}
	if b.joins > 0 || len(b.handlers) > 0 {
		t.Errorf("%d joins were sent, %d listen", b.joins, len(b.handlers))
	}
}
