package integration

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestCertificateIdentity: who shows a certificate and no token is who the certificate says.
func TestCertificateIdentity(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certstest.New(t)
	files := certs.Files{CA: ca.Write(t, dir)}
	files.Cert, files.Key = ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	s := guarded(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", files })
	pair, err := tls.LoadX509KeyPair(ca.Issue(t, dir, "billing"))
	if err != nil {
		t.Fatal(err)
	}
	open := func(cfg client.Config) (string, error) {
		cfg.Endpoints = []string{s.TLSAddr()}
		c, err := client.Open(t.Context(), cfg)
		if err != nil {
			return "", err
		}
		defer c.Close()
		who, err := admin.New(c).WhoAmI(t.Context())
		if err != nil {
			return "", err
		}
		return who.Identity, nil
	}
	for _, x := range []struct {
		cfg  client.Config
		want string
	}{
		{client.Config{TLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}}, "cert:billing"},
		{client.Config{TLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}, Token: []byte(rootSecret)}, "admin"},
		{client.Config{TLS: &tls.Config{RootCAs: ca.Pool()}, Token: []byte(rootSecret)}, "admin"},
	} {
		if who, err := open(x.cfg); err != nil || who != x.want {
			t.Errorf("%q, %v; want %s", who, err, x.want)
		}
	}
	if _, err := open(client.Config{TLS: &tls.Config{RootCAs: ca.Pool()}}); !errors.Is(err, protocol.StatusUnauthenticated) {
		t.Errorf("without a certificate or a token: %v", err)
	}
}

// TestSVIDIdentity: a certificate with a SPIFFE ID of a trust's domain is the subject that it
// names, and not its common name. The connection ends with the trust.
func TestSVIDIdentity(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certstest.New(t)
	files := certs.Files{CA: ca.Write(t, dir)}
	files.Cert, files.Key = ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	s := guarded(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", files })
	root := adminClient(t, s, rootSecret)
	open := func(name, path string) (*client.Client, error) {
		pair, err := tls.LoadX509KeyPair(ca.Issue(t, dir, name, func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "example.org", Path: path}}
		}))
		if err != nil {
			t.Fatal(err)
		}
		return client.Open(t.Context(), client.Config{Endpoints: []string{s.TLSAddr()},
			TLS: &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{pair}}})
	}
	c, err := open("workload", "/billing/api")
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	if who, err := admin.New(c).WhoAmI(t.Context()); err != nil || who.Identity != "cert:workload" {
		t.Errorf("without a trust it is %+v, %v", who, err)
	}
	_, err = root.PutTrust(t.Context(), admin.Trust{Name: "ci", SPIFFE: "example.org", Audience: "signalbox",
		Rules: []admin.TrustRule{{As: "billing", If: []admin.TrustCondition{{Claim: "sub", Pattern: "spiffe://example.org/billing/*"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the connection to be of the subject", func() bool {
		who, err := admin.New(c).WhoAmI(t.Context())
		return err == nil && who.Identity == "billing"
	})
	who, err := admin.New(c).WhoAmI(t.Context())
	if err != nil || who.Identity != "billing" || who.Trust != "ci" || who.Subject != "spiffe://example.org/billing/api" {
		t.Errorf("%+v, %v", who, err)
	}
	grant(t, root, "cert:admin", "/", "admin")
	if other, err := open("admin", "/other"); !errors.Is(err, protocol.StatusUnauthenticated) {
		if err == nil {
			other.CloseWithoutRelease()
		}
		t.Errorf("a workload of no rule is let in by its common name: %v", err)
	}
	if err := root.DeleteTrust(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the next connection to be by the common name", func() bool {
		who, err := admin.New(c).WhoAmI(t.Context())
		return err == nil && who.Identity == "cert:workload"
	})
}

func TestCertIdentityIsNoTokens(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	for _, identity := range []string{"", "anonymous", "cert:billing", "a\nb", "\x1b[2J", strings.Repeat("x", 257)} {
		_, err := root.CreateToken(t.Context(), "", identity)
		if !errors.Is(err, protocol.StatusBadRequest) {
			t.Errorf("a token for %q: %v", identity, err)
		}
	}
	if meta.CertIdentity != "cert:" {
		t.Error("the prefix is a promise to who wrote rights for it")
	}
}
