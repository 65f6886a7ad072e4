package trust

import (
	"crypto/x509"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// domain is a trust of SPIFFE: workloads of billing in example.org are the identity billing.
func domain(t *testing.T) *Set {
	t.Helper()
	keys, _, err := ReadKeys(keySet(t, "es256"))
	if err != nil {
		t.Fatal(err)
	}
	return NewSet([]meta.Trust{{Name: "spire", SPIFFE: "example.org", Audience: "signalbox", Keys: keys, Revision: 1,
		Rules: []meta.TrustRule{{As: "billing", If: []meta.TrustCondition{{Claim: "sub", Pattern: "spiffe://example.org/billing/*"}}}}}}, nil)
}

// TestJWTSVID: sub is a SPIFFE ID of the trust's domain; iss does not matter unless the trust has
// one.
func TestJWTSVID(t *testing.T) {
	s := domain(t)
	token := func(iss, sub string) []byte {
		text := strings.Replace(body(`"x":1`), `"job"`, `"`+sub+`"`, 1)
		return sign(t, "es256", strings.Replace(text, `"iss":"https://ci",`, iss, 1), nil)
	}
	const good = "spiffe://example.org/billing/api"
	for _, iss := range []string{"", `"iss":"https://spire",`} {
		x, err := s.Check(token(iss, good), now)
		if err != nil || x.Identity != "billing" || x.Subject != good || !s.Holds(x) {
			t.Errorf("with %q: %+v, %v", iss, x, err)
		}
	}
	for sub, want := range map[string]string{
		"spiffe://example.org/other":      "no rule matches",
		"spiffe://example.com/billing/a":  "no trust has the token's issuer",
		"spiffe://an.example.org/billing": "no trust has the token's issuer",
		"spiffe://example.org.evil/a":     "no trust has the token's issuer",
		"spiffe://example.org/billing/":   "no trust has the token's issuer",
		"spiffe://example.org/billing/..": "no trust has the token's issuer",
		"spiffe://example.org/billing//a": "no trust has the token's issuer",
		"spiffe://Example.org/billing/a":  "no trust has the token's issuer",
		"spiffe://example.org:1/billing":  "no trust has the token's issuer",
		"spiffe://u@example.org/billing":  "no trust has the token's issuer",
		"spiffe://example.org/billing?a":  "no trust has the token's issuer",
		"https://example.org/billing/api": "no trust has the token's issuer",
	} {
		if x, err := s.Check(token("", sub), now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", sub, x, err, want)
		}
	}
	s.sources[0].Issuer = "https://spire"
	if _, err := s.Check(token(`"iss":"https://spire",`, good), now); err != nil {
		t.Errorf("with the trust's issuer: %v", err)
	}
	if _, err := s.Check(token(`"iss":"https://other",`, good), now); err == nil {
		t.Error("another issuer passes")
	}
	if _, err := s.Check(token(`"iss":"https://spire",`, "spiffe://example.com/billing/a"), now); err == nil ||
		!strings.Contains(err.Error(), "no SPIFFE ID of the trust's domain") {
		t.Errorf("another domain of the trust's issuer: %v", err)
	}
}

// TestX509SVID: a certificate with one URI of the domain is its subject, and no other name of it
// counts.
func TestX509SVID(t *testing.T) {
	s := domain(t)
	cert := func(change func(*x509.Certificate), uris ...string) *x509.Certificate {
		c := &x509.Certificate{NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
		c.Subject.CommonName = "root"
		for _, text := range uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		if change != nil {
			change(c)
		}
		return c
	}
	const good = "spiffe://example.org/billing/api"
	x, err := s.Certificate(cert(nil, good))
	if err != nil || x == nil || x.Identity != "billing" || x.Subject != good || !x.Expires.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", x, err)
	}
	if x != nil && (!s.Holds(x) || NewSet(nil, nil).Holds(x)) {
		t.Error("a certificate does not hold as long as its trust")
	}
	for name, c := range map[string]*x509.Certificate{
		"none": nil, "no URI": cert(nil), "another domain": cert(nil, "spiffe://example.com/billing/api"), "another kind": cert(nil, "https://example.org/a"),
	} {
		if x, err := s.Certificate(c); x != nil || err != nil {
			t.Errorf("%s: %+v, %v; it is nothing of SPIFFE here", name, x, err)
		}
	}
	other := *s.sources[0].Trust
	other.Name, other.Rules = "a", []meta.TrustRule{{As: "other", If: []meta.TrustCondition{{Claim: "sub", Pattern: "*/other"}}}}
	for uri, want := range map[string]string{good: "billing", "spiffe://example.org/other": "other"} {
		x, err := NewSet([]meta.Trust{other, *s.sources[0].Trust}, nil).Certificate(cert(nil, uri))
		if err != nil || x == nil || x.Identity != want {
			t.Errorf("by two trusts of the domain %s is %+v, %v", uri, x, err)
		}
	}
	for want, c := range map[string]*x509.Certificate{
		"several URIs":    cert(nil, good, "https://example.org"),
		"may sign others": cert(func(c *x509.Certificate) { c.IsCA = true }, good),
		"sign others":     cert(func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, good),
		"no SPIFFE ID":    cert(nil, "spiffe://example.org/billing/"),
		"no rule matches": cert(nil, "spiffe://example.org/other"),
	} {
		if x, err := s.Certificate(c); x != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v, want %q", x, err, want)
		}
	}
}
