package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestConfigErrorsEndOpen: an answer that no try will change ends the first attempt at once, unless
// an endpoint may yet do better. A client that has been connected goes on.
func TestConfigErrorsEndOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		up := map[string]bool{}
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			switch {
			case address == "wrong":
				here, there := net.Pipe()
				go func() {
					_, _ = there.Read(make([]byte, 1024))
					_, _ = io.WriteString(there, "HTTP/1.1 400 Bad Request\r\n")
				}()
				t.Cleanup(func() { _ = there.Close() })
				return here, nil
			case up[address]:
				return f.dial(ctx, address)
			}
			return nil, errors.New("connection refused")
		}
		open := func(endpoints ...string) (*Client, error, time.Duration) {
			began := time.Now()
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			defer cancel()
			c, err := Open(ctx, Config{Endpoints: endpoints, Dial: dial, clock: bubbleClock{}})
			return c, err, time.Since(began)
		}
		if _, err, took := open("wrong"); !errors.Is(err, ErrHandshake) || errors.Is(err, ErrUnreachable) || took > 0 {
			t.Errorf("a wrong port: %v after %s", err, took)
		}
		for _, list := range [][]string{{"wrong", "1"}, {"1", "wrong"}} {
			up["1"] = false
			if _, err, took := open(list...); !errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, ErrHandshake) || took != 10*time.Second {
				t.Errorf("one is wrong, the other down: %v after %s", err, took)
			}
			up["1"] = true
			c, err, took := open(list...)
			if err != nil || took > 0 {
				t.Fatalf("one is wrong, the other good: %v after %s", err, took)
			}
			c.CloseWithoutRelease()
			f.drop()
		}
	})
}

// TestDiagnose: what an address answers names the mistake; what may pass by itself is none.
func TestDiagnose(t *testing.T) {
	for _, x := range []struct {
		secure bool
		err    error
		said   string
		want   string // "": none
	}{
		{false, io.EOF, "", ""},
		{false, io.ErrUnexpectedEOF, "", ""},
		{false, errNotProtocol, "HTTP/1.1 400 Bad Request", "a:1 speaks HTTP: it is an address for operators, not for clients"},
		{false, io.EOF, "sbxm\x01", "a:1 is an address for other instances (raft), not for clients"},
		{false, errNotProtocol, "\x15\x03\x01\x00\x02\x02\x0a", "a:1 speaks TLS; turn TLS on, or name the plain address if there is one"},
		{false, errNotProtocol, "SSH-2.0-x", "a:1 does not speak signalbox's protocol: " + errNotProtocol.Error()},
		{true, tls.RecordHeaderError{RecordHeader: [5]byte{'H', 'T', 'T', 'P', '/'}}, "", "a:1 speaks HTTP: it is an address for operators, not for clients"},
		{true, tls.RecordHeaderError{RecordHeader: [5]byte{0, 0, 0, 20, 9}}, "", "a:1 does not speak TLS; connect without it, or name the address for TLS"},
		{true, io.EOF, "", ""},
		{true, protocol.Errorf(protocol.StatusUnauthenticated, "no"), "", ""},
	} {
		err := diagnoseHandshake("a:1", x.secure, x.err, []byte(x.said))
		if x.want == "" {
			if errors.Is(err, ErrHandshake) || !errors.Is(err, x.err) {
				t.Errorf("%v is taken for a mistake: %v", x.err, err)
			}
		} else if !errors.Is(err, ErrHandshake) || err.Error() != x.want {
			t.Errorf("%v, %q: %v", x.err, x.said, err)
		}
	}
}
