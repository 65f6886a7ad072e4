// Package trust checks the signed tokens of platforms: Kubernetes, CI jobs, any issuer of JSON Web
// Tokens. It is pure: what a token is worth follows from the token, the trusts and the time.
//
// A token passes if its issuer is that of a trust, a key of the trust signed it, the trust's
// audience is one of its own, it is valid now and for a day at most, and a rule of the trust gives
// its claims an identity. go-jose verifies signatures; nothing is parsed before the shape is that
// of a token.
//
// A Set is the trusts of one state of the meta shard. It remembers the tokens that passed.
package trust

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

const (
	maxToken    = 8 << 10 // bytes
	maxLifetime = 24 * time.Hour
	leeway      = 30 * time.Second // of nbf and iat: clocks differ

	maxRemembered = 10_000
	rememberFor   = 5 * time.Minute
)

// Subject is who a token or certificate that passed is of.
type Subject struct {
	Identity string
	Trust    string // by name
	Rule     int    // of the trust, from 1
	Expires  time.Time

	// Of the token, or of the certificate, which has a subject alone.
	Issuer, Subject, KeyID, TokenID string

	by  *meta.Trust // as it was
	key *key        // nil: of a certificate
}

// Error says why a token does not pass.
type Error struct {
	Check  string // a clause without values of the token, for logs
	Values string // what the token has, for administrators; may be empty

	// UnknownKey are the trusts of the token's issuer that do not have its key, which their issuers
	// may publish by now.
	UnknownKey []string

	verified   bool // the signature is good
	unknownKey bool // of the one trust
}

func (e *Error) Error() string { return e.Check }

// Explain is the sentence with values.
func (e *Error) Explain() string {
	if e.Values == "" {
		return e.Check
	}
	return e.Check + ": " + e.Values
}

func refuse(check string) *Error { return &Error{Check: check} }

// Set is all trusts. Its methods may be called from any goroutine.
type Set struct {
	sources []source

	mu         sync.Mutex
	remembered map[[sha256.Size]byte]memory
}

type source struct {
	*meta.Trust
	keys []key
}

type memory struct {
	*Subject
	until time.Time
}

// NewSet prepares trusts. It returns old, with what that remembers, if they are the same.
func NewSet(list []meta.Trust, old *Set) *Set {
	if old != nil && slices.EqualFunc(list, old.sources, func(a meta.Trust, b source) bool {
		return a.Name == b.Name && a.Revision == b.Revision
	}) {
		return old
	}
	s := &Set{remembered: make(map[[sha256.Size]byte]memory)}
	for i := range list {
		// Keys that cannot be read are none: the proposer wrote those that it could read.
		keys, _ := parseKeys(list[i].Keys)
		s.sources = append(s.sources, source{&list[i], keys})
	}
	return s
}

// Recall returns who a token is of that passed lately; nil if it has to be checked.
func (s *Set) Recall(token []byte, now time.Time) *Subject {
	hash := sha256.Sum256(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.remembered[hash]; now.Before(m.until) {
		return m.Subject
	}
	return nil
}

// Check checks a token, and remembers one that passes. An error is an *Error.
func (s *Set) Check(token []byte, now time.Time) (*Subject, error) {
	subject, err := s.check(token, now)
	if err != nil {
		return nil, err
	}
	until := now.Add(rememberFor)
	if subject.Expires.Before(until) {
		until = subject.Expires
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.remembered) >= maxRemembered {
		clear(s.remembered)
	}
	s.remembered[sha256.Sum256(token)] = memory{subject, until}
	return subject, nil
}

// Holds reports whether a subject would still pass: its trust, its key, and the rules up to the one
// that matched are as they were. Its time is not looked at.
func (s *Set) Holds(x *Subject) bool {
	return slices.ContainsFunc(s.sources, func(o source) bool {
		return o.Name == x.Trust && o.Issuer == x.by.Issuer && o.Audience == x.by.Audience && o.SPIFFE == x.by.SPIFFE &&
			(x.key == nil || slices.ContainsFunc(o.keys, func(k key) bool { return k.text == x.key.text })) &&
			len(o.Rules) >= x.Rule && slices.EqualFunc(o.Rules[:x.Rule], x.by.Rules[:x.Rule], SameRule)
	})
}

// claims are what the specification of JSON Web Tokens names, as it types them.
type claims struct {
	jwt.Claims
	all map[string]any // with numbers as the token writes them
}

func (s *Set) check(token []byte, now time.Time) (*Subject, *Error) {
	sig, err := parse(token)
	if err != nil {
		return nil, err
	}
	c, err := parseClaims(sig.UnsafePayloadWithoutVerification())
	if err != nil {
		return nil, err
	}
	err = &Error{Check: "no trust has the token's issuer", Values: fmt.Sprintf("%q", c.Issuer)}
	var unknown []string
	for i := range s.sources {
		o := &s.sources[i]
		if o.Issuer != "" && o.Issuer != c.Issuer || o.Issuer == "" && !inDomain(c.Subject, o.SPIFFE) {
			continue
		}
		k, bad := o.verify(sig)
		if bad == nil {
			if bad = o.checkClaims(c, now); bad == nil {
				var x *Subject
				if x, bad = o.apply(c); bad == nil {
					x.KeyID, x.key = k.KeyID, k
					return x, nil
				}
			}
			bad.verified = true
		}
		if bad.unknownKey && o.Fetched() {
			unknown = append(unknown, o.Name)
		}
		if bad.Check = "trust " + o.Name + ": " + bad.Check; bad.verified || !err.verified {
			err = bad // two clusters may have one issuer; the one that signed it counts
		}
	}
	err.UnknownKey = unknown
	return nil, err
}

func parseClaims(payload []byte) (*claims, *Error) {
	var c claims
	d := json.NewDecoder(bytes.NewReader(payload))
	d.SetNumberType(json.UnmarshalJSONNumber)
	if err := json.Unmarshal(payload, &c.Claims); err != nil {
		return nil, &Error{Check: "a claim of the token has another type than it must, or comes twice", Values: err.Error()}
	}
	if err := d.Decode(&c.all); err != nil || c.all == nil {
		return nil, refuse("the claims of the token are no object, or one comes twice")
	}
	return &c, nil
}

// verify returns the key that signed the token.
func (o *source) verify(sig *jose.JSONWebSignature) (*key, *Error) {
	h := sig.Signatures[0].Protected
	switch {
	case len(o.keys) == 0:
		return nil, &Error{Check: "the trust has no keys", unknownKey: true}
	case h.KeyID == "" && len(o.keys) > 1:
		return nil, refuse("the token does not say which key signed it (kid), and the trust has several")
	}
	err := &Error{Check: "the trust does not have the key that signed it", Values: fmt.Sprintf("kid %q", h.KeyID), unknownKey: true}
	for i := range o.keys {
		k := &o.keys[i]
		switch {
		case h.KeyID != "" && k.KeyID != h.KeyID:
		case !slices.Contains(k.algorithms, jose.SignatureAlgorithm(h.Algorithm)):
			err = &Error{Check: "the algorithm is not one of the key", Values: h.Algorithm}
		default:
			if _, bad := sig.Verify(k.Key); bad == nil {
				return k, nil
			}
			err = refuse("the signature is wrong")
		}
	}
	return nil, err
}

// checkClaims checks the claims that every token has.
func (o *source) checkClaims(c *claims, now time.Time) *Error {
	at := func(d *jwt.NumericDate) string { return d.Time().UTC().Format(time.RFC3339) }
	switch {
	case !slices.Contains(c.Audience, o.Audience):
		return &Error{Check: "the token is not meant for the trust's audience", Values: fmt.Sprintf("aud %q", c.Audience)}
	case c.Expiry == nil:
		return refuse("the token has no exp")
	case !now.Before(c.Expiry.Time()):
		return &Error{Check: "the token has expired", Values: "at " + at(c.Expiry)}
	case c.Expiry.Time().Sub(now) > maxLifetime:
		return &Error{Check: "the token is valid for more than 24 hours", Values: "until " + at(c.Expiry)}
	case c.NotBefore != nil && c.NotBefore.Time().Sub(now) > leeway:
		return &Error{Check: "the token is not valid yet", Values: "nbf " + at(c.NotBefore)}
	case c.IssuedAt != nil && c.IssuedAt.Time().Sub(now) > leeway:
		return &Error{Check: "the token was issued in the future", Values: "iat " + at(c.IssuedAt)}
	case c.Subject == "":
		return refuse("the token has no sub")
	case o.SPIFFE != "" && !inDomain(c.Subject, o.SPIFFE):
		return &Error{Check: "the token's sub is no SPIFFE ID of the trust's domain", Values: fmt.Sprintf("%q", c.Subject)}
	}
	return nil
}
