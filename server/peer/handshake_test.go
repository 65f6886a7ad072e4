package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// runHandshake does a handshake over a pipe.
func runHandshake(dialer, acceptor identity, address string, p purpose) (peers [2]string, dialErr, acceptErr error) {
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer b.Close()
		var accept []byte
		peers[1], _, accept, acceptErr = acceptHandshake(b, acceptor)
		if acceptErr != nil {
			writeRejection(b, acceptErr)
			return
		}
		_, _ = b.Write(accept)
	}()
	peers[0], _, dialErr = dialHandshake(a, dialer, address, p, p != purposeCalls)
	_ = a.Close()
	<-done
	return peers, dialErr, acceptErr
}

func TestHandshake(t *testing.T) {
	right, wrong := keyOf([]byte("secret")), keyOf([]byte("Secret"))
	for _, c := range []struct {
		name             string
		dialer, acceptor identity
		address          string
		purpose          purpose
		dial, accept     error
	}{
		{"right", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "c"}, "b:1", purposeRaft, nil, nil},
		{"cluster not known to the dialer", identity{[][]byte{right}, "a:1", ""}, identity{[][]byte{right}, "b:1", "c"}, "b:1", purposeCalls, nil, nil},
		{"cluster not known to the acceptor", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", ""}, "b:1", purposeSnapshot, nil, nil},
		{"calls by another name", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "c"}, "localhost:1", purposeCalls, nil, nil},
		{"wrong token", identity{[][]byte{wrong}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "c"}, "b:1", purposeCalls, ErrToken, ErrToken},
		{"no token at the acceptor", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{keyOf(nil)}, "b:1", "c"}, "b:1", purposeCalls, ErrToken, ErrToken},
		{"other cluster", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "d"}, "b:1", purposeCalls, ErrCluster, ErrCluster},
		{"raft by another name", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "c"}, "localhost:1", purposeRaft, ErrAddress, io.EOF},
		{"unknown purpose", identity{[][]byte{right}, "a:1", "c"}, identity{[][]byte{right}, "b:1", "c"}, "b:1", 9, ErrVersion, ErrVersion},
		{"no address", identity{[][]byte{right}, "", "c"}, identity{[][]byte{right}, "b:1", "c"}, "b:1", purposeCalls, errGarbage, errGarbage},
	} {
		t.Run(c.name, func(t *testing.T) {
			peers, dial, accept := runHandshake(c.dialer, c.acceptor, c.address, c.purpose)
			if !errors.Is(dial, c.dial) || !errors.Is(accept, c.accept) {
				t.Fatalf("dialer: %v, acceptor: %v", dial, accept)
			}
			if c.dial == nil && peers != [2]string{c.acceptor.address, c.dialer.address} {
				t.Errorf("peers are %q", peers)
			}
		})
	}
}

// recordingConn keeps what goes through.
type recordingConn struct {
	net.Conn
	written bytes.Buffer
}

func (s *recordingConn) Write(b []byte) (int, error) {
	s.written.Write(b)
	return s.Conn.Write(b)
}

// rawDial connects to a transport without a handshake.
func rawDial(t *testing.T, m *Transport) net.Conn {
	t.Helper()
	nc, err := TCP().Dial(testContext(t), m.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return nc
}

// refused reads until the transport closes the connection, and gives why it says it does.
func refused(t *testing.T, nc net.Conn) error {
	t.Helper()
	for {
		kind, _, body, err := readHandshake(nc)
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatal("the connection was not closed")
			}
			return nil
		}
		if kind == msgRefuse {
			return rejection(body)
		}
		if kind == msgAccept {
			t.Fatal("the connection was accepted")
		}
	}
}

// TestProofsCannotBeReplayed: what a dialer said once, said again by somebody else.
func TestProofsCannotBeReplayed(t *testing.T) {
	t.Parallel()
	m := startTransport(t, tcpConfig(t), nil)
	s := &recordingConn{Conn: rawDial(t, m)}
	me := identity{keys: [][]byte{keyOf([]byte("secret"))}, address: "a:1"}
	if _, _, err := dialHandshake(s, me, m.Address(), purposeCalls, false); err != nil {
		t.Fatal(err)
	}
	nc := rawDial(t, m)
	if _, err := nc.Write(s.written.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, nc); err != ErrToken {
		t.Errorf("a replayed proof is refused with %v", err)
	}
	if got := m.Stats(); got.RefusedToken.Load() != 1 || got.Inbound.Load() != 1 {
		t.Errorf("stats are %+v", got)
	}
}

// TestProofsCannotBeReflected: an acceptor without the token says the dialer's own proof back, and
// one that relays the challenge of the dialer's own transport.
func TestProofsCannotBeReflected(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		_, _, _, _ = readHandshake(b)
		_, _ = b.Write(handshakeMessage(msgChallenge, make([]byte, nonceSize), text("b:1")))
		_, _, body, _ := readHandshake(b)
		_, _ = b.Write(handshakeMessage(msgAccept, body))
	}()
	if _, _, err := dialHandshake(a, identity{[][]byte{keyOf([]byte("secret"))}, "a:1", "c"}, "b:1", purposeRaft, true); err != ErrToken {
		t.Errorf("a reflected proof: %v", err)
	}

	// The thief answers a dialer with what the dialer's own acceptor says: it was meant for another
	// address.
	m := startTransport(t, tcpConfig(t), nil)
	thief, dialer := net.Pipe()
	nc := rawDial(t, m)
	go func() {
		defer thief.Close()
		go func() { _, _ = io.Copy(nc, thief) }()
		_, _ = io.Copy(thief, nc)
	}()
	me := identity{[][]byte{keyOf([]byte("secret"))}, m.Address(), ""}
	if _, _, err := dialHandshake(dialer, me, "thief:1", purposeRaft, false); err != ErrAddress {
		t.Errorf("a relayed handshake: %v", err)
	}
	_ = dialer.Close()
}

func TestStrangersAreRejected(t *testing.T) {
	t.Parallel()
	hello := handshakeMessage(msgHello, []byte{3}, make([]byte, nonceSize), text("a:1"), text("b:1"))
	for name, b := range map[string][]byte{
		"http":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"ssh":               []byte("SSH-2.0-OpenSSH_9.7\r\n"),
		"zeros":             make([]byte, 4096),
		"long":              []byte(magic + "\x01\x01\xff\xff" + strings.Repeat("x", 1<<16)),
		"proof first":       handshakeMessage(msgProof, text("c"), make([]byte, macSize)),
		"hello with a tail": handshakeMessage(msgHello, []byte{3}, make([]byte, nonceSize), text("a:1"), text("b:1"), []byte{0}),
		"hello twice":       append(bytes.Clone(hello), hello...),
		"hello cut short":   hello[:len(hello)-1],
		"tls":               nil,
		"version":           []byte(magic + "\x02\x01\x00\x00"),
		"nothing":           {},
	} {
		t.Run(name, func(t *testing.T) {
			m := startTransport(t, tcpConfig(t), nil)
			nc := rawDial(t, m)
			want, garbage, version := errGarbage, uint64(1), uint64(0)
			switch name {
			case "tls":
				if err := tls.Client(nc, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(testContext(t)); err == nil {
					t.Error("a TLS handshake succeeds")
				}
			case "version":
				want, garbage, version = ErrVersion, 0, 1
			case "nothing":
				want, garbage = nil, 0
			case "hello cut short":
				want = nil
			}
			if b != nil {
				_, _ = nc.Write(b)
			}
			if name == "hello cut short" || name == "nothing" {
				_ = nc.(*net.TCPConn).CloseWrite()
			}
			if name != "tls" {
				if err := refused(t, nc); err != want {
					t.Errorf("refused with %v", err)
				}
			}
			await.True(t, "it to be gone", func() bool { return m.Stats().Accepted.Load() == 1 && m.Stats().Handshaking.Load() == 0 })
			if s := m.Stats(); s.RefusedGarbage.Load() != garbage || s.RefusedVersion.Load() != version || s.Inbound.Load() != 0 {
				t.Errorf("stats are %+v", s)
			}
		})
	}
}

func TestSlowHandshakes(t *testing.T) {
	t.Parallel()
	cfg := tcpConfig(t)
	cfg.Limits.HandshakeTimeout = 50 * time.Millisecond
	m := startTransport(t, cfg, nil)
	silent := rawDial(t, m)
	trickle := rawDial(t, m)
	hello := handshakeMessage(msgHello, []byte{3}, make([]byte, nonceSize), text("a:1"), text("b:1"))
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		for i := range hello {
			if _, err := trickle.Write(hello[i : i+1]); err != nil {
				return
			}
			if i < 10 {
				continue
			}
			// The next byte comes when the transport's patience is over at the earliest.
			if _, err := trickle.Read(make([]byte, 1)); err != nil {
				return
			}
		}
	}()
	for _, nc := range []net.Conn{silent} {
		if err := refused(t, nc); err != nil {
			t.Errorf("refused with %v", err)
		}
	}
	receive(t, stop, "the trickling connection to be closed")
	await.True(t, "both to be counted", func() bool { return m.Stats().RefusedSlow.Load() == 2 })
}

// TestFloodOfConnections: silent connections push out each other, and not those that know what to
// say.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	cfg := tcpConfig(t)
	cfg.Limits.Handshakes, cfg.Limits.HandshakesPerHost, cfg.Limits.HandshakeTimeout = 64, 8, patience
	b := startTransport(t, cfg, handlers(nil, nil))
	a := startTransport(t, tcpConfig(t), nil)
	for range 200 {
		rawDial(t, b)
	}
	await.True(t, "the flood to be over", func() bool { return b.Stats().Accepted.Load() == 200 && b.Stats().Handshaking.Load() <= 8 })
	if _, err := a.Call(testContext(t), b.Address(), echo, nil); err != nil {
		t.Errorf("an honest instance is not let in: %v", err)
	}
	if s := b.Stats(); s.RefusedBusy.Load() < 192 {
		t.Errorf("%d were pushed out", s.RefusedBusy.Load())
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	cfg := tcpConfig(t)
	cfg.Limits.Connections = 2
	b := startTransport(t, cfg, handlers(nil, nil))
	for i := range 3 {
		a := startTransport(t, tcpConfig(t), nil)
		_, err := a.Call(testContext(t), b.Address(), echo, nil)
		if i < 2 != (err == nil) {
			t.Errorf("instance %d: %v", i, err)
		}
	}
}

// TestNoToken: a single instance lets nobody in but itself.
func TestNoToken(t *testing.T) {
	t.Parallel()
	ca, cb := tcpConfig(t), tcpConfig(t)
	ca.Tokens, cb.Tokens = nil, nil
	a, b := startTransport(t, ca, handlers(nil, nil)), startTransport(t, cb, nil)
	c, err := a.dial(testContext(t), a.Address(), purposeRaft)
	if err != nil {
		t.Fatalf("an instance does not reach itself: %v", err)
	}
	c.closeDialed()
	_, err = b.Call(testContext(t), a.Address(), echo, nil)
	if !errors.Is(err, ErrToken) || protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("another instance: %v", err)
	}
}

// TestTokensAreRotated: while each of two instances goes from one token to the other in three steps,
// they reach each other, whichever of them is a step ahead. The old token is refused at the end.
func TestTokensAreRotated(t *testing.T) {
	t.Parallel()
	before, after := []byte("the old secret"), []byte("the new secret")
	steps := [][][]byte{{before}, {before, after}, {after, before}, {after}}
	ca, cb := tcpConfig(t), tcpConfig(t)
	ca.Tokens, cb.Tokens = steps[0], steps[0]
	a, b := startTransport(t, ca, handlers(nil, nil)), startTransport(t, cb, handlers(nil, nil))
	reach := func(from, to *Transport) error {
		c, err := from.dial(testContext(t), to.Address(), purposeRaft)
		if err == nil {
			c.closeDialed()
		}
		return err
	}
	both := func() {
		t.Helper()
		if err := errors.Join(reach(a, b), reach(b, a)); err != nil {
			t.Fatal(err)
		}
	}
	both()
	for _, tokens := range steps[1:] {
		a.SetTokens(tokens)
		both()
		b.SetTokens(tokens)
		both()
	}
	a.SetTokens(steps[0])
	if err := reach(a, b); !errors.Is(err, ErrToken) {
		t.Errorf("with the old token: %v", err)
	}
}

// TestPenaltyGrows: failures of a host cost it more and more, up to a bound, and are kept of a
// bounded number of hosts.
func TestPenaltyGrows(t *testing.T) {
	var w pendingConns
	w.init(1, 1)
	last := time.Duration(0)
	for i := range 20 {
		p, _ := w.penalty("x")
		if p < last || p > penaltyMax || i > 10 && p != penaltyMax {
			t.Fatalf("failure %d costs %v after %v", i, p, last)
		}
		last = p
	}
	for i := range 10 * maxFailedHosts {
		w.penalty(string(rune(i)))
	}
	if len(w.failures) > maxFailedHosts {
		t.Errorf("failures of %d hosts are kept", len(w.failures))
	}
}

// TestRejectionsAreLoggedLessAndLess: a host that goes on to be rejected, such as one whose cluster
// had an instance at this address, is logged ever less often.
func TestRejectionsAreLoggedLessAndLess(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	var lines atomic.Int32
	cfg := memoryConfig(n, "a:1")
	cfg.Logger = slog.New(countHandler{quietLog.Handler(), &lines})
	cfg.Cluster = func() string { return "ours" }
	a := startTransport(t, cfg, nil)
	other := memoryConfig(n, "b:1")
	other.Cluster = func() string { return "theirs" }
	b := startTransport(t, other, nil)
	const tries = 12
	var all sync.WaitGroup
	for range tries {
		all.Go(func() {
			if _, err := b.dial(testContext(t), "a:1", purposeRaft); !errors.Is(err, ErrCluster) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := lines.Load(); got != 4 || a.Stats().RefusedCluster.Load() != tries { // the first, second, fourth and eighth
		t.Errorf("%d lines about %d connections", got, a.Stats().RefusedCluster.Load())
	}
}

// countHandler counts warnings.
type countHandler struct {
	slog.Handler
	n *atomic.Int32
}

func (h countHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h countHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		h.n.Add(1)
	}
	return nil
}
