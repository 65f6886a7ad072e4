package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// lossyHandler breaks all connections to the server within a callback, the first time that one runs
// in a phase: whatever is confirmed next is sent on a link that is gone.
type lossyHandler struct {
	*agreeingHandler
	srv   *servertest.Server
	phase string
	once  sync.Once
}

func (h *lossyHandler) lose(phase string) {
	if phase == h.phase {
		h.once.Do(h.srv.DropConnections)
	}
}

func (h *lossyHandler) Prepare(r *Round) error {
	h.lose("prepare")
	return h.agreeingHandler.Prepare(r)
}

func (h *lossyHandler) Coordinate(r *Round) error {
	h.lose("coordinate")
	return h.agreeingHandler.Coordinate(r)
}

func (h *lossyHandler) Process(q *Request) error {
	h.lose("process")
	return h.agreeingHandler.Process(q)
}

func (h *lossyHandler) Complete(r *Round) {
	h.lose("complete")
	h.agreeingHandler.Complete(r)
}

// TestServerLosesConfirmations: the link breaks where something is about to be confirmed, at the
// coordinator or at another member, and answers are held up over a whole round. Nothing hangs, and
// each change has one complete round.
func TestServerLosesConfirmations(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{"prepare", "coordinate", "process", "complete"} {
		for _, who := range []int{0, 1} {
			if phase == "coordinate" && who == 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s at %d", phase, who), func(t *testing.T) {
				t.Parallel()
				srv := servertest.Start(t, servertest.RealTime(), servertest.Shards(2))
				var handlers []*agreeingHandler
				var members []*Membership
				for i := range 2 {
					h := newAgreeing(0)
					var x Handler = h
					if i == who {
						x = &lossyHandler{agreeingHandler: h, srv: srv, phase: phase}
					}
					handlers = append(handlers, h)
					members = append(members, mustJoin(t, newSession(t, srv.Addr()), "queue", x,
						Options{RetryInterval: 2 * time.Millisecond}))
					for _, h := range handlers {
						h.agreed(t, i+1)
					}
				}
				for i, p := range members {
					mustLeave(t, p)
					handlers[i].check(t)
					if i == 0 {
						handlers[1].agreed(t, 1)
					}
				}
				if n := handlers[1].completed; n != 2 {
					t.Errorf("%d rounds were complete for 2 changes", n)
				}
			})
		}
	}
}

// TestServerIsSilent: what the server says is held up while members have been told to prepare; when
// it comes, with all that was sent again meanwhile, the round is complete once.
func TestServerIsSilent(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime(), servertest.Shards(2))
	first := &blockedHandler{agreeingHandler: newAgreeing(0), in: "prepare", there: make(chan uint64, 100), free: make(chan struct{})}
	p := mustJoin(t, newSession(t, srv.Addr()), "queue", first, Options{RetryInterval: time.Millisecond})
	wait(t, "prepare", first.there)
	srv.Pause()
	close(first.free) // what it confirms arrives, and the answer does not
	inPhase(t, srv, "coordinating")
	srv.Resume()
	first.agreed(t, 1)
	mustLeave(t, p)
	first.check(t)
	if first.completed != 1 {
		t.Errorf("completed %d times", first.completed)
	}
}

// TestServerBlockedHandler: a callback that does not return holds up its own process alone; its
// round's context ends when the round is superseded, and Cancel follows when it returns.
func TestServerBlockedHandler(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	s := newSession(t, srv.Addr())
	blocked := &unresponsiveHandler{agreeingHandler: newAgreeing(0), there: make(chan *Round, 10), free: make(chan struct{})}
	p := mustJoin(t, s, "blocked", blocked, Options{})
	r := wait(t, "the callback that blocks", blocked.there)
	for i := range 3 { // the same session, the same connection
		h := newAgreeing(0)
		q := mustJoin(t, s, fmt.Sprintf("other-%d", i), h, Options{Synchronous: true})
		mustLeave(t, q)
		h.check(t)
	}
	second := newAgreeing(0)
	q := mustJoin(t, newSession(t, srv.Addr()), "blocked", second, Options{})
	wait(t, "the end of the round's context", r.Context().Done())
	close(blocked.free)
	blocked.agreed(t, 2)
	second.agreed(t, 2)
	mustLeave(t, p)
	mustLeave(t, q)
	blocked.check(t)
	second.check(t)
}

// unresponsiveHandler blocks in Coordinate, whatever becomes of the round, until it is let go.
type unresponsiveHandler struct {
	*agreeingHandler
	there chan *Round
	free  chan struct{}
}

func (h *unresponsiveHandler) Coordinate(r *Round) error {
	h.there <- r
	<-h.free
	return h.agreeingHandler.Coordinate(r)
}

// TestServerMisuse: what a caller or a handler does wrong is refused with a sentence by a real
// server's member too, nothing hangs, and the session goes on.
func TestServerMisuse(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	s := newSession(t, srv.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if p, err := Join(ctx, s, "queue", nil, Options{}); p != nil || err == nil {
		t.Errorf("join without a handler: %v", err)
	}
	for _, name := range []string{"", "a--b", "a/b", "-a", "ä", strings.Repeat("x", 129)} {
		if p, err := Join(ctx, s, name, newAgreeing(0), Options{}); p != nil ||
			!errors.Is(err, client.ErrBadRequest) {
			t.Errorf("join of %q: %v", name, err)
		}
	}
	h := &misusingHandler{errs: map[string]error{}, failed: make(chan struct{})}
	p := mustJoin(t, s, "queue", h, Options{})
	if q, err := Join(ctx, s, "queue", newAgreeing(0), Options{}); q != nil || !errors.Is(err, ErrAlreadyMember) {
		t.Errorf("a second join of the session: %v", err)
	}
	keyed := mustJoin(t, s, "keyed", newAgreeing(0), Options{Key: "a", Synchronous: true})
	h.awaitLate(t)
	mustLeave(t, p) // cancels the round
	h.checkLate(t)
	if err := keyed.Err(); err != nil {
		t.Errorf("another process of the session is over by %v", err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	wait(t, "the end of the membership", keyed.Done())
	if !errors.Is(keyed.Err(), client.ErrSessionClosed) {
		t.Errorf("membership is over by %v", keyed.Err())
	}
	if p, err := Join(ctx, s, "queue", newAgreeing(0), Options{}); p != nil || !errors.Is(err, client.ErrSessionClosed) {
		t.Errorf("join on a closed session: %v", err)
	}
}

// TestServerRestoredMember: a program that restores the session of a member knows of no round. When
// it joins again, a complete one is resumed there, and another one gives way to a new one.
func TestServerRestoredMember(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	first, second := newAgreeing(0), newAgreeing(0)
	p := mustJoin(t, newSession(t, srv.Addr()), "queue", first, Options{})
	first.agreed(t, 1)
	s := newSession(t, srv.Addr())
	q := mustJoin(t, s, "queue", second, Options{})
	epoch, value := first.agreed(t, 2)
	second.agreed(t, 2)
	inPhase(t, srv, "completed")

	back := newAgreeing(0)
	saved := s.Save()
	s = restoreSession(t, srv.Addr(), saved)
	wait(t, "the end of the former membership", q.Done())
	q = mustJoin(t, s, "queue", back, Options{Synchronous: true})
	if e, v := back.agreed(t, 2); e != epoch || v != value {
		t.Errorf("it came back to %q of %d, left %q of %d", v, e, value, epoch)
	}
	inPhase(t, srv, "completed")

	// The coordinator is killed while it coordinates.
	mustLeave(t, p)
	if e, _ := back.agreed(t, 1); e <= epoch {
		t.Errorf("the round without the first has epoch %d, after %d", e, epoch)
	}
	inPhase(t, srv, "completed")
	mustLeave(t, q)
	back.check(t)
	hung := &blockedHandler{agreeingHandler: newAgreeing(0), in: "coordinate", there: make(chan uint64, 100), free: make(chan struct{})}
	h := mustJoin(t, s, "queue", hung, Options{})
	epoch = wait(t, "coordinate", hung.there)
	saved = s.Save()
	s = restoreSession(t, srv.Addr(), saved)
	wait(t, "the end of the membership that coordinated", h.Done())
	last := newAgreeing(0)
	q = mustJoin(t, s, "queue", last, Options{Synchronous: true})
	if e, _ := last.agreed(t, 1); e <= epoch {
		t.Errorf("the round of the restored session has epoch %d, after %d", e, epoch)
	}
	mustLeave(t, q)
	last.check(t)
}

// doubleReplyHandler replies to a message twice, and largely.
type doubleReplyHandler struct {
	*agreeingHandler
	second chan error
}

func (h *doubleReplyHandler) Process(q *Request) error {
	if err := h.agreeingHandler.Process(q); err != nil {
		return err
	}
	select {
	case h.second <- q.Reply(nil):
	default:
	}
	return nil
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestServerReportsSlowMembers: a member that has not prepared for long is in the server's log,
// once a round.
func TestServerReportsSlowMembers(t *testing.T) {
	t.Parallel()
	out := new(lines)
	srv := servertest.Start(t, servertest.Config(func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(out, nil)) }))
	h := &blockedHandler{agreeingHandler: newAgreeing(0), in: "prepare", there: make(chan uint64, 100), free: make(chan struct{})}
	s := newSession(t, srv.Addr())
	p := mustJoin(t, s, "queue", h, Options{})
	wait(t, "prepare", h.there)
	said := func(n int) bool {
		return out.count("members do not prepare") == n && out.count(fmt.Sprint("session=", s.ID())) == n
	}
	srv.Advance(9 * time.Second)
	if !said(0) {
		t.Error("it is said too early")
	}
	await.True(t, "the line of the log", func() bool { srv.Advance(time.Second); return said(1) })
	for range 10 {
		srv.Advance(2 * time.Second)
	}
	close(h.free)
	h.agreed(t, 1)
	if !said(1) {
		t.Error("it is said again")
	}
	mustLeave(t, p)
	h.check(t)
}

// inPhase waits until the server's only process is in a phase.
func inPhase(t *testing.T, srv *servertest.Server, phase string) {
	t.Helper()
	want := fmt.Sprintf("phase=%q} 1", phase)
	await.True(t, "the process to be "+phase, func() bool { return strings.Contains(metrics(t, srv), want) })
}

// metrics is the page that operators scrape.
func metrics(t *testing.T, srv *servertest.Server) string {
	t.Helper()
	r, err := http.Get("http://" + srv.AdminAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestServerKeys: a member with a key whose session ends, as by a crash, and that joins again in
// time, takes its place: it prepares and completes the present round by itself, and the others have
// no new one. Without a session for too long it leaves. A reply that is given twice is refused.
func TestServerKeys(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	t.Cleanup(func() {
		for line := range strings.Lines(metrics(t, srv)) {
			if t.Failed() && strings.Contains(line, "process") && !strings.HasPrefix(line, "#") {
				t.Log(line)
			}
		}
	})
	first, second := newAgreeing(0), &doubleReplyHandler{newAgreeing(0), make(chan error, 1)}
	p := mustJoin(t, newSession(t, srv.Addr()), "queue", first, Options{Return: time.Minute})
	first.agreed(t, 1)
	s := newSession(t, srv.Addr())
	q := mustJoin(t, s, "queue", second, Options{Key: "two"})
	epoch, value := first.agreed(t, 2)
	second.agreed(t, 2)
	if err := wait(t, "the second reply", second.second); !errors.Is(err, ErrReplied) {
		t.Errorf("a second reply: %v", err)
	}
	kill := func(s *client.Session, q *Membership) {
		t.Helper()
		if err := s.Close(t.Context()); err != nil { // no leave comes before it
			t.Fatal(err)
		}
		wait(t, "the end of the membership", q.Done())
	}
	inPhase(t, srv, "completed") // all have confirmed: a key keeps its place from then on
	kill(s, q)
	second.check(t)
	back := newAgreeing(0)
	s = newSession(t, srv.Addr())
	q = mustJoin(t, s, "queue", back, Options{Key: "two", Synchronous: true})
	if e, v := back.agreed(t, 2); e != epoch || v != value {
		t.Errorf("it came back to %q of %d, left %q of %d", v, e, value, epoch)
	}
	if e, _ := first.agreed(t, 2); e != epoch || first.completed != 2 {
		t.Errorf("the other is in round %d after %d", e, epoch)
	}
	inPhase(t, srv, "completed")
	kill(s, q)
	back.check(t)
	srv.Advance(2 * time.Minute)
	if e, _ := first.agreed(t, 1); e <= epoch {
		t.Errorf("the round without it has epoch %d, after %d", e, epoch)
	}
	mustLeave(t, p)
	first.check(t)
}
