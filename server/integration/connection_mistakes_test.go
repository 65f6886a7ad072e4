package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// TestConnectionMistakes: a client that is given a wrong address, or the wrong side of TLS, is told
// so by its first attempt, and not when its time is over; beside an endpoint that is right a wrong
// one does no harm.
func TestConnectionMistakes(t *testing.T) {
	form.SkipUntil(t, form.Full, "it waits for handshakes that never come")
	t.Parallel()
	kit := newTLSKit(t)
	raft := port.ForTest(t)
	s := start(t, func(c *server.Config) {
		c.TLSListen, c.TLS, c.Admin, c.Raft, c.Memory, c.DataDir = "127.0.0.1:0", kit.files, "127.0.0.1:0", raft, false, t.TempDir()
	})
	ca, dir := certstest.New(t), t.TempDir()
	files := kit.files
	files.CA, files.Require = ca.Write(t, dir), true
	strict := start(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", files })
	secureRaft := port.ForTest(t)
	start(t, func(c *server.Config) {
		c.Raft, c.Memory, c.DataDir = secureRaft, false, t.TempDir()
		c.ClusterTLS = files // with an authority, as instances among themselves want
	})
	stranger := kit.client.Clone()
	cert, key := certstest.New(t).Issue(t, dir, "stranger")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	stranger.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	gateway := httptest.NewUnstartedServer(http.NotFoundHandler()) // that ends TLS, and hangs up on all else
	gateway.Config.ErrorLog = log.New(io.Discard, "", 0)
	gateway.StartTLS()
	t.Cleanup(gateway.Close)
	down := port.ForTest(t)
	other := &tls.Config{RootCAs: x509.NewCertPool()}
	misnamed := &tls.Config{RootCAs: kit.client.RootCAs, ServerName: "elsewhere.example"}
	for _, x := range []struct {
		name     string
		endpoint string
		tls      *tls.Config
		want     string
	}{
		{"wrong CA", s.TLSAddr(), other, "shows a certificate that no trusted authority has signed"},
		{"wrong name", s.TLSAddr(), misnamed, "shows a certificate for another name"},
		{"no client certificate", strict.TLSAddr(), kit.client, "does not take this client's side of TLS"},
		{"a stranger's certificate", strict.TLSAddr(), stranger, "does not take this client's side of TLS"},
		{"plain against TLS", s.TLSAddr(), nil, "this address wants TLS"},
		{"plain against a gateway's TLS", gateway.Listener.Addr().String(), nil, "speaks TLS; turn TLS on"},
		{"TLS against plain", s.Addr(), kit.client, "does not speak TLS"},
		{"operators' address", s.AdminAddr(), nil, "speaks HTTP: it is an address for operators"},
		{"operators' address over TLS", s.AdminAddr(), kit.client, "speaks HTTP: it is an address for operators"},
		{"raft address", raft, nil, "is an address for other instances (raft)"},
		{"raft address over TLS", raft, kit.client, "is an address for other instances (raft)"},
		{"raft address that wants TLS", secureRaft, nil, "is an address for other instances (raft)"},
		{"raft address that wants TLS, over TLS", secureRaft, kit.client, "does not take this client's side of TLS"},
	} {
		t.Run(x.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := client.Open(ctx, client.Config{Endpoints: []string{x.endpoint}, TLS: x.tls})
			if err == nil || !strings.Contains(err.Error(), x.want) || errors.Is(err, context.DeadlineExceeded) ||
				errors.Is(err, client.ErrUnreachable) {
				t.Errorf("it says %v; want %q", err, x.want)
			}
			if !strings.Contains(x.name, "address") { // which may be that of an instance elsewhere
				_, err := client.Open(ctx, client.Config{Endpoints: []string{down, x.endpoint}, TLS: x.tls})
				if err == nil || !strings.Contains(err.Error(), x.want) || errors.Is(err, client.ErrUnreachable) {
					t.Errorf("beside one that is down it says %v; want %q", err, x.want)
				}
			}
			good := s.Addr()
			if x.tls != nil {
				good = s.TLSAddr()
			}
			if x.tls != other && x.tls != misnamed {
				c, err := client.Open(ctx, client.Config{Endpoints: []string{x.endpoint, good}, TLS: x.tls})
				if err != nil {
					t.Fatalf("beside a good endpoint: %v", err)
				}
				_ = c.Close()
			}
		})
	}
}

// TestOtherCluster: a client that names a cluster by its id or name is refused by an instance of
// another one, before anything of it is served. The lines about it in the log are bounded.
func TestOtherCluster(t *testing.T) {
	form.SkipUntil(t, form.Full, "two clusters")
	t.Parallel()
	var lines atomic.Int32
	s := start(t, func(c *server.Config) {
		c.Cluster = "works"
		c.Logger = slog.New(logWatcher{text: "client means another cluster", call: func() { lines.Add(1) }})
	})
	open := func(cluster string) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		session, err := client.OpenSession(ctx, client.Config{Endpoints: []string{s.Addr()}, Cluster: cluster}, "/default")
		if err == nil {
			session.Client().CloseWithoutRelease()
		}
		return err
	}
	for _, good := range []string{"", "works", s.Meta.State().Cluster()} {
		if err := open(good); err != nil {
			t.Errorf("cluster %q: %v", good, err)
		}
	}
	const tries = 30
	for range tries {
		err := open("elsewhere")
		if !errors.Is(err, client.ErrOtherCluster) || !strings.Contains(err.Error(), `it is cluster "works" (`) ||
			!strings.Contains(err.Error(), `means "elsewhere"`) {
			t.Fatalf("another cluster: %v", err)
		}
	}
	if n := lines.Load(); n == 0 || n >= tries {
		t.Errorf("%d lines in the log about %d clients", n, tries)
	}
}

// TestOtherClusterUnnamed: a client that would have to authenticate is not told which cluster
// refuses it.
func TestOtherClusterUnnamed(t *testing.T) {
	t.Parallel()
	s := guarded(t, func(c *server.Config) { c.Cluster = "works" })
	_, err := client.Open(t.Context(), client.Config{Endpoints: []string{s.Addr()}, Cluster: "elsewhere"})
	if !errors.Is(err, client.ErrOtherCluster) || strings.Contains(err.Error(), "works") ||
		strings.Contains(err.Error(), s.Meta.State().Cluster()) {
		t.Errorf("%v", err)
	}
}
