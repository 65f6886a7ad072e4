// Package trusttest issues signed tokens for tests, as a platform does.
package trusttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// What tokens of an Issuer have, unless a test says otherwise.
const (
	Name     = "ci.example" // no address, from which keys would be fetched
	Audience = "signalbox"
)

// Issuer signs tokens with one key. Safe for concurrent use.
type Issuer struct {
	mu    sync.Mutex
	key   *ecdsa.PrivateKey
	count int // of its keys so far
}

// New makes an issuer with a key.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := new(Issuer)
	i.Rotate(t)
	return i
}

// Rotate replaces the key.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.count = key, i.count+1
}

// present is the key in use, and its id.
func (i *Issuer) present() (*ecdsa.PrivateKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key, fmt.Sprint("key-", i.count)
}

// Keys is the JSON Web Key Set of the present key.
func (i *Issuer) Keys(t testing.TB) []byte {
	t.Helper()
	key, id := i.present()
	b, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: id}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Token signs a token of a subject that is valid for some time from now on. more are further
// claims, or replace those that it has.
func (i *Issuer) Token(t testing.TB, subject string, life time.Duration, more map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": Name, "aud": Audience, "sub": subject, "exp": time.Now().Add(life).Unix()}
	maps.Copy(claims, more)
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	key, id := i.present()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
