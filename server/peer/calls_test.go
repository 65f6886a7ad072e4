package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

const (
	echo   = 1
	fail   = 2
	block  = 3
	panics = 4
	when   = 5
)

// handlers gives a transport the methods above.
func handlers(blocked, ended chan struct{}) func(*Transport) {
	return func(m *Transport) {
		m.HandleCall(echo, func(_ context.Context, from string, body []byte) ([]byte, error) {
			return append([]byte(from+" "), body...), nil
		})
		m.HandleCall(fail, func(_ context.Context, _ string, body []byte) ([]byte, error) {
			switch string(body) {
			case "status":
				return nil, fmt.Errorf("wrapped: %w", protocol.Errorf(protocol.StatusNotFound, "no such thing; make it"))
			case "bare":
				return nil, protocol.StatusAborted
			}
			return nil, errors.New("no status")
		})
		m.HandleCall(block, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			blocked <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return nil, ctx.Err()
		})
		m.HandleCall(panics, func(context.Context, string, []byte) ([]byte, error) { panic("boo") })
		m.HandleCall(when, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			d, ok := ctx.Deadline()
			return fmt.Appendf(nil, "%v %v", ok, time.Until(d) > 0 && time.Until(d) <= time.Hour), nil
		})
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		a := startTransport(t, ca, handlers(nil, nil))
		b := startTransport(t, cb, handlers(nil, nil))
		for _, to := range []*Transport{b, a} { // a itself is called without a connection
			got, err := a.Call(testContext(t), to.Address(), echo, []byte("hello"))
			if err != nil || string(got) != a.Address()+" hello" {
				t.Fatalf("echo is %q, %v", got, err)
			}
			for body, want := range map[string]protocol.Error{
				"status": {Status: protocol.StatusNotFound, Message: "no such thing; make it"},
				"bare":   {Status: protocol.StatusAborted},
				"text":   {Status: protocol.StatusInternal, Message: "no status"},
			} {
				_, err := a.Call(testContext(t), to.Address(), fail, []byte(body))
				var e *protocol.Error
				if !errors.As(err, &e) || *e != want {
					t.Errorf("%s: error is %v, want %v", body, err, &want)
				}
			}
			if _, err := a.Call(testContext(t), to.Address(), panics, nil); protocol.StatusOf(err) != protocol.StatusInternal {
				t.Errorf("a handler that panics: %v", err)
			}
			if _, err := a.Call(testContext(t), to.Address(), 99, nil); protocol.StatusOf(err) != protocol.StatusUnsupported {
				t.Errorf("an unknown method: %v", err)
			}
			ctx, cancel := context.WithTimeout(testContext(t), time.Hour)
			got, err = a.Call(ctx, to.Address(), when, nil)
			cancel()
			if err != nil || string(got) != "true true" {
				t.Errorf("deadline is %q, %v", got, err)
			}
		}
		if s := b.Stats(); s.Panics.Load() != 1 || s.CallsReceived.Load() < 6 || s.Inbound.Load() != 1 {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestConcurrentCallsAndLargeBodies(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		a, b := startTransport(t, ca, nil), startTransport(t, cb, handlers(nil, nil))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				body := bytes.Repeat([]byte{byte(i)}, i*i*20)
				if i == 99 {
					body = bytes.Repeat([]byte{byte(i)}, 3<<20)
				}
				got, err := a.Call(testContext(t), b.Address(), echo, body)
				if err != nil || !bytes.HasSuffix(got, body) || len(got) != len(a.Address())+1+len(body) {
					t.Errorf("call %d: %d bytes, %v", i, len(got), err)
				}
			})
		}
		wg.Wait()
		if n := b.Stats().Inbound.Load(); n != 1 {
			t.Errorf("%d connections for the calls of one peer", n)
		}
		if _, err := a.Call(testContext(t), b.Address(), echo, make([]byte, 9<<20)); protocol.StatusOf(err) != protocol.StatusBadRequest {
			t.Errorf("a body that is too large: %v", err)
		}
		if _, err := a.Call(testContext(t), b.Address(), echo, make([]byte, 8<<20)); protocol.StatusOf(err) != protocol.StatusInternal {
			t.Errorf("an answer that is too large: %v", err)
		}
	})
}

func TestCallIsCancelledAtTheOtherEnd(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		blocked, ended := make(chan struct{}, 1), make(chan struct{}, 1)
		a, b := startTransport(t, ca, nil), startTransport(t, cb, handlers(blocked, ended))
		ctx, cancel := context.WithCancel(testContext(t))
		done := make(chan error, 1)
		go func() {
			_, err := a.Call(ctx, b.Address(), block, nil)
			done <- err
		}()
		receive(t, blocked, "the handler to begin")
		cancel()
		if err := receive(t, done, "the call to end"); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled call ends with %v", err)
		}
		receive(t, ended, "the handler to end")

		ctx, cancel = context.WithTimeout(testContext(t), 50*time.Millisecond) // travels along
		defer cancel()
		if _, err := a.Call(ctx, b.Address(), block, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call past its deadline ends with %v", err)
		}
	})
}

func TestLostConnectionLeavesCallsUndetermined(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	blocked, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	a := startTransport(t, memoryConfig(n, "a:1"), nil)
	startTransport(t, memoryConfig(n, "b:1"), handlers(blocked, ended))
	done := make(chan error, 1)
	go func() {
		_, err := a.Call(testContext(t), "b:1", block, nil)
		done <- err
	}()
	receive(t, blocked, "the handler to begin")
	n.Reset("a:1", "b:1")
	if err := receive(t, done, "the call to end"); err != ErrUndetermined {
		t.Errorf("a call whose connection broke ends with %v", err)
	}
	receive(t, ended, "the handler to end")
	if got, err := a.Call(testContext(t), "b:1", echo, []byte("again")); err != nil || string(got) != "a:1 again" {
		t.Errorf("after the loss: %q, %v", got, err)
	}
}

func TestUnreachablePeer(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	a := startTransport(t, memoryConfig(n, "a:1"), nil)
	for range 3 {
		_, err := a.Call(testContext(t), "b:1", echo, nil)
		if protocol.StatusOf(err) != protocol.StatusUnavailable || !protocol.Retryable(err) {
			t.Fatalf("a peer that is not there: %v", err)
		}
	}
	a.Send("b:1", 1, nil)
	await.True(t, "the message to be dropped", func() bool { return a.Stats().MessagesDropped.Load() == 1 })
	startTransport(t, memoryConfig(n, "b:1"), handlers(nil, nil))
	if _, err := a.Call(testContext(t), "b:1", echo, nil); err != nil {
		t.Errorf("once it is there: %v", err)
	}
	if _, err := a.Call(testContext(t), "nonsense", echo, nil); protocol.StatusOf(err) != protocol.StatusBadRequest {
		t.Errorf("an address that is none: %v", err)
	}
}

func TestMessagesComeInOrder(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		const kind, count = 7, 3000
		var r messageRecord
		set := func(m *Transport) { m.HandleMessage(kind, r.add) }
		a := startTransport(t, ca, set)
		b := startTransport(t, cb, set)
		for _, to := range []*Transport{a, b} {
			r.from, r.got = nil, nil
			for i := range count {
				a.Send(to.Address(), kind, fmt.Append(nil, i))
			}
			await.True(t, "all messages", func() bool { return r.len() == count })
			for i, got := range r.got {
				if got != fmt.Sprint(i) || r.from[i] != a.Address() {
					t.Fatalf("message %d is %s from %s", i, got, r.from[i])
				}
			}
		}
		b.Send(a.Address(), 8, nil)
		await.True(t, "a message without a handler to be dropped", func() bool { return a.Stats().MessagesDropped.Load() == 1 })
	})
}
