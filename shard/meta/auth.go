package meta

import (
	"math"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// HashLen is the length of a token's hash in bytes.
const HashLen = 32

// maxTokens and MaxTokenID, the longest id of a token in bytes, are part of format version 1.
const (
	maxTokens  = 10_000
	MaxTokenID = 64
)

// CertIdentity is the prefix of the identity of a client with a certificate and without a token. No
// token is issued for such an identity.
const CertIdentity = "cert:"

// AnonymousIdentity is the shown name of a client without credentials; in the rights list it is "".
const AnonymousIdentity = "anonymous"

// AdminIdentity is the identity of the first administrator.
const AdminIdentity = "admin"

// Token is the identity that a secret proves. Only the secret's hash is stored: the secret is
// random enough that the hash reveals nothing.
type Token struct {
	ID        string // shown to operators, up to 64 bytes
	Identity  string // 1 to 256 bytes; several tokens may have the same
	Hash      [HashLen]byte
	CreatedAt uint64 // wall clock of the proposer in ms, for display
	ExpiresAt uint64 // wall clock of the instances in ms, from when on they refuse it; 0: never
	UsedAt    uint64 // wall clock in ms of the last use that was noted, for display; 0: none was
}

func (t *Token) fields(f *varint.Fields) {
	f.Text(&t.ID, MaxTokenID)
	f.Text(&t.Identity, maxIdentity)
	f.Fixed(t.Hash[:])
	f.Uint(&t.CreatedAt, &t.ExpiresAt, &t.UsedAt)
}

// check says what is wrong with a token's texts and times. The proposer checks the characters.
func (t *Token) check() string {
	switch {
	case t.ID == "" || len(t.ID) > MaxTokenID:
		return "a token needs an id of 1 to 64 bytes"
	case t.ExpiresAt > math.MaxInt64:
		return "the token expires later than any clock can tell; choose an earlier time, or 0 for never"
	}
	return checkIdentity(t.Identity)
}

// checkIdentity says what is wrong with the identity of a token.
func checkIdentity(identity string) string {
	switch {
	case identity == "" || len(identity) > maxIdentity:
		return "an identity has 1 to 256 bytes"
	case identity == AnonymousIdentity || strings.HasPrefix(identity, CertIdentity):
		return "the identity is one that no token has: choose another than anonymous, and none that begins with cert:"
	}
	return ""
}

// access is the tokens and trusts, the rights of their identities, and whether rights count.
type access struct {
	rights         []Right // in order of prefix and identity
	rightsRevision uint64  // the revision of the last change to rights

	authOn       bool    // rights are enforced
	tokens       []Token // in order of id
	trusts       []Trust // in order of name
	authRevision uint64  // the revision of the last change to authOn, tokens, trusts or rights
}

// AuthOn reports whether rights are enforced. While auth is off, every identity may do everything.
func (x *access) AuthOn() bool { return x.authOn }

// Tokens in order of id, and the revision of the last change to them, to trusts, to the rights
// list, or to whether auth is on.
func (x *access) Tokens() ([]Token, uint64) { return x.tokens, x.authRevision }

func (x *access) findToken(id string) (int, bool) {
	return slices.BinarySearchFunc(x.tokens, id, func(t Token, id string) int { return strings.Compare(t.ID, id) })
}

// checkAdministered refuses a change that would leave no administrator whose token does not expire.
func (x *access) checkAdministered() Result {
	if !x.authOn {
		return Result{}
	}
	for i := range x.rights {
		r := &x.rights[i]
		if r.Prefix != "" {
			break // entries for everything come first
		}
		if r.Rights&Admin == 0 {
			continue
		}
		if strings.HasPrefix(r.Identity, CertIdentity) ||
			slices.ContainsFunc(x.tokens, func(t Token) bool { return t.Identity == r.Identity && t.ExpiresAt == 0 }) {
			return Result{}
		}
	}
	return refuse(protocol.StatusPreconditionFailed,
		"nobody would be left who may administer everything; give another identity the right admin on / and a token that does not expire first, or turn auth off")
}

// TokenPut adds a token. ALREADY_EXISTS if its id or its secret is in use, unless the same token is
// there.
type TokenPut struct{ Token }

func (*TokenPut) kind() Kind { return KindTokenPut }

func (c *TokenPut) fields(f *varint.Fields) { c.Token.fields(f) }

func (c *TokenPut) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	return s.putToken(c.Token, s.revision)
}

func (x *access) putToken(t Token, revision uint64) Result {
	if bad := t.check(); bad != "" {
		return refuse(protocol.StatusBadRequest, "%s", bad)
	}
	i, ok := x.findToken(t.ID)
	switch {
	case ok && x.tokens[i] == t:
		return Result{Revision: unchanged}
	case ok, slices.ContainsFunc(x.tokens, func(o Token) bool { return o.Hash == t.Hash }):
		return tokenExists()
	case len(x.tokens) >= maxTokens:
		return refuse(protocol.StatusPreconditionFailed, "there are %d tokens, the limit; revoke some first",
			maxTokens)
	}
	x.tokens = slices.Insert(slices.Clone(x.tokens), i, t)
	x.authRevision = revision
	return Result{}
}

func tokenExists() Result {
	return refuse(protocol.StatusAlreadyExists,
		"a token with this id, or with this secret, exists; choose another")
}

// TokenRemove revokes a token; NOT_FOUND if there is none.
type TokenRemove struct{ ID string }

func (*TokenRemove) kind() Kind { return KindTokenRemove }

func (c *TokenRemove) fields(f *varint.Fields) { f.Text(&c.ID, MaxTokenID) }

func (c *TokenRemove) apply(s *State) Result {
	i, ok := s.findToken(c.ID)
	if !ok {
		return refuse(protocol.StatusNotFound, "there is no token %q", c.ID)
	}
	s.tokens = slices.Delete(slices.Clone(s.tokens), i, i+1)
	s.authRevision = s.revision
	return s.checkAdministered()
}

// TokensUsed notes that tokens were used. Those that are not there are passed over.
type TokensUsed struct {
	At  uint64 // wall clock in ms
	IDs []string
}

func (*TokensUsed) kind() Kind { return KindTokensUsed }

func (c *TokensUsed) fields(f *varint.Fields) {
	f.Uint(&c.At)
	varint.List(f, &c.IDs, maxTokens, func(id *string, f *varint.Fields) { f.Text(id, MaxTokenID) })
}

func (c *TokensUsed) apply(s *State) Result {
	s.tokens = slices.Clone(s.tokens)
	for _, id := range c.IDs {
		if i, ok := s.findToken(id); ok {
			s.tokens[i].UsedAt = max(s.tokens[i].UsedAt, c.At)
		}
	}
	return Result{}
}

// AuthSet turns auth on or off. A token with an id gets all rights on everything in the same step,
// so a cluster always has an administrator: ALREADY_EXISTS if its id or its secret is in use, or
// auth is on. Without a token, turning auth on is refused unless there is an administrator. Tokens
// and rights are kept while auth is off.
type AuthSet struct {
	On    bool
	Token Token
}

func (*AuthSet) kind() Kind { return KindAuthSet }

func (c *AuthSet) fields(f *varint.Fields) {
	f.Bool(&c.On)
	c.Token.fields(f)
}

func (c *AuthSet) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if !c.On {
		if !s.authOn {
			return Result{Revision: unchanged}
		}
		s.authOn, s.authRevision = false, s.revision
		return Result{}
	}
	if c.Token.ID == "" {
		if s.authOn {
			return Result{Revision: unchanged}
		}
		s.authOn, s.authRevision = true, s.revision
		return s.checkAdministered()
	}
	if s.authOn {
		return refuse(protocol.StatusAlreadyExists, "auth is on already; its administrators issue tokens")
	}
	if _, ok := s.findToken(c.Token.ID); ok { // also the same one: when it was made decides nothing
		return tokenExists()
	}
	if res := s.putToken(c.Token, s.revision); res.Status != protocol.StatusOK {
		return res
	}
	s.authOn, s.authRevision = true, s.revision
	put := RightsPut{Right: Right{Identity: c.Token.Identity, Rights: AllRights}}
	res := put.apply(s)
	res.Revision = 0 // the right may have been there
	return res
}
