package trust

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

const (
	maxKeys = 32
	// Keys of RSA, in bits. Large ones take long to verify with.
	minRSA, maxRSA = 2048, 8192
)

// algorithms are all that count: none, and those with shared secrets, never do.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA}

type thumbprint [32]byte

type key struct {
	jose.JSONWebKey
	algorithms []jose.SignatureAlgorithm // that may be used with it
	thumbprint thumbprint
}

// Key is a key as people see it.
type Key struct{ ID, Type string }

// ReadKeys reads a JSON Web Key Set, and returns the keys that may sign tokens as the cluster keeps
// them. Keys of other types, and keys to encrypt with, are left out.
func ReadKeys(set []byte) (kept []byte, list []Key, err error) {
	keys, err := parseKeys(set)
	if err != nil {
		return nil, nil, err
	}
	var out jose.JSONWebKeySet
	for _, k := range keys {
		out.Keys = append(out.Keys, k.JSONWebKey)
		list = append(list, Key{k.KeyID, keyType(k.Key)})
	}
	kept, err = json.Marshal(out)
	return kept, list, err
}

func parseKeys(set []byte) (keys []key, err error) {
	var raw struct {
		Keys []json.RawMessage `json:"keys"`
	}
	switch err := json.Unmarshal(set, &raw); {
	case err != nil || raw.Keys == nil:
		return nil, errors.New("it is no JSON Web Key Set; give an object with the list keys")
	case len(raw.Keys) > maxKeys:
		return nil, fmt.Errorf("it has %d keys; give up to %d", len(raw.Keys), maxKeys)
	}
	for i, text := range raw.Keys {
		var k jose.JSONWebKey
		if err := k.UnmarshalJSON(text); errors.Is(err, jose.ErrUnsupportedKeyType) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("key %d cannot be read: %w", i+1, err)
		}
		if !k.IsPublic() {
			return nil, fmt.Errorf("key %d is a secret; give public keys only, and replace this one at its issuer", i+1)
		}
		kinds := kindsOf(k.Key)
		if a := jose.SignatureAlgorithm(k.Algorithm); a != "" {
			if kinds = slices.DeleteFunc(kinds, func(o jose.SignatureAlgorithm) bool { return o != a }); len(kinds) == 0 {
				continue
			}
		}
		if len(kinds) == 0 || k.Use != "" && k.Use != "sig" {
			continue
		}
		sum, err := k.Thumbprint(crypto.SHA256)
		if err != nil {
			return nil, fmt.Errorf("key %d cannot be read: %w", i+1, err)
		}
		keys = append(keys, key{jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID, Algorithm: k.Algorithm, Use: k.Use}, kinds,
			thumbprint(sum)})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys can sign a token here; RSA of %d to %d bits, P-256, P-384 and Ed25519 can",
			len(raw.Keys), minRSA, maxRSA)
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.KeyID, b.KeyID), bytes.Compare(a.thumbprint[:], b.thumbprint[:]))
	})
	return keys, nil
}

// kindsOf returns the algorithms of a public key: its type decides, never the token alone.
func kindsOf(public any) []jose.SignatureAlgorithm {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n >= minRSA && n <= maxRSA {
			return []jose.SignatureAlgorithm{jose.RS256, jose.PS256}
		}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}
		}
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}
	}
	return nil
}

func keyType(public any) string {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA-%d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	}
	return "Ed25519"
}

// header is what is read of a token's first part.
type header struct {
	Algorithm string          `json:"alg"`
	KeyID     string          `json:"kid"`
	Critical  json.RawMessage `json:"crit"`
}

// IsToken reports whether bytes have the shape of a signed token, so that they are no secret of the
// cluster's own tokens: three parts, of which the first is an object.
func IsToken(b []byte) bool {
	parts := bytes.Split(b[:min(len(b), maxToken+1)], []byte("."))
	if len(parts) != 3 {
		return false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(string(parts[0]))
	return err == nil && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
}

// parseHeader checks the shape of a token.
func parseHeader(token []byte) (*header, *Error) {
	if len(token) > maxToken {
		return nil, &Error{Check: "the token has more than 8 KiB", Values: fmt.Sprintf("%d bytes", len(token))}
	}
	if !IsToken(token) {
		return nil, refuse("the token does not have three parts of which the first is an object")
	}
	var text [3][]byte
	for i, part := range bytes.Split(token, []byte(".")) {
		var err error
		if text[i], err = base64.RawURLEncoding.Strict().DecodeString(string(part)); err != nil || bytes.ContainsAny(part, "\r\n") {
			return nil, refuse("a part of the token is not base64url")
		}
	}
	h := new(header)
	if err := json.Unmarshal(text[0], h); err != nil {
		return nil, refuse("the token's header is no object, or a member comes twice")
	}
	switch {
	case h.Critical != nil:
		return nil, refuse("the token's header has crit, which asks for what is not known here")
	case !slices.Contains(algorithms, jose.SignatureAlgorithm(h.Algorithm)):
		return nil, &Error{Check: "the algorithm is none of RS256, PS256, ES256, ES384 and EdDSA",
			Values: fmt.Sprintf("%.20q", h.Algorithm)}
	}
	return h, nil
}
