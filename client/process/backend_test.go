package process

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
	server "github.com/signalbox-dev/signalbox/shard/process"
	"github.com/signalbox-dev/signalbox/shard/process/relay"
)

// backend is one process of a server: its state machine and its relay, as the shard and its leader
// drive them, without the connections. One answer in so many is lost.
type backend struct {
	mu       sync.Mutex
	p        *server.Process
	r        *relay.Relay
	at       server.Now
	rnd      *rand.Rand
	lossy    int // 0: nothing is lost
	handlers map[uint64]driver.ProcessHandler
	joins    uint64
}

func newBackend(t *testing.T, lossy int) *backend {
	t.Helper()
	p, err := server.New(server.Now{}, 0, protocol.ProcessOptions{BackoffMin: 5, BackoffMax: 20})
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{p: p, r: relay.New(relay.Limits{}), rnd: rand.New(rand.NewPCG(1, 2)), lossy: lossy,
		handlers: map[uint64]driver.ProcessHandler{}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // log time goes on
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = b.apply(func(*server.Out) error { b.at.Log += 2; return nil })
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return b
}

// apply is one log entry, with what it tells.
func (b *backend) apply(f func(*server.Out) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applyLocked(f)
}

func (b *backend) applyLocked(f func(*server.Out) error) error {
	var out server.Out
	err := f(&out)
	b.p.Tick(b.at, &out)
	b.r.Round(b.p.Epoch(), relay.StageOf(b.p.Phase(), b.p.AllowsMessages()), b.p.RoundSessions(nil))
	b.deliver(&out)
	return err
}

func (b *backend) deliver(out *server.Out) {
	for _, e := range out.Events {
		m := &protocol.ProcessRound{
			Session: e.Session, Kind: protocol.ProcessRoundKind(e.Kind), Removal: protocol.ProcessRemoval(e.Removal),
			Epoch: e.Epoch, Topology: e.Topology,
			Coordinator: e.Coordinator, Attempt: e.Attempt, Token: e.Token, CompletedEpoch: e.CompletedEpoch,
			Result: e.Result, Text: e.Text,
		}
		for _, o := range e.Members {
			m.Members = append(m.Members, protocol.ProcessMember{Session: o.Session, Order: o.Order, Key: o.Key,
				Data: o.Data, Weight: o.Weight})
		}
		if handler := b.handlers[e.Session]; handler != nil {
			handler(m, nil)
		}
	}
}

func (b *backend) deliverMessages(out *relay.Out) {
	for _, d := range out.Deliveries {
		if handler := b.handlers[d.To]; handler != nil {
			handler(nil, &protocol.ProcessMessage{
				Session: d.To, Kind: protocol.ProcessMessageKind(d.Kind), From: d.From, Epoch: d.Epoch,
				Number: d.Number, Low: d.Low, Payload: bytes.Clone(d.Payload),
			})
		}
	}
}

// kill ends a session as a crash does: nothing of the member is heard any more.
func (b *backend) kill(session uint64) {
	b.mu.Lock()
	delete(b.handlers, session)
	b.mu.Unlock()
	_ = b.apply(func(out *server.Out) error { b.p.SessionEnded(b.at, session, out); return nil })
}

func (b *backend) tally() protocol.ProcessCounters {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.p.Counters()
}

// quiet reports whether the last round is complete at all of so many members, and gives its epoch.
func (b *backend) quiet(members int) (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.p.Epoch(), b.p.Phase() == protocol.PhaseCompleted && b.p.Len() == members
}

// fakeTransport is a session's way to the backend.
type fakeTransport struct {
	b       *backend
	session uint64
	over    chan struct{}
}

func (w *fakeTransport) Handle(handler driver.ProcessHandler) (func(), error) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	if w.b.handlers[w.session] != nil {
		return nil, ErrAlreadyMember
	}
	w.b.handlers[w.session] = handler
	return func() {
		w.b.mu.Lock()
		defer w.b.mu.Unlock()
		delete(w.b.handlers, w.session)
	}, nil
}

func (w *fakeTransport) Change(ctx context.Context, _ protocol.Kind, _ *protocol.Head, m, reply protocol.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.b.apply(func(out *server.Out) error {
		switch m := m.(type) {
		case *protocol.ProcessJoin:
			w.b.joins++
			_, err := w.b.p.Join(w.b.at, server.Join{Session: w.session, Key: m.Key, Data: m.Data, Weight: m.Weight}, out)
			return err
		case *protocol.ProcessLeave:
			completed, err := w.b.p.Leave(w.b.at, w.session, out)
			reply.(*protocol.ProcessLeaveReply).CompletedEpoch = completed
			return err
		case *protocol.ProcessComplete:
			return w.b.p.Complete(w.b.at, w.session, m.Epoch, m.Result, out)
		}
		return protocol.Errorf(protocol.StatusUnsupported, "not served")
	})
}

func (w *fakeTransport) Send(ctx context.Context, _ protocol.Kind, m, _ protocol.Message) error {
	b := w.b
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := protocol.Errorf(protocol.StatusUnavailable, "lost")
	if ctx.Err() != nil || b.lossy > 0 && b.rnd.IntN(b.lossy) == 0 {
		return lost
	}
	var out server.Out
	var messages relay.Out
	var err error
	switch m := m.(type) {
	case *protocol.ProcessConfirm:
		err = b.applyLocked(func(out *server.Out) error {
			if m.Step == protocol.StepPrepared {
				return b.p.Prepared(b.at, w.session, m.Epoch, out)
			}
			return b.p.Completed(b.at, w.session, m.Epoch, out)
		})
	case *protocol.ProcessFail:
		err = b.applyLocked(func(out *server.Out) error { return b.p.Fail(b.at, w.session, m.Epoch, m.Text, out) })
	case *protocol.ProcessSync:
		if !b.p.Resend(w.session, &out) {
			return protocol.Errorf(protocol.StatusNotFound, "session is no member")
		}
		b.deliver(&out)
		b.r.SessionAttached(w.session, &messages)
	case *protocol.ProcessRequest:
		err = b.r.Request(relay.Request{From: w.session, Epoch: m.Epoch, Number: m.Number, Low: m.Low, To: m.To,
			Payload: m.Payload}, &messages)
	case *protocol.ProcessReply:
		err = b.r.Reply(relay.Reply{From: w.session, To: m.To, Epoch: m.Epoch, Number: m.Number, Refused: m.Refused,
			Payload: m.Payload}, &messages)
	}
	b.deliverMessages(&messages)
	if b.lossy > 0 && b.rnd.IntN(b.lossy) == 0 {
		return lost
	}
	return err
}

func (w *fakeTransport) Follow(ctx context.Context, connected func()) {
	connected()
	<-ctx.Done()
}

// join joins a session of the backend.
func (b *backend) join(ctx context.Context, session uint64, h Handler, o Options) (*Membership, *fakeTransport, error) {
	w := &fakeTransport{b: b, session: session, over: make(chan struct{})}
	p, err := join(ctx, w, session, w.over, func() error { return client.ErrSessionExpired }, "queue", h, o)
	return p, w, err
}

func (b *backend) evict(t *testing.T, session uint64) {
	t.Helper()
	if err := b.apply(func(out *server.Out) error { return b.p.Evict(b.at, session, "test", out) }); err != nil {
		t.Fatal(err)
	}
}
