package trust

import (
	"crypto/x509"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4/jwt"
)

// spiffeID is a SPIFFE ID, with its trust domain and its path.
var spiffeID = regexp.MustCompile(`^spiffe://([a-z0-9._-]{1,255})((?:/[A-Za-z0-9._-]+)*)$`)

// inDomain reports whether a text is a SPIFFE ID of a trust domain.
func inDomain(id, domain string) bool {
	m := spiffeID.FindStringSubmatch(id)
	return m != nil && m[1] == domain && len(id) <= 2048 &&
		!slices.ContainsFunc(strings.Split(m[2], "/"), func(part string) bool { return part == "." || part == ".." })
}

// CheckDomain reports whether a text can be a trust domain.
func CheckDomain(domain string) bool { return inDomain("spiffe://"+domain, domain) }

// Certificate says who a client certificate is of, which an authority of this instance has signed.
// It is the subject of its URI if that is in the domain of a trust; nil without an error: it is
// not. Of several trusts of the domain the first that takes it counts, as with tokens.
func (s *Set) Certificate(c *x509.Certificate) (*Subject, error) {
	if c == nil {
		return nil, nil
	}
	var refused error
	for i := range s.sources {
		o := &s.sources[i]
		at := slices.IndexFunc(c.URIs, func(u *url.URL) bool { return u.Scheme == "spiffe" && u.Host == o.SPIFFE })
		if o.SPIFFE == "" || at < 0 {
			continue
		}
		id := c.URIs[at].String()
		var bad *Error
		switch {
		case len(c.URIs) > 1:
			bad = refuse("the certificate has several URIs; an X.509-SVID has one")
		case c.IsCA || c.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
			bad = refuse("the certificate may sign others; an X.509-SVID of a workload may not")
		case !inDomain(id, o.SPIFFE):
			bad = refuse("the certificate's URI is no SPIFFE ID")
		default:
			expires := jwt.NewNumericDate(c.NotAfter)
			var x *Subject
			if x, bad = o.apply(&claims{jwt.Claims{Subject: id, Expiry: expires}, map[string]any{"sub": id}}); bad == nil {
				return x, nil
			}
		}
		bad.Check = "trust " + o.Name + ": " + bad.Check
		refused = bad
	}
	return nil, refused
}

// IssuerOf is the iss of a token that nobody has checked; empty: it has none.
func IssuerOf(token []byte) string {
	sig, err := parse(token)
	if err != nil {
		return ""
	}
	c, err := parseClaims(sig.UnsafePayloadWithoutVerification())
	if err != nil {
		return ""
	}
	return c.Issuer
}
