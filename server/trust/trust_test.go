package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Unix(1_700_000_000, 0)

type signingKey struct {
	id        string
	algorithm jose.SignatureAlgorithm
	private   crypto.Signer
}

// signers has a key of each type, and one of RSA for its other algorithm.
var signers = sync.OnceValue(func() map[string]signingKey {
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p521, _ := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	stranger, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return map[string]signingKey{
		"rs256": {"r", jose.RS256, r}, "ps256": {"r", jose.PS256, r}, "rs512": {"r", jose.RS512, r},
		"es256": {"p", jose.ES256, p256}, "es384": {"q", jose.ES384, p384}, "es512": {"s", jose.ES512, p521},
		"eddsa": {"e", jose.EdDSA, ed}, "stranger": {"p", jose.ES256, stranger}, "unknown": {"u", jose.ES256, stranger},
	}
})

// keySet is the public half of some keys.
func keySet(t *testing.T, names ...string) []byte {
	t.Helper()
	var set jose.JSONWebKeySet
	for _, name := range names {
		k := signers()[name]
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id})
	}
	b, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sign makes a token. header members may replace those of the key.
func sign(t *testing.T, by, claims string, header map[jose.HeaderKey]any) []byte {
	t.Helper()
	k := signers()[by]
	opts := &jose.SignerOptions{ExtraHeaders: header}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: k.algorithm, Key: jose.JSONWebKey{Key: k.private, KeyID: k.id}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Sign([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	text, err := x.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

func trusts(t *testing.T) *Set {
	rule := func(as string, conditions ...string) meta.TrustRule {
		r := meta.TrustRule{As: as}
		for _, x := range conditions {
			claim, pattern, _ := strings.Cut(x, "=")
			r.If = append(r.If, meta.TrustCondition{Claim: claim, Pattern: pattern})
		}
		return r
	}
	kept := func(names ...string) []byte {
		b, _, err := ReadKeys(keySet(t, names...))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return NewSet([]meta.Trust{
		{Name: "ci", Issuer: "https://ci", Audience: "signalbox", Keys: kept("rs256", "es256", "es384", "eddsa"), Revision: 1,
			Rules: []meta.TrustRule{
				rule("ci-main", "repository=octo/*", "ref=refs/heads/main"),
				rule("ci-branches", "repository=octo/*"),
				rule("pods", "kubernetes.io.namespace=prod", "kubernetes.io.serviceaccount.name=api-*"),
				rule("staff", "groups=*admin*"), rule("seven", "level=7"), rule("sure", "ok=true"),
				rule("of {team.name}", "team.name=*"), rule("{made}", "made=*"),
			}},
		{Name: "other", Issuer: "https://other", Audience: "signalbox", Keys: kept("unknown"), Revision: 2,
			Rules: []meta.TrustRule{rule("other", "sub=*")}},
		{Name: "keyless", Issuer: "https://keyless", Audience: "signalbox", Revision: 3},
		{Name: "pinned", Issuer: "https://pinned", Audience: "signalbox", Revision: 4, // a key that names its algorithm
			Keys:  bytes.Replace(kept("rs256"), []byte(`"kty"`), []byte(`"alg":"PS256","kty"`), 1),
			Rules: []meta.TrustRule{rule("pinned", "sub=*")}},
	}, nil)
}

const main = `"repository":"octo/api","ref":"refs/heads/main"`

// body is the claims of a good token, less the last members.
func body(members string) string {
	return fmt.Sprintf(`{"iss":"https://ci","aud":"signalbox","sub":"job","exp":%d,%s}`, now.Unix()+300, members)
}

// TestTokensThatPass: each algorithm, and each form of a claim.
func TestTokensThatPass(t *testing.T) {
	s := trusts(t)
	for _, by := range []string{"rs256", "ps256", "es256", "es384", "eddsa"} {
		x, err := s.Check(sign(t, by, body(main), nil), now)
		if err != nil || x.Identity != "ci-main" || x.Rule != 1 || x.Subject != "job" || x.Expires.Unix() != now.Unix()+300 {
			t.Errorf("%s: %+v, %v", by, x, err)
		}
	}
	for members, identity := range map[string]string{
		`"repository":"octo/a/b","ref":"refs/heads/x"`:                           "ci-branches",
		`"kubernetes.io":{"namespace":"prod","serviceaccount":{"name":"api-1"}}`: "pods",
		`"groups":["users","the-admins"]`:                                        "staff", `"level":7`: "seven", `"ok":true`: "sure",
		`"team":{"name":"red"}`: "of red", `"made":"` + strings.Repeat("é", 200) + `"`: strings.Repeat("é", 127),
		main + fmt.Sprintf(`,"nbf":%d,"iat":%[1]d`, now.Unix()+30): "ci-main",
		`"made":"octo/admin"`: "octo/admin",
	} {
		if x, err := s.Check(sign(t, "es256", body(members), nil), now); err != nil || x.Identity != identity {
			t.Errorf("%s: %+v, %v, want %s", members, x, err, identity)
		}
	}
	for _, claims := range []string{
		strings.Replace(body(main), `"signalbox"`, `["x","signalbox"]`, 1),
		strings.Replace(body(main), fmt.Sprint(now.Unix()+300), fmt.Sprint(now.Unix()+24*3600), 1),
		strings.Replace(body(main), fmt.Sprint(now.Unix()+300), fmt.Sprint(now.Unix()+1), 1),
	} {
		if _, err := s.Check(sign(t, "es256", claims, nil), now); err != nil {
			t.Errorf("%s: %v", claims, err)
		}
	}
	pinned := strings.Replace(body(main), "https://ci", "https://pinned", 1)
	if x, err := s.Check(sign(t, "ps256", pinned, nil), now); err != nil || x.Identity != "pinned" {
		t.Errorf("by the algorithm that the key names: %+v, %v", x, err)
	}
	if _, err := s.Check(ofSize(t, maxToken), now); err != nil {
		t.Errorf("%d bytes: %v", maxToken, err)
	}
}

// ofSize is a good token of n bytes.
func ofSize(t *testing.T, n int) []byte {
	t.Helper()
	for header := range 3 {
		for size := n * 3 / 4; size > 0; size-- {
			b := sign(t, "es256", body(main+`,"x":"`+strings.Repeat("a", size)+`"`), map[jose.HeaderKey]any{"x": strings.Repeat("a", header)})
			if len(b) == n {
				return b
			} else if len(b) < n {
				break
			}
		}
	}
	t.Fatalf("no token has %d bytes", n)
	return nil
}

// TestTokensThatFail: each is wrong in one way, and the sentence says which, without a value.
func TestTokensThatFail(t *testing.T) {
	s := trusts(t)
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := string(sign(t, "es256", body(main), nil))
	parts := strings.Split(good, ".")
	with := func(old, new string) []byte {
		t.Helper()
		if !strings.Contains(body(main), old) {
			t.Fatalf("the claims lack %s", old)
		}
		return sign(t, "es256", strings.Replace(body(main), old, new, 1), nil)
	}
	exp := fmt.Sprint(now.Unix() + 300)
	for _, x := range []struct {
		name  string
		token []byte
		check string
	}{
		{"8 KiB and one more", ofSize(t, maxToken+1), "more than 8 KiB"},
		{"a secret", []byte("sbx_0123456789"), "three parts"},
		{"four parts", []byte(good + ".x"), "three parts"},
		{"two parts", []byte(parts[0] + "." + parts[1]), "three parts"},
		{"header no object", []byte(part(`"alg"`) + "." + parts[1] + "." + parts[2]), "three parts"},
		{"newline inside", []byte(parts[0] + "." + parts[1] + ".\n" + parts[2]), "three parts"},
		{"padding", []byte(good + "="), "not base64url"},
		{"alg none", []byte(part(`{"alg":"none","kid":"p"}`) + "." + parts[1] + "."), "algorithm is none of"},
		{"alg None", []byte(part(`{"alg":"None","kid":"p"}`) + "." + parts[1] + "."), "algorithm is none of"},
		{"alg missing", []byte(part(`{"kid":"p"}`) + "." + parts[1] + "." + parts[2]), "algorithm is none of"},
		{"alg twice", []byte(part(`{"alg":"ES256","alg":"none","kid":"p"}`) + "." + parts[1] + "." + parts[2]), "has a member twice"},
		{"HS256 with the public key", hmacToken(t), "algorithm is none of"},
		{"RS512", sign(t, "rs512", body(main), nil), "algorithm is none of"},
		{"crit", sign(t, "es256", body(main), map[jose.HeaderKey]any{"crit": []string{"b64"}, "b64": true}), "has crit"},
		{"another type of key", []byte(part(`{"alg":"RS256","kid":"p"}`) + "." + parts[1] + "." + parts[2]), "not one of the key"},
		{"another algorithm than the key names", sign(t, "rs256", strings.Replace(body(main), "https://ci", "https://pinned", 1), nil),
			"not one of the key"},
		{"another curve", []byte(part(`{"alg":"ES384","kid":"p"}`) + "." + parts[1] + "." + parts[2]), "not one of the key"},
		{"another key with the same kid", sign(t, "stranger", body(main), nil), "signature is wrong"},
		{"kid of another trust", sign(t, "unknown", body(main), nil), "does not have the key"},
		{"no kid", []byte(part(`{"alg":"ES256"}`) + "." + parts[1] + "." + parts[2]), "does not say which key"},
		{"other claims", []byte(parts[0] + "." + part(body(main+`,"a":1`)) + "." + parts[2]), "signature is wrong"},
		{"no signature", []byte(parts[0] + "." + parts[1] + "."), "signature is wrong"},
		{"keyless", with("https://ci", "https://keyless"), "has no keys"},
		{"iss with a slash", with("https://ci", "https://ci/"), "no trust has the token's issuer"},
		{"iss missing", with(`"iss":"https://ci",`, ""), "no trust has the token's issuer"},
		{"iss a list", with(`"https://ci"`, `["https://ci"]`), "another type"},
		{"aud a prefix", with(`"signalbox"`, `"signal"`), "not meant for"},
		{"aud longer", with(`"signalbox"`, `"signalbox2"`), "not meant for"},
		{"aud missing", with(`"aud":"signalbox",`, ""), "not meant for"},
		{"aud a number", with(`"signalbox"`, `7`), "another type"},
		{"exp missing", with(`"exp":`+exp+",", ""), "no exp"},
		{"exp null", with(exp, "null"), "no exp"},
		{"exp now", with(exp, fmt.Sprint(now.Unix())), "has expired"},
		{"exp a string", with(exp, `"`+exp+`"`), "another type"},
		{"exp in a day and a second", with(exp, fmt.Sprint(now.Unix()+24*3600+1)), "more than 24 hours"},
		{"exp far", with(exp, "1e300"), "another type"},
		{"exp twice", with(exp, exp+`,"exp":`+exp), "twice"},
		{"nbf", with(`"sub"`, fmt.Sprintf(`"nbf":%d,"sub"`, now.Unix()+31)), "not valid yet"},
		{"iat", with(`"sub"`, fmt.Sprintf(`"iat":%d,"sub"`, now.Unix()+31)), "in the future"},
		{"sub missing", with(`"sub":"job",`, ""), "no sub"},
		{"sub empty", with(`"job"`, `""`), "no sub"},
		{"a claim twice", with(`"sub"`, `"ref":"x","sub"`), "twice"},
		{"a claim inside an object twice", with(`"sub"`, `"team":{"name":"a","name":"b"},"sub"`), "twice"},
		{"claims a list", sign(t, "es256", "[]", nil), "another type"},
		{"no rule", sign(t, "es256", body(`"repository":"evil/octo/x","groups":["users"]`), nil),
			"no rule matches: rule 1 by repository, rule 2 by repository, rule 3 by kubernetes.io.namespace, rule 4 by groups"},
		{"a claim that is an object", sign(t, "es256", body(`"level":{"7":7}`), nil), "rule 5 by level"},
		{"a number as text", sign(t, "es256", body(`"level":7.0`), nil), "rule 5 by level"},
		{"made admin", sign(t, "es256", body(`"made":"admin"`), nil), "is admin"},
		{"made cert", sign(t, "es256", body(`"made":"cert:root"`), nil), "begins with cert:"},
		{"made anonymous", sign(t, "es256", body(`"made":"anonymous"`), nil), "is anonymous"},
		{"made empty", sign(t, "es256", body(`"made":""`), nil), "is empty"},
		{"made unseen", sign(t, "es256", body(`"made":"a\u0000"`), nil), "cannot be shown"},
	} {
		got, err := s.Check(x.token, now)
		var why *Error
		if !errors.As(err, &why) || !strings.Contains(err.Error(), x.check) {
			t.Errorf("%s: %+v, %v, want %q", x.name, got, err, x.check)
			continue
		}
		for _, value := range []string{"octo", "evil", "job", "cert:root"} {
			if strings.Contains(err.Error(), value) {
				t.Errorf("%s: the sentence %q has a value of the token", x.name, err)
			}
		}
		if s.Recall(x.token, now) != nil {
			t.Errorf("%s is remembered", x.name)
		}
	}
}

// hmacToken is signed with the text of a public key as a shared secret.
func hmacToken(t *testing.T) []byte {
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: keySet(t, "rs256")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Sign([]byte(body(main)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := x.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return []byte(text)
}

// TestHolds: what a subject came in by is gone with its key, its trust or its rule, and nothing
// else takes it away.
func TestHolds(t *testing.T) {
	s := trusts(t)
	x, err := s.Check(sign(t, "es256", body(`"repository":"octo/api"`), nil), now)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*meta.Trust)) bool {
		var list []meta.Trust
		for _, o := range s.sources {
			c := *o.Trust
			c.Rules = append([]meta.TrustRule{}, c.Rules...)
			c.Revision += 10
			list = append(list, c)
		}
		f(&list[0])
		return NewSet(list, s).Holds(x)
	}
	without, _, err := ReadKeys(keySet(t, "rs256", "es384", "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		holds  bool
		change func(*meta.Trust)
	}{
		"nothing":       {true, func(*meta.Trust) {}},
		"a later rule":  {true, func(o *meta.Trust) { o.Rules[2].As = "x" }},
		"a rule more":   {true, func(o *meta.Trust) { o.Rules = append(o.Rules, o.Rules[0]) }},
		"its rule":      {false, func(o *meta.Trust) { o.Rules[1].As = "x" }},
		"a rule before": {false, func(o *meta.Trust) { o.Rules[0].If = o.Rules[0].If[:1] }},
		"fewer rules":   {false, func(o *meta.Trust) { o.Rules = o.Rules[:1] }},
		"its key":       {false, func(o *meta.Trust) { o.Keys = without }},
		"its audience":  {false, func(o *meta.Trust) { o.Audience = "x" }},
		"its domain":    {false, func(o *meta.Trust) { o.SPIFFE = "example.org" }},
		"its issuer":    {false, func(o *meta.Trust) { o.Issuer = "x" }},
		"its trust":     {false, func(o *meta.Trust) { o.Name = "x" }},
	} {
		if change(c.change) != c.holds {
			t.Errorf("%s has changed, and the subject holds: %t", name, !c.holds)
		}
	}
}

// TestUnknownKey: all trusts of the token's issuer are named whose keys are fetched and lack its key,
// for one of them may be behind.
func TestUnknownKey(t *testing.T) {
	keys, _, err := ReadKeys(keySet(t, "es256"))
	if err != nil {
		t.Fatal(err)
	}
	list := []meta.Trust{
		{Name: "a", Issuer: "https://ci", Audience: "a", Keys: keys}, {Name: "b", Issuer: "https://ci", Audience: "signalbox"},
		{Name: "c", Issuer: "https://other", Audience: "signalbox"},
		{Name: "d", Issuer: "https://ci", Audience: "signalbox", Keys: keys, KeysGiven: true},
	}
	for by, want := range map[string]string{"unknown": "[a b]", "es256": "[b]", "stranger": "[b]"} {
		_, err := NewSet(list, nil).Check(sign(t, by, body(main), nil), now)
		why := new(Error)
		if !errors.As(err, &why) || fmt.Sprint(why.UnknownKey) != want {
			t.Errorf("%s: %v, the trusts are %v, want %s", by, err, why.UnknownKey, want)
		}
	}
}

// TestRecall: a token that passed is not checked again while it is remembered: five minutes at
// most, and never beyond its end or a change of trusts.
func TestRecall(t *testing.T) {
	s := trusts(t)
	short := sign(t, "es256", strings.Replace(body(main), fmt.Sprint(now.Unix()+300), fmt.Sprint(now.Unix()+60), 1), nil)
	long := sign(t, "es256", strings.Replace(body(main), fmt.Sprint(now.Unix()+300), fmt.Sprint(now.Unix()+3600), 1), nil)
	for _, token := range [][]byte{short, long} {
		if s.Recall(token, now) != nil {
			t.Error("a token is remembered that was not checked")
		}
		if _, err := s.Check(token, now); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		token []byte
		after time.Duration
		known bool
	}{{short, 59 * time.Second, true}, {short, 60 * time.Second, false}, {long, 299 * time.Second, true}, {long, 5 * time.Minute, false}} {
		if known := s.Recall(x.token, now.Add(x.after)) != nil; known != x.known {
			t.Errorf("after %s it is remembered: %t", x.after, known)
		}
	}
	var list []meta.Trust
	for _, o := range s.sources {
		list = append(list, *o.Trust)
	}
	if NewSet(list, s) != s {
		t.Error("the same trusts make another set")
	}
	list[1].Revision++
	if NewSet(list, s).Recall(long, now) != nil {
		t.Error("other trusts remember a token")
	}
	for i := range maxRemembered + 10 {
		s.remembered[[32]byte{1, byte(i), byte(i >> 8)}] = memory{}
	}
	if _, err := s.Check(short, now); err != nil || len(s.remembered) > maxRemembered {
		t.Errorf("%d are remembered, %v", len(s.remembered), err)
	}
}

// TestReadKeys: keys that cannot sign are left out, and secrets are refused.
func TestReadKeys(t *testing.T) {
	kept, list, err := ReadKeys(keySet(t, "es512", "eddsa", "rs256", "es256"))
	if err != nil || fmt.Sprint(list) != "[{e Ed25519} {p P-256} {r RSA-2048}]" {
		t.Errorf("%v, %v", list, err)
	}
	if again, _, err := ReadKeys(kept); err != nil || string(again) != string(kept) {
		t.Errorf("%s is read as %s, %v", kept, again, err)
	}
	private, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: signers()["es256"].private, KeyID: "p"}}})
	small, _ := rsa.GenerateKey(rand.Reader, 1024)
	weak, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: small.Public(), KeyID: "w"}}})
	for text, want := range map[string]string{
		"": "no JSON Web Key Set", "[]": "no JSON Web Key Set", `{"keys":{}}`: "no JSON Web Key Set",
		`{"keys":[]}`: "none of its 0 keys", string(private): "key 1 is a secret", string(weak): "none of its 1 keys",
		`{"keys":[{"kty":"oct","k":"AAAA"}]}`:                                          "key 1 is a secret",
		`{"keys":[{"kty":"RSA","n":"AQAB"}]}`:                                          "key 1 cannot be read",
		`{"keys":[` + strings.Repeat(`{},`, 32) + `{}]}`:                               "it has 33 keys",
		strings.Replace(string(keySet(t, "es256")), `"kty"`, `"use":"enc","kty"`, 1):   "none of its 1 keys",
		strings.Replace(string(keySet(t, "rs256")), `"kty"`, `"alg":"RS512","kty"`, 1): "none of its 1 keys",
	} {
		if _, _, err := ReadKeys([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

// TestMatches: * is any run of characters, and nothing else has a meaning.
func TestMatches(t *testing.T) {
	for _, x := range []struct {
		text, pattern string
		want          bool
	}{
		{"", "", true}, {"a", "", false}, {"", "*", true}, {"a/b", "*", true}, {"ab", "a*b", true}, {"a", "a*a", false},
		{"aba", "a*a", true}, {"octo/api", "octo/*", true}, {"octo", "octo/*", false}, {"evil/octo/x", "octo/*", false}, {"a.b", "a?b", false},
		{"abcabc", "*bc", true}, {"abcab", "*bc", false}, {"axbxc", "a*b*c", true}, {"acb", "a*b*c", false}, {"a[", "a[", true},
	} {
		if got := matches(x.text, x.pattern); got != x.want {
			t.Errorf("%q matches %q: %t", x.text, x.pattern, got)
		}
	}
	for as, good := range map[string]bool{
		"ci": true, "{a}": true, "x {a.b} y {c}": true, "{": false, "}": false, "{}": false, "{{a}}": false, "}{": false,
		"cert:a": false, "anonymous": false, "": false, strings.Repeat("a", 256): false,
	} {
		if bad := CheckRule(as); bad == "" != good {
			t.Errorf("%q: %q", as, bad)
		}
	}
}

// FuzzCheck: no bytes make it panic, and none pass without a signature.
func FuzzCheck(f *testing.F) {
	f.Add([]byte("a.b.c"))
	f.Add([]byte("eyJhbGciOiJFUzI1NiIsImtpZCI6InAifQ.eyJpc3MiOiJodHRwczovL2NpIn0.AAAA"))
	s := NewSet([]meta.Trust{{Name: "ci", Issuer: "https://ci", Audience: "a", Rules: []meta.TrustRule{{As: "x",
		If: []meta.TrustCondition{{Claim: "sub", Pattern: "*"}}}},
		Keys: []byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"p","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}`)}}, nil)
	f.Fuzz(func(t *testing.T, token []byte) {
		if x, err := s.Check(token, now); err == nil {
			t.Errorf("%q passes as %+v", token, x)
		}
	})
}
