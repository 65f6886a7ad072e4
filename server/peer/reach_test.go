package peer

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// awaitUnreached sends to an address until what is known of it satisfies cond.
func awaitUnreached(t *testing.T, m *Transport, address string, cond func(Unreached) bool) {
	t.Helper()
	ctx := testContext(t)
	for !cond(m.Unreached(address)) {
		call, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, _ = m.Call(call, address, 1, nil)
		<-call.Done()
		cancel()
		if ctx.Err() != nil {
			t.Fatalf("%s: %+v", address, m.Unreached(address))
		}
	}
}

// TestUnreached: an instance that connects to this one, and is not reached at the address that it
// advertises, is known as that. So is an address at which another instance or cluster answers. A
// process that does not run is not: its host refuses the connection.
func TestUnreached(t *testing.T) {
	t.Parallel()
	cfg := tcpConfig(t)
	cfg.Limits = Limits{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}
	cfg.Cluster = func() string { return "ours" }
	answer := func(m *Transport) {
		m.HandleCall(1, func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
	}
	a := startTransport(t, cfg, answer)
	ctx := testContext(t)

	// A port that nobody listens at.
	closed := port.ForTest(t)
	awaitUnreached(t, a, closed, func(Unreached) bool { return a.Stats().DialsFailed.Load() > 0 })
	if u := a.Unreached(closed); u.Err != nil {
		t.Errorf("nobody runs there: %+v", u)
	}
	if err := a.Reach(ctx, closed); err == nil {
		t.Error("reached where nobody listens")
	}

	// The same port, as the one that a process advertises which runs elsewhere.
	wrong := tcpConfig(t)
	wrong.Listen, wrong.Advertise = wrong.Advertise, closed
	b := startTransport(t, wrong, answer)
	if _, err := b.Call(ctx, a.Address(), 1, nil); err != nil {
		t.Fatal(err)
	}
	awaitUnreached(t, a, closed, func(u Unreached) bool { return u.Err != nil && u.From == "127.0.0.1" })

	// An instance that is reached, by itself, and under the address of another one.
	good := tcpConfig(t)
	c := startTransport(t, good, answer)
	if err := a.Reach(ctx, strings.ToUpper(c.Address())); err != nil {
		t.Errorf("it is there: %v", err)
	}
	if err := a.Reach(ctx, a.Address()); !errors.Is(err, ErrAddress) {
		t.Errorf("its own address: %v", err)
	}
	through, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	go forward(through, c.Address())
	if err := a.Reach(ctx, through.Addr().String()); !errors.Is(err, ErrAddress) {
		t.Errorf("another instance answers: %v", err)
	}
	awaitUnreached(t, a, through.Addr().String(), func(u Unreached) bool { return errors.Is(u.Err, ErrAddress) })

	// An address that another cluster has now.
	other := tcpConfig(t)
	other.Cluster = func() string { return "theirs" }
	d := startTransport(t, other, answer)
	awaitUnreached(t, a, d.Address(), func(u Unreached) bool { return errors.Is(u.Err, ErrCluster) })
	awaitUnreached(t, a, c.Address(), func(u Unreached) bool { return u.Err == nil })
}

// forward connects what comes at a listener with an address, until the listener is closed.
func forward(l net.Listener, address string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", address)
		if err != nil {
			_ = in.Close()
			continue
		}
		pass := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_, _ = to.Close(), from.Close()
		}
		go pass(in, out)
		go pass(out, in)
	}
}
