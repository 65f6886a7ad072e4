package peer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// patience bounds waits of tests that must end; nothing is timed by it.
const patience = 60 * time.Second

var quietLog = slog.New(slog.NewTextHandler(io.Discard, nil))

// opened is a network whose listener is open already, so that its port is known before the
// transport is made. It stays open when a transport closes it, so that nobody else takes the port
// before the next transport.
type opened struct {
	Network
	l *net.TCPListener
}

func (o opened) Listen(string) (net.Listener, error) {
	return openListener{o.l}, o.l.SetDeadline(time.Time{})
}

type openListener struct{ *net.TCPListener }

func (k openListener) Close() error { return k.SetDeadline(time.Unix(1, 0)) }

// tcpConfig is a config with a port of its own on the loopback.
func tcpConfig(t testing.TB) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return Config{Advertise: l.Addr().String(), Network: opened{TCP(), l.(*net.TCPListener)}, Tokens: [][]byte{[]byte("secret")}, Logger: quietLog}
}

// memoryConfig is a config with an address in a memory network.
func memoryConfig(n *memorynet.Network, address string) Config {
	return Config{Advertise: address, Network: n.Endpoint(address), Tokens: [][]byte{[]byte("secret")}, Logger: quietLog}
}

// startTransport starts a transport that set has given its handlers.
func startTransport(t testing.TB, cfg Config, set func(*Transport)) *Transport {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(m)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive takes one from a channel.
func receive[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatalf("waited for %v: %s", patience, what)
	}
	return v
}

// networks runs a test with the TCP of the machine and in memory. pair makes two configs.
func networks(t *testing.T, f func(t *testing.T, a, b Config)) {
	t.Run("tcp", func(t *testing.T) { f(t, tcpConfig(t), tcpConfig(t)) })
	t.Run("memory", func(t *testing.T) {
		n := memorynet.New()
		f(t, memoryConfig(n, "a:1"), memoryConfig(n, "b:1"))
	})
}

// messageRecord gathers what comes.
type messageRecord struct {
	mu   sync.Mutex
	from []string
	got  []string
}

func (r *messageRecord) add(from string, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from, r.got = append(r.from, from), append(r.got, string(payload))
}

func (r *messageRecord) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}
