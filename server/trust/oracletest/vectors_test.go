package oracletest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	issuer   = "https://ci.example"
	audience = "signalbox"
	domain   = "example.org"
	subject  = "spiffe://example.org/job"
)

type signer struct {
	id  string
	alg jose.SignatureAlgorithm
	key crypto.Signer
}

// vector is a token, and where another judge finds differently.
type vector struct {
	name  string
	token string
	// Why server/trust is stricter than go-oidc, or than go-spiffe; or, with a ! before it, they
	// than it.
	oidc, spiffe string
}

// world is three judges with the same keys.
type world struct {
	t       *testing.T
	now     time.Time
	signers []signer
	ours    *trust.Set
	oidc    *oidc.IDTokenVerifier
	bundle  *jwtbundle.Bundle
	vectors []vector
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, now: time.Now().Truncate(time.Second)}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	w.signers = []signer{{"r", jose.RS256, r}, {"r", jose.PS256, r}, {"p", jose.ES256, p256}, {"q", jose.ES384, p384},
		{"e", jose.EdDSA, ed}}
	var set jose.JSONWebKeySet
	w.bundle = jwtbundle.New(spiffeid.RequireTrustDomainFromString(domain))
	for _, s := range w.signers[1:] {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id})
		if err := w.bundle.AddJWTAuthority(s.id, s.key.Public()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, err := trust.ReadKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	w.ours = trust.NewSet([]meta.Trust{{Name: "ci", Issuer: issuer, Audience: audience, Keys: kept,
		Rules: []meta.TrustRule{{As: "x", If: []meta.TrustCondition{{Claim: "sub", Pattern: "*"}}}}}}, nil)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(text) }))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	w.oidc = oidc.NewVerifier(issuer, oidc.NewRemoteKeySet(context.Background(), server.URL), &oidc.Config{ClientID: audience,
		SupportedSigningAlgs: []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}, Now: func() time.Time { return w.now }})
	return w
}

func part(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign signs a header and claims as they are.
func (w *world) sign(s signer, header, claims string) string {
	w.t.Helper()
	input := part([]byte(header)) + "." + part([]byte(claims))
	return input + "." + part(w.signature(s, input))
}

func (w *world) signature(s signer, input string) (b []byte) {
	w.t.Helper()
	var err error
	switch key := s.key.(type) {
	case *rsa.PrivateKey:
		sum := sha256.Sum256([]byte(input))
		if s.alg == jose.PS256 {
			b, err = rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
		} else {
			b, err = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		}
	case *ecdsa.PrivateKey:
		hash, size := crypto.SHA256, 32
		if s.alg == jose.ES384 {
			hash, size = crypto.SHA384, 48
		}
		h := hash.New()
		h.Write([]byte(input))
		r, v, bad := ecdsa.Sign(rand.Reader, key, h.Sum(nil))
		if err = bad; err == nil {
			b = append(r.FillBytes(make([]byte, size)), v.FillBytes(make([]byte, size))...)
		}
	case ed25519.PrivateKey:
		b = ed25519.Sign(key, []byte(input))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func header(s signer) string { return fmt.Sprintf(`{"alg":%q,"kid":%q}`, s.alg, s.id) }

// claims are good ones, with changes; a value of nil takes a claim away.
func (w *world) claims(change map[string]any) string {
	all := map[string]any{"iss": issuer, "aud": audience, "sub": subject, "exp": w.now.Unix() + 600}
	maps.Copy(all, change)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	b, err := json.Marshal(all)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

func (w *world) add(name, token, oidc, spiffe string) {
	w.vectors = append(w.vectors, vector{name, token, oidc, spiffe})
}

const svidAlgs = "!JWT-SVIDs have no EdDSA"

// algorithms are each key, and each way of signing wrongly with it.
func (w *world) algorithms() {
	for _, s := range w.signers {
		edDSA := ""
		if s.alg == jose.EdDSA {
			edDSA = svidAlgs
		}
		good := w.sign(s, header(s), w.claims(nil))
		parts := strings.Split(good, ".")
		name := string(s.alg) + " "
		w.add(name+"good", good, "", edDSA)
		w.add(name+"with typ", w.sign(s, strings.Replace(header(s), "{", `{"typ":"JWT",`, 1), w.claims(nil)), "", edDSA)
		w.add(name+"no signature", parts[0]+"."+parts[1]+".", "", "")
		w.add(name+"cut signature", good[:len(good)-4], "", "")
		w.add(name+"other claims", parts[0]+"."+part([]byte(w.claims(map[string]any{"sub": subject + "s"})))+"."+parts[2], "", "")
		w.add(name+"crit", w.sign(s, strings.Replace(header(s), "{", `{"crit":["x"],"x":1,`, 1), w.claims(nil)), "", "")
		w.add(name+"kid unknown", w.sign(s, strings.Replace(header(s), `"kid":"`, `"kid":"x`, 1), w.claims(nil)), "", "")
		w.add(name+"kid of another key", w.sign(s, fmt.Sprintf(`{"alg":%q,"kid":"z"}`, s.alg), w.claims(nil)), "", "")
		none := "several keys need a kid"
		w.add(name+"no kid", w.sign(s, fmt.Sprintf(`{"alg":%q}`, s.alg), w.claims(nil)), none, "")
		for _, alg := range []string{"none", "None", "", "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384",
			"PS512", "ES256", "ES384", "ES512", "EdDSA", "ES256K"} {
			if alg != string(s.alg) {
				w.add(name+"called "+alg, w.sign(s, fmt.Sprintf(`{"alg":%q,"kid":%q}`, alg, s.id), w.claims(nil)), "", "")
			}
		}
		public, err := json.Marshal(jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id})
		if err != nil {
			w.t.Fatal(err)
		}
		input := part([]byte(fmt.Sprintf(`{"alg":"HS256","kid":%q}`, s.id))) + "." + parts[1]
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(input))
		w.add(name+"HS256 with the public key", input+"."+part(mac.Sum(nil)), "", "")
		for _, other := range w.signers {
			if other.id != s.id {
				w.add(name+"by the key of "+string(other.alg), w.sign(signer{s.id, other.alg, other.key}, header(s), w.claims(nil)), "", "")
			}
		}
	}
}

// others are wrong in claims and shape.
func (w *world) others() {
	s, now := w.signers[2], w.now.Unix()
	claim := func(name string, change map[string]any, oidc, spiffe string) {
		w.add(name, w.sign(s, header(s), w.claims(change)), oidc, spiffe)
	}
	raw := func(name, claims, oidc, spiffe string) { w.add(name, w.sign(s, header(s), claims), oidc, spiffe) }
	const oidcMore = "go-oidc looks at less"
	for name, iss := range map[string]any{"slash": issuer + "/", "prefix": issuer[:len(issuer)-1], "upper": strings.ToUpper(issuer),
		"missing": nil, "empty": "", "http": "http://ci.example", "of another": "https://other.example"} {
		claim("iss "+name, map[string]any{"iss": iss}, "", "")
	}
	claim("iss a list", map[string]any{"iss": []string{issuer}}, "", "")
	for name, aud := range map[string]any{"a prefix": "signal", "longer": "signalbox2", "missing": nil, "empty": "", "a list without": []string{"a", "b"},
		"an empty list": []string{}, "a number": 7, "upper": "SIGNALBOX", "with a space": "signalbox "} {
		claim("aud "+name, map[string]any{"aud": aud}, "", "")
	}
	claim("aud a list with", map[string]any{"aud": []string{"a", audience}}, "", "")
	claim("aud a list of one", map[string]any{"aud": []string{audience}}, "", "")
	for name, exp := range map[string]any{"missing": nil, "text": "soon", "an hour ago": now - 3600, "two minutes ago": now - 120, "zero": 0,
		"negative": -1, "a list": []int{1}} {
		claim("exp "+name, map[string]any{"exp": exp}, "", "")
	}
	claim("exp a second ago", map[string]any{"exp": now - 1}, "", "go-spiffe has a minute of leeway")
	claim("exp now", map[string]any{"exp": now}, "exp is the first second that is too late", "go-spiffe has a minute of leeway")
	claim("exp a fraction", map[string]any{"exp": float64(now) + 600.5}, "", "")
	claim("exp in an hour", map[string]any{"exp": now + 3600}, "", "")
	claim("exp in a day", map[string]any{"exp": now + 24*3600}, "", "")
	claim("exp in a day and a minute", map[string]any{"exp": now + 24*3600 + 60}, "a day at most", "a day at most")
	claim("exp as text", map[string]any{"exp": fmt.Sprint(now + 600)}, "a number is no text", "")
	claim("exp huge", map[string]any{"exp": 1e30}, "", "")
	claim("exp in an age", map[string]any{"exp": int64(1) << 61}, "a day at most", "a day at most")
	claim("exp hugely negative", map[string]any{"exp": -1e30}, "", "")
	claim("nbf huge", map[string]any{"nbf": 1e18}, "", "")
	claim("iat huge", map[string]any{"iat": 1e18}, oidcMore, "")
	claim("nbf past", map[string]any{"nbf": now - 60}, "", "")
	claim("nbf in 20 s", map[string]any{"nbf": now + 20}, "", "")
	claim("nbf in 50 s", map[string]any{"nbf": now + 50}, "30 s of leeway", "30 s of leeway")
	claim("nbf in ten minutes", map[string]any{"nbf": now + 600}, "", "")
	claim("nbf text", map[string]any{"nbf": "x"}, "", "")
	claim("iat past", map[string]any{"iat": now - 60}, "", "")
	claim("iat in 20 s", map[string]any{"iat": now + 20}, "", "")
	claim("iat in ten minutes", map[string]any{"iat": now + 600}, oidcMore, "")
	claim("iat text", map[string]any{"iat": "x"}, "", "")
	claim("sub missing", map[string]any{"sub": nil}, oidcMore, "")
	claim("sub empty", map[string]any{"sub": ""}, oidcMore, "")
	claim("sub a number", map[string]any{"sub": 7}, "", "")
	claim("sub a list", map[string]any{"sub": []string{subject}}, "", "")
	claim("more claims", map[string]any{"a": map[string]any{"b": []int{1}}, "c": nil}, "", "")
	twice := func(name, more string) {
		raw(name, strings.Replace(w.claims(nil), "{", "{"+more+",", 1), "a claim comes twice", "")
	}
	twice("aud twice", `"aud":"x"`)
	twice("exp twice", `"exp":1`)
	twice("iss twice", `"iss":"x"`)
	twice("sub twice", `"sub":"x"`)
	twice("a member of an object twice", `"a":{"b":1,"b":2}`)
	claim("names in another case", map[string]any{"aud": nil, "AUD": audience}, "names have one case", "")
	raw("claims and more", w.claims(nil)+"{}", "", "")
	raw("claims a list", "[]", "", "")
	raw("claims a text", `"x"`, "", "")
	raw("claims empty", "", "", "")
	raw("claims no JSON", "x", "", "")
	raw("claims null", "null", "", "")
	// Keys that a header brings or names count for nothing.
	with := func(more string) string { return strings.Replace(header(s), "{", "{"+more, 1) }
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	brought, err := json.Marshal(jose.JSONWebKey{Key: stranger.Public(), KeyID: "e"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.add("jwk of a stranger", w.sign(signer{"e", jose.EdDSA, stranger}, `{"alg":"EdDSA","kid":"e","jwk":`+string(brought)+`}`, w.claims(nil)), "", "")
	w.add("jku and x5u", w.sign(s, with(`"jku":"https://evil.example","x5u":"https://evil.example",`), w.claims(nil)), "", "")
	w.add("b64 false", w.sign(s, with(`"b64":false,`), w.claims(nil)), "", "")
	w.add("kid a number", w.sign(s, `{"alg":"ES256","kid":7}`, w.claims(nil)), "", "")
	w.add("kid null", w.sign(s, `{"alg":"ES256","kid":null}`, w.claims(nil)), "several keys need a kid", "")
	good := w.sign(s, header(s), w.claims(nil))
	parts := strings.Split(good, ".")
	for name, token := range map[string]string{
		"empty": "", "a word": "x", "dots": "..", "two parts": parts[0] + "." + parts[1], "four parts": good + ".x", "five parts": good + ".x.y",
		"padding": good + "=", "a space before": " " + good, "header a list": part([]byte("[]")) + "." + parts[1] + "." + parts[2],
		"header a text": part([]byte(`"x"`)) + "." + parts[1] + "." + parts[2], "header no JSON": part([]byte("x")) + "." + parts[1] + "." + parts[2],
		"header empty": "." + parts[1] + "." + parts[2], "claims not base64": parts[0] + ".!!." + parts[2], "signature not base64": parts[0] + "." + parts[1] + ".!!",
		"JSON form": `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"alg twice": part([]byte(`{"alg":"none","alg":"ES256","kid":"p"}`)) + "." + parts[1] + "." + parts[2],
	} {
		oidc := map[string]string{"JSON form": "three parts", "a space before": "no spaces"}[name]
		w.add(name, token, oidc, "")
	}
	ofSize := func(n int) string {
		for more := range 3 {
			for size := n * 3 / 4; ; size-- {
				b := w.sign(s, with(`"x":"`+strings.Repeat("a", more)+`",`), w.claims(map[string]any{"x": strings.Repeat("a", size)}))
				if len(b) == n {
					return b
				} else if len(b) < n {
					break
				}
			}
		}
		w.t.Fatalf("no token has %d bytes", n)
		return ""
	}
	w.add("8 KiB", ofSize(8<<10), "", "")
	w.add("8 KiB and one more", ofSize(8<<10+1), "8 KiB at most", "8 KiB at most")
}

// TestVectors: where the three do not agree, the table says who is stricter and why, and nothing
// else.
func TestVectors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.algorithms()
	w.others()
	if len(w.vectors) < 200 {
		t.Errorf("there are %d vectors", len(w.vectors))
	}
	spiffe := trust.NewSet(slices.Collect(func(yield func(meta.Trust) bool) {
		kept, _, _ := trust.ReadKeys(w.keys())
		yield(meta.Trust{Name: "spire", SPIFFE: domain, Audience: audience, Keys: kept,
			Rules: []meta.TrustRule{{As: "x", If: []meta.TrustCondition{{Claim: "sub", Pattern: "*"}}}}})
	}), nil)
	passed := 0
	for _, v := range w.vectors {
		_, ours := w.ours.Check([]byte(v.token), w.now)
		_, theirs := w.oidc.Verify(t.Context(), v.token)
		compare(t, v.name+", go-oidc", ours, theirs, v.oidc)
		_, ours = spiffe.Check([]byte(v.token), w.now)
		_, theirs = jwtsvid.ParseAndValidate(v.token, w.bundle, []string{audience})
		compare(t, v.name+", go-spiffe", ours, theirs, v.spiffe)
		if ours == nil {
			passed++
		}
	}
	t.Logf("%d vectors, of which %d pass", len(w.vectors), passed)
}

func compare(t *testing.T, name string, ours, theirs error, why string) {
	t.Helper()
	stricter, ok := strings.CutPrefix(why, "!")
	switch {
	case why == "" && (ours == nil) != (theirs == nil):
		t.Errorf("%s: ours says %v, theirs %v", name, ours, theirs)
	case ok && (ours != nil || theirs == nil):
		t.Errorf("%s: theirs is not stricter (%s): ours says %v, theirs %v", name, stricter, ours, theirs)
	case why != "" && !ok && (ours == nil || theirs != nil):
		t.Errorf("%s: ours is not stricter (%s): ours says %v, theirs %v", name, why, ours, theirs)
	}
}

// keys is the set of all judges.
func (w *world) keys() []byte {
	var set jose.JSONWebKeySet
	for _, s := range w.signers[1:] {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id})
	}
	b, err := json.Marshal(set)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}
