package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// misusingHandler does everything wrong that a handler can, and writes down what it is told.
type misusingHandler struct {
	BaseHandler
	mu     sync.Mutex
	errs   map[string]error
	late   *Request
	round  *Round
	failed chan struct{}
}

func (h *misusingHandler) note(what string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.errs[what] == nil {
		h.errs[what] = err
	}
}

func (h *misusingHandler) Prepare(r *Round) error {
	h.note("complete in prepare", r.Complete(nil))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.round = r
	return nil
}

func (h *misusingHandler) Coordinate(r *Round) error {
	h.note("large result", r.Complete(make([]byte, protocol.MaxProcessResult+1)))
	h.note("large message", r.Broadcast(make([]byte, protocol.MaxProcessPayload+1), nil, Callback{}))
	h.note("stranger", r.Request(99, nil, nil, nil))
	called := false
	err := r.Broadcast(nil, func(Member) bool { return false }, Callback{Answered: func(a []Answer) { called = len(a) == 0 }})
	if err != nil || !called {
		h.note("nobody", fmt.Errorf("called %v, error %v", called, err))
	}
	return r.Request(r.Coordinator(), []byte("hello"), nil, func() { close(h.failed) })
}

func (h *misusingHandler) Process(q *Request) error {
	h.note("large reply", q.Reply(make([]byte, protocol.MaxProcessPayload+1)))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.late = q
	return nil // never replied to
}

// TestMisuse: what is wrong is refused with a sentence, and nothing hangs.
func TestMisuse(t *testing.T) {
	b := newBackend(t, 0)
	for name, c := range map[string]struct {
		name string
		h    Handler
		o    Options
		want string
	}{
		"no handler":     {"queue", nil, Options{}, "handler is nil"},
		"no name":        {"", newAgreeing(0), Options{}, "0 bytes"},
		"bad name":       {"a--b", newAgreeing(0), Options{}, "letters and digits"},
		"long name":      {strings.Repeat("x", 129), newAgreeing(0), Options{}, "129 bytes"},
		"long key":       {"queue", newAgreeing(0), Options{Key: strings.Repeat("x", 129)}, "member key"},
		"much data":      {"queue", newAgreeing(0), Options{Data: make([]byte, 513)}, "member data"},
		"bad election":   {"queue", newAgreeing(0), Options{Election: 7}, "election is 7"},
		"negative time":  {"queue", newAgreeing(0), Options{Debounce: -1}, "negative"},
		"negative retry": {"queue", newAgreeing(0), Options{RetryInterval: -1}, "retry interval"},
		"negative count": {"queue", newAgreeing(0), Options{MaxProcessFailures: -1}, "process failures"},
	} {
		w := &fakeTransport{b: b, session: 1}
		if p, err := join(t.Context(), w, 1, nil, nil, c.name, c.h, c.o); p != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.joins > 0 {
		t.Errorf("%d joins were sent", b.joins)
	}
	h := &misusingHandler{errs: map[string]error{}, failed: make(chan struct{})}
	p, _, err := b.join(t.Context(), 1, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.join(t.Context(), 1, newAgreeing(0), Options{}); !errors.Is(err, ErrAlreadyMember) {
		t.Errorf("a second join of the session: %v", err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.WaitInitial(short); !errors.Is(err, context.Canceled) {
		t.Errorf("waited for a round that never completes: %v", err)
	}
	if q, _, err := b.join(short, 7, newAgreeing(0), Options{}); q != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("join with an ended context: %v", err)
	}
	h.awaitLate(t)
	if err := p.Leave(t.Context()); err != nil { // cancels the round
		t.Fatal(err)
	}
	h.checkLate(t)
}

// awaitLate waits until the message that is never replied to has arrived.
func (h *misusingHandler) awaitLate(t *testing.T) {
	t.Helper()
	await.True(t, "the message that is never replied to", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.late != nil
	})
}

// checkLate makes calls on the round that is over, and checks what became of all calls.
func (h *misusingHandler) checkLate(t *testing.T) {
	t.Helper()
	wait(t, "the message to be given up", h.failed)
	h.note("late reply", h.late.Reply(nil))
	h.note("late message", h.round.Broadcast(nil, nil, Callback{}))
	h.note("late complete", h.round.Complete(nil))
	for what, want := range map[string]error{
		"complete in prepare": ErrNotReady, "large result": ErrTooLarge, "large message": ErrTooLarge,
		"stranger": ErrNoReceiver, "nobody": nil,
		"large reply": ErrTooLarge, "late reply": ErrRoundOver, "late message": ErrRoundOver, "late complete": ErrRoundOver,
	} {
		if !errors.Is(h.errs[what], want) {
			t.Errorf("%s: %v, want %v", what, h.errs[what], want)
		}
	}
}

// leavingHandler leaves from each of its callbacks, which cannot work, and at last by another
// goroutine.
type leavingHandler struct {
	agreeingHandler
	self chan *Membership
	p    *Membership
	errs map[string]error
	left chan error
}

func (h *leavingHandler) note(what string) {
	if h.p == nil {
		h.p = <-h.self
	}
	h.errs["leave in "+what] = h.p.Leave(context.Background())
	h.errs["wait in "+what] = h.p.WaitInitial(context.Background())
}

func (h *leavingHandler) Prepare(r *Round) error {
	h.note("prepare")
	return nil
}

func (h *leavingHandler) Coordinate(r *Round) error {
	h.note("coordinate")
	return r.Broadcast(nil, nil, Callback{Answered: func([]Answer) {
		h.note("answered")
		_ = r.Complete(nil)
	}})
}

func (h *leavingHandler) Process(q *Request) error {
	h.note("process")
	return q.Reply(nil)
}

func (h *leavingHandler) Complete(*Round) {
	h.errs["leave in complete"] = h.p.Leave(context.Background())
	go func() { h.left <- h.p.Leave(context.Background()) }()
}

// TestLeaveInHandler: a callback that would wait for itself is told so at once, and leaves by
// another goroutine.
func TestLeaveInHandler(t *testing.T) {
	b := newBackend(t, 0)
	h := &leavingHandler{agreeingHandler: agreeingHandler{changed: make(chan struct{}, 1)},
		self: make(chan *Membership, 1), errs: map[string]error{}, left: make(chan error, 1)}
	p, _, err := b.join(t.Context(), 1, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.self <- p
	if err := <-h.left; err != nil {
		t.Fatal(err)
	}
	if len(h.errs) != 9 {
		t.Errorf("callbacks: %v", h.errs)
	}
	for what, err := range h.errs {
		if !errors.Is(err, ErrInHandler) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := p.Leave(t.Context()); err != nil {
		t.Errorf("leave what is left: %v", err)
	}
}

// TestNoGoroutineStartsBehindClose: a membership may be over before Join knows that it has begun.
func TestNoGoroutineStartsBehindClose(t *testing.T) {
	p := &Membership{stopListening: func() {}, timer: time.NewTimer(time.Hour), done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(t.Context())
	ended := make(chan struct{})
	p.start(func() {
		<-p.ctx.Done()
		close(ended)
	})
	p.close()
	select {
	case <-ended:
	default:
		t.Error("a goroutine was not waited for")
	}
	p.start(func() { t.Error("a goroutine starts behind the end") })
	p.goroutines.Wait()
}
