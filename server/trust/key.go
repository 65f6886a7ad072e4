package trust

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	maxKeys = 32
	minRSA  = 2048 // bits; go-jose leaves out those of more than 4096
)

// algorithms are all that count: none, and those with shared secrets, never do.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA}

// uses are those of keys that sign tokens; jwt-svid is that of SPIFFE's bundles.
var uses = []string{"", "sig", "jwt-svid"}

type key struct {
	jose.JSONWebKey
	algorithms []jose.SignatureAlgorithm // that may be used with it
	text       string                    // as the cluster keeps it
}

// ReadKeys reads a JSON Web Key Set, and returns the keys that may sign tokens as the cluster keeps
// them. Keys of other types, and keys to encrypt with, are left out.
func ReadKeys(set []byte) (kept []byte, list []protocol.AuthTrustKey, err error) {
	keys, err := parseKeys(set)
	if err != nil {
		return nil, nil, err
	}
	var texts []string
	for _, k := range keys {
		texts = append(texts, k.text)
		list = append(list, protocol.AuthTrustKey{ID: k.KeyID, Type: keyType(k.Key)})
	}
	return []byte(`{"keys":[` + strings.Join(texts, ",") + "]}"), list, nil
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
		kinds := slices.DeleteFunc(kindsOf(k.Key), func(a jose.SignatureAlgorithm) bool {
			return k.Algorithm != "" && string(a) != k.Algorithm
		})
		if len(kinds) == 0 || !slices.Contains(uses, k.Use) {
			continue
		}
		k = jose.JSONWebKey{Key: k.Key, KeyID: k.KeyID, Algorithm: k.Algorithm, Use: k.Use}
		kept, err := k.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("key %d cannot be read: %w", i+1, err)
		}
		keys = append(keys, key{k, kinds, string(kept)})
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("none of its %d keys can sign a token here; RSA of %d to %d bits, P-256, P-384 and Ed25519 can",
			len(raw.Keys), minRSA, jose.MaxRSAModulusBits)
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.text, b.text))
	})
	return keys, nil
}

// kindsOf returns the algorithms of a public key: its type decides, never the token alone.
func kindsOf(public any) []jose.SignatureAlgorithm {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSA {
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

// IsToken reports whether bytes have the shape of a signed token, so that they are no secret of the
// cluster's own tokens: three parts, of which the first is an object.
func IsToken(b []byte) bool {
	b = b[:min(len(b), maxToken+1)]
	first, _, _ := bytes.Cut(b, []byte("."))
	text, err := base64.RawURLEncoding.DecodeString(string(first))
	return bytes.Count(b, []byte(".")) == 2 && !bytes.ContainsAny(b, "\r\n") && err == nil && bytes.HasPrefix(text, []byte("{"))
}

// parse checks the shape of a token and reads it, without its signature.
func parse(token []byte) (*jose.JSONWebSignature, *Error) {
	if len(token) > maxToken {
		return nil, &Error{Check: "the token has more than 8 KiB", Values: fmt.Sprintf("%d bytes", len(token))}
	}
	if !IsToken(token) {
		return nil, refuse("the token does not have three parts of which the first is an object")
	}
	sig, err := jose.ParseSignedCompact(string(token), algorithms)
	if _, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return nil, &Error{Check: "the algorithm is none of RS256, PS256, ES256, ES384 and EdDSA", Values: err.Error()}
	}
	if err != nil {
		return nil, &Error{Check: "a part of the token is not base64url, or its header is no object, or has a member twice",
			Values: err.Error()}
	}
	if sig.Signatures[0].Protected.ExtraHeaders["crit"] != nil {
		return nil, refuse("the token's header has crit, which asks for what is not known here")
	}
	return sig, nil
}
