package driver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/wire"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestDiagnose: what an address answers names the mistake; what may pass by itself is none.
func TestDiagnose(t *testing.T) {
	record := func(b ...byte) error { return tls.RecordHeaderError{RecordHeader: [5]byte(b)} }
	for _, x := range []struct {
		secure   bool
		err      error
		received string
		want     string // "": no mistake
	}{
		{false, io.EOF, "", ""},
		{false, io.ErrUnexpectedEOF, "", ""},
		{false, wire.ErrNotProtocol, "HTTP/1.1 400 Bad Request", "a:1 speaks HTTP: it is an address for operators or for locks by HTTP, not for clients"},
		{false, io.EOF, "sbxm\x01", "a:1 is an address for other instances (raft), not for clients"},
		{false, wire.ErrNotProtocol, "\x15\x03\x01\x00\x02\x02\x0a",
			"a:1 speaks TLS; turn TLS on, or name the plain address if there is one"},
		{false, wire.ErrNotProtocol, "SSH-2.0-x", "a:1 does not speak signalbox's protocol: " + wire.ErrNotProtocol.Error()},
		{true, record('H', 'T', 'T', 'P', '/'), "", "a:1 speaks HTTP: it is an address for operators or for locks by HTTP, not for clients"},
		{true, record('s', 'b', 'x', 'm', 1), "", "a:1 is an address for other instances (raft), not for clients"},
		{true, record(0, 0, 0, 20, 9), "", "a:1 does not speak TLS; connect without it, or name the address for TLS"},
		{true, io.EOF, "", ""},
		{true, wire.ErrNotProtocol, "HTTP/1.1 400 Bad Request", "a:1 speaks HTTP: it is an address for operators or for locks by HTTP, not for clients"},
		{false, protocol.Errorf(protocol.StatusBadRequest, "this address wants TLS"), "", "a:1 refuses this client: this address wants TLS"},
		{true, protocol.Errorf(protocol.StatusUnauthenticated, "no"), "", ""},
	} {
		err := diagnose("a:1", x.secure, x.err, []byte(x.received))
		switch {
		case x.want == "":
			if errors.Is(err, core.ErrHandshake) || !errors.Is(err, x.err) {
				t.Errorf("%v is taken for a mistake: %v", x.err, err)
			}
		case !errors.Is(err, core.ErrHandshake) || err.Error() != x.want:
			t.Errorf("%v, %q: %v", x.err, x.received, err)
		}
	}
}

// TestWorst: a client that was never connected gives up if all that its addresses answer is a
// mistake, or if one is about TLS. With another one beside an address that is only down it goes on,
// and its error names the mistake.
func TestWorst(t *testing.T) {
	d := New(Config{Endpoints: []string{"a", "b"}})
	defer d.Close()
	down, wrong := errors.New("connection refused"), fmt.Errorf("%w: it speaks HTTP", core.ErrHandshake)
	token := &protocol.Error{Status: protocol.StatusUnauthenticated, Message: "unknown token"}
	forGood := core.Permanent(errors.New("another version"))
	untrusted := diagnose("b", true, x509.UnknownAuthorityError{}, nil)
	for name, x := range map[string]struct {
		failed   []error
		is       error
		givesUp  bool
		tryAgain bool
	}{
		"wrong":                      {[]error{wrong, wrong}, core.ErrHandshake, true, false},
		"a token":                    {[]error{token}, protocol.StatusUnauthenticated, true, false},
		"down":                       {[]error{down, down}, down, false, true},
		"wrong, beside one down":     {[]error{wrong, down}, core.ErrHandshake, false, true},
		"down, beside a wrong one":   {[]error{down, wrong}, core.ErrHandshake, false, true},
		"untrusted":                  {[]error{untrusted}, core.ErrHandshake, true, false},
		"untrusted, beside one down": {[]error{down, untrusted}, core.ErrHandshake, true, false},
		"for good, beside one down":  {[]error{down, forGood}, forGood, true, false},
	} {
		d.mu.Lock()
		err := d.worst(t.Context(), x.failed)
		d.mu.Unlock()
		if !errors.Is(err, x.is) || core.IsPermanent(err) != x.givesUp || errors.Is(err, core.ErrUnreachable) != x.tryAgain {
			t.Errorf("%s: %v; for good: %t", name, err, core.IsPermanent(err))
		}
	}
}

// TestWorstOfTheConnected: of a client that was connected, an address that is down or has changed
// hands does not hide that an instance refuses it.
func TestWorstOfTheConnected(t *testing.T) {
	down, wrong := errors.New("connection refused"), fmt.Errorf("%w: it speaks HTTP", core.ErrHandshake)
	token := &protocol.Error{Status: protocol.StatusUnauthenticated, Message: "token has expired"}
	untrusted := diagnose("b", true, x509.UnknownAuthorityError{}, nil)
	for name, x := range map[string]struct {
		failed []error
		is     error
	}{
		"a token":                    {[]error{token}, token},
		"a token, beside one down":   {[]error{token, down}, token},
		"a token, beside others":     {[]error{token, wrong, down}, token},
		"untrusted, beside one down": {[]error{down, untrusted}, untrusted},
		"untrusted, beside others":   {[]error{untrusted, down, wrong}, untrusted},
		"wrong, beside one down":     {[]error{down, wrong}, down},
		"wrong":                      {[]error{wrong}, wrong},
	} {
		if err := worstOf(x.failed, true, false); !errors.Is(err, x.is) || !errors.Is(err, core.ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
