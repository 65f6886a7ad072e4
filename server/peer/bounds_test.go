package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// TestQueuesAreBounded: nobody who sends waits, whatever becomes of the peer; what does not fit is
// lost and counted; other peers notice nothing.
func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	cfg := memoryConfig(n, "a:1")
	cfg.Limits.QueueMessages, cfg.Limits.QueueBytes, cfg.Limits.Peers = 100, 50_000, 2
	cfg.Limits.DialTimeout = patience
	a := startTransport(t, cfg, nil)
	var r messageRecord
	startTransport(t, memoryConfig(n, "b:1"), handlers(nil, nil))
	startTransport(t, memoryConfig(n, "c:1"), func(m *Transport) { handlers(nil, nil)(m); m.HandleMessage(1, r.add) })
	n.Cut("a:1", "b:1")

	for range 1000 {
		a.Send("b:1", 1, nil)
	}
	if s := a.Stats(); s.MessagesDropped.Load() != 900 {
		t.Errorf("%d small messages were lost, want 900", s.MessagesDropped.Load())
	}
	if _, err := a.Call(testContext(t), "b:1", echo, nil); protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Errorf("a call behind them: %v", err)
	}
	if got, err := a.Call(testContext(t), "c:1", echo, []byte("x")); err != nil || string(got) != "a:1 x" {
		t.Errorf("a call to another peer: %q, %v", got, err)
	}
	if _, err := a.Call(testContext(t), "d:1", echo, nil); protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Errorf("a peer too many: %v", err)
	}
	before := a.Stats().MessagesDropped.Load()
	a.Send("c:1", 1, make([]byte, 9<<20))
	if s := a.Stats(); s.MessagesDropped.Load() != before+1 {
		t.Error("a message that is too large is not counted")
	}
	n.Heal("a:1", "b:1")
	await.True(t, "the queue to empty", func() bool { _, err := a.Call(testContext(t), "b:1", echo, nil); return err == nil })

	n.Cut("a:1", "c:1") // bytes: those of one message or two fill the queue once the connection takes no more
	before = a.Stats().MessagesDropped.Load()
	await.True(t, "a queue full of bytes", func() bool {
		a.Send("c:1", 1, make([]byte, 30_000))
		return a.Stats().MessagesDropped.Load() > before
	})
}

// TestReceivedMessagesAreBounded: a handler that does not return costs the messages behind it, and
// no memory.
func TestReceivedMessagesAreBounded(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	cfg := memoryConfig(n, "b:1")
	cfg.Limits.QueueMessages = 10
	hold, held := make(chan struct{}), make(chan struct{}, 100)
	b := startTransport(t, cfg, func(m *Transport) {
		handlers(nil, nil)(m)
		m.HandleMessage(1, func(string, []byte) { held <- struct{}{}; <-hold })
	})
	a := startTransport(t, memoryConfig(n, "a:1"), nil)
	a.Send("b:1", 1, nil)
	receive(t, held, "the first message")
	for range 50 {
		a.Send("b:1", 1, nil)
	}
	if _, err := a.Call(testContext(t), "b:1", echo, nil); err != nil { // calls go on
		t.Error(err)
	}
	if s := b.Stats(); s.MessagesDropped.Load() != 40 {
		t.Errorf("%d messages were lost, want 40", s.MessagesDropped.Load())
	}
	close(hold)
	await.True(t, "the others to be handled", func() bool { return b.Stats().MessagesReceived.Load() == 11 })
}

func TestHandlersAreBounded(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		ca.Limits.Handlers, cb.Limits.Handlers = 2, 2
		blocked, ended := make(chan struct{}, 10), make(chan struct{}, 10)
		a := startTransport(t, ca, handlers(blocked, ended))
		b := startTransport(t, cb, handlers(blocked, ended))
		for _, to := range []*Transport{a, b} {
			ctx, cancel := context.WithCancel(testContext(t))
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { _, _ = a.Call(ctx, to.Address(), block, nil) })
				receive(t, blocked, "a handler to begin")
			}
			if _, err := a.Call(testContext(t), to.Address(), echo, nil); protocol.StatusOf(err) != protocol.StatusOverloaded {
				t.Errorf("a third call: %v", err)
			}
			cancel()
			wg.Wait()
			receive(t, ended, "a handler to end")
			receive(t, ended, "a handler to end")
			await.True(t, "room for a call", func() bool { _, err := a.Call(testContext(t), to.Address(), echo, nil); return err == nil })
		}
	})
}

// TestHalfOpenConnections: both ends notice that the other is gone without a word, with or without
// something to say.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	ca, cb := memoryConfig(n, "a:1"), memoryConfig(n, "b:1")
	ca.Limits.KeepAlive, cb.Limits.KeepAlive = 100*time.Millisecond, 100*time.Millisecond
	a := startTransport(t, ca, nil)
	b := startTransport(t, cb, handlers(make(chan struct{}, 1), make(chan struct{}, 1)))
	// On a busy machine the silence may come before the cut, and be heard by one end alone: then
	// once more.
	await.True(t, "both ends to notice", func() bool {
		n.HealAll()
		await.True(t, "a call", func() bool { _, err := a.Call(testContext(t), "b:1", echo, nil); return err == nil })
		n.CutBoth("a:1", "b:1")
		await.True(t, "both ends to give up", func() bool { return a.Stats().Outbound.Load() == 0 && b.Stats().Inbound.Load() == 0 })
		return a.Stats().Silent.Load() > 0 && b.Stats().Silent.Load() > 0
	})
	n.HealAll()
	done, before := make(chan error, 1), b.Stats().CallsReceived.Load()
	call := func() { // its handler waits for the end of the call, which only the lost connection brings
		_, err := a.Call(testContext(t), "b:1", block, nil)
		done <- err
	}
	go call()
	await.True(t, "the call to be there", func() bool {
		if b.Stats().CallsReceived.Load() > before {
			return true
		}
		select {
		case <-done: // silence ended its connection before it was there
			go call()
		default:
		}
		return false
	})
	n.Cut("b:1", "a:1") // the answers alone
	if err := receive(t, done, "the call to end"); err != ErrUndetermined {
		t.Errorf("a call over a half-open connection: %v", err)
	}
}

// TestSlowPeerIsDisconnected: a peer that takes nothing is left at the write's deadline, and nobody
// else waits for it.
func TestSlowPeerIsDisconnected(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	ca := memoryConfig(n, "a:1")
	ca.Limits.WriteTimeout = 100 * time.Millisecond
	a := startTransport(t, ca, nil)
	startTransport(t, memoryConfig(n, "c:1"), handlers(nil, nil))
	l, err := n.Endpoint("b:1").Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	met := make(chan net.Conn, 10)
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			_, _, accept, err := acceptHandshake(nc, identity{[][]byte{keyOf([]byte("secret"))}, "b:1", ""})
			if err == nil {
				_, _ = nc.Write(accept)
			}
			met <- nc
		}
	}()
	for i := range 100 {
		a.Send("b:1", 1, make([]byte, 64<<10))
		if i == 0 {
			defer receive(t, met, "the connection").Close()
		}
	}
	await.True(t, "a call to another peer", func() bool { _, err := a.Call(testContext(t), "c:1", echo, nil); return err == nil })
	await.True(t, "a second connection, after the first was given up", func() bool {
		a.Send("b:1", 1, make([]byte, 64<<10))
		select {
		case nc := <-met:
			_ = nc.Close()
			return true
		default:
			return false
		}
	})
}

// TestIdleConnectionsClose: an address that nothing is said to any more costs nothing.
func TestIdleConnectionsClose(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	ca := memoryConfig(n, "a:1")
	ca.Limits.IdleTimeout = 10 * time.Millisecond
	a := startTransport(t, ca, nil)
	b := startTransport(t, memoryConfig(n, "b:1"), handlers(nil, nil))
	for range 3 {
		if _, err := a.Call(testContext(t), "b:1", echo, nil); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the peer to go", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.senders) == 0 && len(a.conns) == 0 && b.Stats().Inbound.Load() == 0
		})
	}
}

// TestClusterThatBecomesKnown: who met while one did not know its cluster meets again when it does.
func TestClusterThatBecomesKnown(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	var mu sync.Mutex
	known := ""
	ca, cb := memoryConfig(n, "a:1"), memoryConfig(n, "b:1")
	ca.Limits.KeepAlive, cb.Limits.KeepAlive = 50*time.Millisecond, 50*time.Millisecond
	ca.Cluster = func() string { mu.Lock(); defer mu.Unlock(); return known }
	cb.Cluster = func() string { return "cluster b" }
	a, b := startTransport(t, ca, handlers(nil, nil)), startTransport(t, cb, handlers(nil, nil))
	for _, x := range [][2]*Transport{{a, b}, {b, a}} {
		await.True(t, "a call", func() bool { _, err := x[0].Call(testContext(t), x[1].Address(), echo, nil); return err == nil })
	}
	mu.Lock()
	known = "cluster a"
	mu.Unlock()
	await.True(t, "the connections to close", func() bool { return a.Stats().Inbound.Load() == 0 && b.Stats().Inbound.Load() == 0 })
	for _, x := range [][2]*Transport{{a, b}, {b, a}} {
		if _, err := x[0].Call(testContext(t), x[1].Address(), echo, nil); err == nil {
			t.Error("instances of two clusters talk")
		}
	}
	if a.Stats().RefusedCluster.Load() == 0 || b.Stats().RefusedCluster.Load() == 0 {
		t.Error("the refusals are not counted")
	}
}

// TestNoCallIsLostWhenTheClusterBecomesKnown: instances that met before one of them knew its
// cluster meet again, and no call that is under way is lost by it.
func TestNoCallIsLostWhenTheClusterBecomesKnown(t *testing.T) {
	t.Parallel()
	for range 20 {
		n := memorynet.New()
		var known atomic.Bool
		ca, cb := memoryConfig(n, "a:1"), memoryConfig(n, "b:1")
		ca.Limits.KeepAlive, cb.Limits.KeepAlive = 5*time.Millisecond, 5*time.Millisecond
		ca.Limits.BackoffMin, cb.Limits.BackoffMin = time.Microsecond, time.Microsecond
		ca.Limits.BackoffMax, cb.Limits.BackoffMax = time.Microsecond, time.Microsecond
		ca.Cluster = func() string {
			if known.Load() {
				return "the cluster"
			}
			return ""
		}
		cb.Cluster = func() string { return "the cluster" }
		a, b := startTransport(t, ca, handlers(nil, nil)), startTransport(t, cb, handlers(nil, nil))
		var callers sync.WaitGroup
		var lost atomic.Int64
		for _, x := range [][2]*Transport{{a, b}, {b, a}, {a, b}, {b, a}} {
			callers.Go(func() {
				for k := 0; k < 100 || x[0].Stats().Dials.Load() < 2; k++ {
					if k == 50 {
						known.Store(true)
					}
					if _, err := x[0].Call(testContext(t), x[1].Address(), echo, nil); err == ErrUndetermined {
						lost.Add(1)
					}
				}
			})
		}
		callers.Wait()
		// Keep-alives are so frequent here that a busy machine misses some.
		if silent := a.Stats().Silent.Load() + b.Stats().Silent.Load(); lost.Load() > 0 && silent == 0 {
			t.Errorf("%d calls were lost", lost.Load())
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	networks(t, func(t *testing.T, ca, cb Config) {
		blocked, ended := make(chan struct{}, 10), make(chan struct{}, 10)
		a, b := startTransport(t, ca, handlers(blocked, ended)), startTransport(t, cb, handlers(blocked, ended))
		errs := make(chan error, 2)
		for _, to := range []*Transport{a, b} {
			go func() {
				_, err := a.Call(testContext(t), to.Address(), block, nil)
				errs <- err
			}()
			receive(t, blocked, "the handler to begin")
		}
		if err := a.Start(); err == nil {
			t.Error("a transport starts twice")
		}
		_ = a.Close()
		for range 2 {
			if err := receive(t, errs, "a call to end"); err != ErrUndetermined {
				t.Errorf("a call of a transport that closes: %v", err)
			}
			receive(t, ended, "a handler to end")
		}
		a.Send(b.Address(), 1, nil)
		a.Send(a.Address(), 1, nil)
		for _, to := range []*Transport{a, b} {
			if _, err := a.Call(testContext(t), to.Address(), echo, nil); protocol.StatusOf(err) != protocol.StatusUnavailable {
				t.Errorf("a call of a closed transport: %v", err)
			}
		}
		if err := a.Start(); err == nil {
			t.Error("a closed transport starts")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "host", "host:", ":1", "host:1:2", fmt.Sprintf("%0300d:1", 0)} {
		if _, err := New(Config{Advertise: address}); err == nil {
			t.Errorf("address %q is taken", address)
		}
	}
	n := memorynet.New()
	startTransport(t, memoryConfig(n, "a:1"), nil)
	m, err := New(memoryConfig(n, "A:1 "))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Start(); err == nil {
		t.Error("two transports listen on one address")
	}
}

// TestSnapshotsArePaced: all snapshots together take places on one line of time.
func TestSnapshotsArePaced(t *testing.T) {
	r := newRate(1 << 20)
	done := make(chan struct{})
	for range 3 {
		if !r.wait(done, 1000) {
			t.Fatal("the line is free, and waits")
		}
	}
	if ahead := time.Until(r.next); ahead > 3*time.Second/1000 {
		t.Errorf("3,000 bytes take %v at 1 MiB/s", ahead)
	}
	r.wait(done, 100<<20)
	close(done)
	if r.wait(done, 1) {
		t.Error("the line is full, and a sender passes")
	}
}
