// Package auth says who a client is and what it may do: identities, tokens, rights, and failed
// attempts. It knows neither connections nor requests.
//
// A View is one state of the meta shard, prepared for lookups; the server installs a newer one, so
// a change of rights counts from the next request. The connections of identities that lost a right
// are closed (LostRights), because open streams and memberships were checked only when they began.
// BindKey mixes the identity into a session's protection key: shards need no identities, and
// another identity cannot use the key.
package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// View is who may do what, as the meta shard has it. It never changes; a newer one replaces it.
type View struct {
	state    *meta.State
	on       bool
	revision uint64
	tokens   map[[meta.HashLen]byte]*meta.Token
	trusts   *trust.Set
}

// Shown is what a client came in with: a token of the cluster, or one of a platform.
type Shown struct {
	Hash    [meta.HashLen]byte // of the cluster's
	Subject *trust.Subject     // of the platform's; nil: it was the cluster's
}

// NewView prepares a state of the meta shard. The former view may be nil; what it remembers of
// tokens stays while trusts are the same.
func NewView(state *meta.State, former *View) *View {
	list, revision := state.Tokens()
	v := &View{state: state, on: state.AuthOn(), revision: revision,
		tokens: make(map[[meta.HashLen]byte]*meta.Token, len(list))}
	for i := range list {
		v.tokens[list[i].Hash] = &list[i]
	}
	var old *trust.Set
	if former != nil {
		old = former.trusts
	}
	v.trusts = trust.NewSet(state.Trusts(), old)
	return v
}

// On reports whether credentials and rights count.
func (v *View) On() bool { return v.on }

// Revision rises with each change of tokens and rights.
func (v *View) Revision() uint64 { return v.revision }

// SameTrusts reports whether both views find the same of a platform's token.
func (v *View) SameTrusts(o *View) bool { return v.trusts == o.trusts }

// TokenError is why a token is not good any more: it was revoked, is not trusted, or has expired.
// It is nil if it is good.
func (v *View) TokenError(s *Shown, now time.Time) error {
	if x := s.Subject; x != nil {
		switch {
		case !now.Before(x.Expires):
			return errExpired
		case !v.trusts.Holds(x):
			return errUntrusted
		}
		return nil
	}
	switch t := v.tokens[s.Hash]; {
	case t == nil:
		return errRevoked
	case isExpired(t, now):
		return errExpired
	}
	return nil
}

// Expired reports whether any token has expired.
func (v *View) Expired(now time.Time) bool {
	for _, t := range v.tokens {
		if isExpired(t, now) {
			return true
		}
	}
	return false
}

// NextExpiry is how long it is until the next token expires.
func (v *View) NextExpiry(now time.Time) time.Duration {
	next := time.Duration(math.MaxInt64)
	for _, t := range v.tokens {
		if t.ExpiresAt != 0 && !isExpired(t, now) {
			next = min(next, time.UnixMilli(int64(t.ExpiresAt)).Sub(now))
		}
	}
	return next
}

func isExpired(t *meta.Token, now time.Time) bool {
	return t.ExpiresAt != 0 && uint64(now.UnixMilli()) >= t.ExpiresAt
}

// LostRights finds the identities that may do less than by an older view, and says of one whether
// it is among them. What was opened with a right (streams, watches, memberships) would go on, since
// rights are looked at when something is asked for. While auth is off, everybody may do everything.
func (v *View) LostRights(old *View) func(identity string) bool {
	before, _ := old.state.RightsList()
	now, _ := v.state.RightsList()
	found := make(map[string]bool)
	for _, list := range [][]meta.Right{before, now} {
		for i := range list {
			r := &list[i]
			if old.state.Rights(r.Identity, r.Prefix)&^v.state.Rights(r.Identity, r.Prefix) != 0 {
				found[r.Identity] = true
			}
		}
	}
	return func(identity string) bool {
		identity = PlainIdentity(identity)
		everything := old.state.Rights(identity, "")
		return v.on && (found[identity] || everything&^v.state.Rights(identity, "") != 0)
	}
}

// Authenticate says who a client is. A token that is known counts whether or not auth is on, so
// that clients can be given theirs before it is turned on. To verify a signature takes too long for
// an event loop: unless check is true, ErrUnchecked is the answer to a platform's token that did
// not pass lately.
func (v *View) Authenticate(k Credentials, now time.Time, check bool) (identity string, shown *Shown, err error) {
	if len(k.Token) > 0 {
		h := HashToken(k.Token)
		t := v.tokens[h]
		if t != nil && !isExpired(t, now) {
			return t.Identity, &Shown{Hash: h}, nil
		}
		x, why := (*trust.Subject)(nil), error(errUnknownToken)
		if t == nil && trust.IsToken(k.Token) && len(v.state.Trusts()) > 0 {
			if x = v.trusts.Recall(k.Token, now); x == nil && !check {
				return "", nil, ErrUnchecked
			} else if x == nil {
				x, why = v.trusts.Check(k.Token, now)
			}
		}
		switch {
		case x != nil:
			return x.Identity, &Shown{Subject: x}, nil
		case v.on && t != nil:
			return "", nil, fmt.Errorf("the token %s %w", t.ID, errExpired)
		case v.on:
			return "", nil, why
		}
	}
	x, err := v.trusts.Certificate(k.Certificate)
	switch id := CertIdentity(k.Certificate); {
	case x != nil:
		return x.Identity, &Shown{Subject: x}, nil
	case err != nil && v.on:
		return "", nil, err
	case id != "" && err == nil:
		return id, nil, nil
	}
	if v.on && !v.anonymousHasRights() {
		return "", nil, errNoCredentials
	}
	return meta.AnonymousIdentity, nil, nil
}

// anonymousHasRights reports whether clients without credentials have any right.
func (v *View) anonymousHasRights() bool {
	list, _ := v.state.RightsList()
	return slices.ContainsFunc(list, func(r meta.Right) bool { return r.Identity == "" && r.Rights != 0 })
}

// PlainIdentity is an identity as entries name it.
func PlainIdentity(identity string) string {
	if identity == meta.AnonymousIdentity {
		return ""
	}
	return identity
}

// Allowed reports whether an identity has a right on a path.
func (v *View) Allowed(identity string, right Right, path string) bool {
	if !v.on {
		return true
	}
	return v.state.Rights(PlainIdentity(identity), path)&(meta.Read<<(right-1)) != 0
}

// AllowedAnywhere reports whether an identity has a right on any path.
func (v *View) AllowedAnywhere(identity string, right Right) bool {
	list, _ := v.state.RightsList()
	return !v.on || slices.ContainsFunc(list, func(r meta.Right) bool {
		return r.Identity == PlainIdentity(identity) && r.Rights&(meta.Read<<(right-1)) != 0
	})
}

// CertIdentity is who a verified certificate is of by its common name; empty if it does not say.
func CertIdentity(c *x509.Certificate) string {
	if c == nil || c.Subject.CommonName == "" || len(c.Subject.CommonName) > MaxIdentity-len(meta.CertIdentity) {
		return ""
	}
	return meta.CertIdentity + c.Subject.CommonName
}

var (
	errNoCredentials = errors.New("none were shown")
	errUnknownToken  = errors.New("the token is not known")
	errRevoked       = errors.New("was revoked")
	errExpired       = errors.New("has expired")
	errUntrusted     = errors.New("is not trusted any more: its key, its rule or its trust is gone")

	// ErrUnchecked says that a token is to be checked away from the event loop.
	ErrUnchecked = errors.New("the token was not checked")
)
