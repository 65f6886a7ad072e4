package transport

import "testing"

// TestMapAddress: a client is told the address of its own kind, and the other address if there is none.
func TestMapAddress(t *testing.T) {
	for _, x := range []struct{ plain, tls, text, forPlain, forTLS string }{
		{"a:1", "", "a:1", "a:1", "a:1"},
		{"", "a:2", "tls://a:2", "a:2", "a:2"},
		{"a:1", "b:2", "a:1,tls://b:2", "a:1", "b:2"},
		{"", "", "", "", ""},
	} {
		text := JoinAddresses(x.plain, x.tls)
		if p, s := AddressFor(text, false), AddressFor(text, true); text != x.text || p != x.forPlain || s != x.forTLS {
			t.Errorf("%q and %q: %q, for plain clients %q, over TLS %q", x.plain, x.tls, text, p, s)
		}
	}
}
