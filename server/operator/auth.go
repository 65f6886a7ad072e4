package operator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// AuthPrefix is the prefix of operators' methods that are answered here.
const AuthPrefix = "auth_"

// AuthChanger is what changes who may do what. The governor is one.
type AuthChanger interface {
	State() *meta.State
	PutToken(ctx context.Context, t meta.Token) error
	RemoveToken(ctx context.Context, id string) error
	TurnAuth(ctx context.Context, on bool, t meta.Token) error
	PutRight(ctx context.Context, r meta.Right) error
	RemoveRight(ctx context.Context, prefix, identity string) error
	ChangeTrust(ctx context.Context, name string, change func(t *meta.Trust) error) error
	RemoveTrust(ctx context.Context, name string) error
}

// AuthMethods answers operators' methods about who may do what, for one who may ask.
type AuthMethods struct {
	AuthChanger
	Identity  string         // of the caller
	Subject   *trust.Subject // of its platform's token; nil: it has none
	FetchKeys func(ctx context.Context, trust string) error
}

// Serve answers one method.
func (a *AuthMethods) Serve(ctx context.Context, method string, body []byte) (any, error) {
	switch method {
	case protocol.MethodWhoAmI:
		out := whoAmI(a.State(), a.Identity)
		if x := a.Subject; x != nil {
			out.Trust, out.Subject = x.Trust, x.Subject
			out.ExpiresInMS = uint64(max(time.Until(x.Expires).Milliseconds(), 1))
		}
		return out, nil
	case protocol.MethodAuth:
		return authState(a.State()), nil
	case protocol.MethodAuthSwitch:
		return decodeJSON(body, func(in protocol.AuthSwitchRequest) (any, error) { return a.setEnabled(ctx, in) })
	case protocol.MethodTokenCreate:
		return decodeJSON(body, func(in protocol.AuthTokenRequest) (any, error) { return a.create(ctx, in) })
	case protocol.MethodTokenRevoke:
		return decodeJSON(body, func(in protocol.AuthTokenRequest) (any, error) {
			if len(in.ID) > meta.MaxTokenID {
				return nil, protocol.Errorf(protocol.StatusNotFound, "there is no token %.40q...: its id is too long", in.ID)
			}
			return struct{}{}, a.RemoveToken(ctx, in.ID)
		})
	case protocol.MethodGrant:
		return decodeJSON(body, func(in protocol.AuthRight) (any, error) { return a.grant(ctx, in) })
	case protocol.MethodRevoke:
		return decodeJSON(body, func(in protocol.AuthRight) (any, error) {
			prefix, err := prefixOf(in.Path)
			switch {
			case err != nil:
			case len(in.Identity) > auth.MaxIdentity:
				err = protocol.Errorf(protocol.StatusNotFound, "there is no identity %.40q...: it is too long", in.Identity)
			default:
				err = a.RemoveRight(ctx, prefix, auth.PlainIdentity(in.Identity))
			}
			return struct{}{}, err
		})
	}
	if strings.HasPrefix(method, trustPrefix) {
		return decodeJSON(body, func(in protocol.AuthTrust) (any, error) { return a.serveTrust(ctx, method, &in) })
	}
	return nil, protocol.Errorf(protocol.StatusUnsupported, "method %s is not known here; upgrade the older side",
		method)
}

// setEnabled turns auth on or off. On, it makes a first administrator if there is none. A request
// that is sent again finds the administrator that it has made, and is answered as before.
func (a *AuthMethods) setEnabled(ctx context.Context, in protocol.AuthSwitchRequest) (any, error) {
	if state := a.State(); !in.Enabled && state.AuthOn() {
		if !in.Force {
			tokens, _ := state.Tokens()
			return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
				"authentication is on, tokens that count: %d; without it every client may do everything: disable it by force and with a reason",
				len(tokens))
		}
		if err := requireReason(in.Force, in.Reason); err != nil {
			return nil, err
		}
	}
	t := meta.Token{ID: auth.AdminTokenID, Identity: auth.AdminIdentity, Hash: auth.HashToken([]byte(in.Secret))}
	err := a.TurnAuth(ctx, in.Enabled, meta.Token{})
	if in.Enabled && in.Secret != "" && errors.Is(err, protocol.StatusPreconditionFailed) {
		if n := len(in.Secret); n < auth.MinSecretLen || n > auth.MaxSecretLen {
			return nil, protocol.Errorf(protocol.StatusBadRequest,
				"the administrator's secret has %d bytes; choose %d to %d, at random", n, auth.MinSecretLen, auth.MaxSecretLen)
		}
		err = a.TurnAuth(ctx, true, t)
		if errors.Is(err, protocol.StatusAlreadyExists) && !a.State().AuthOn() {
			return nil, protocol.Errorf(protocol.StatusPreconditionFailed,
				"nobody may administer everything, and the token %s cannot be made: one with this id, or with this secret, "+
					"exists; grant its identity the right (`auth grant IDENTITY / admin`), or revoke it, and enable again",
				auth.AdminTokenID)
		}
	}
	if in.Enabled && (err == nil || errors.Is(err, protocol.StatusAlreadyExists)) && governor.HasToken(a.State(), t) {
		return protocol.AuthToken{ID: t.ID, Identity: t.Identity}, nil
	}
	return protocol.AuthToken{}, err
}

// create adds a token for the hash in the request.
func (a *AuthMethods) create(ctx context.Context, in protocol.AuthTokenRequest) (any, error) {
	if len(in.Hash) != meta.HashLen {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"the hash of the secret has %d bytes; send its SHA-256", len(in.Hash))
	}
	if in.ID == "" {
		var b [6]byte
		_, _ = rand.Read(b[:]) // it never fails
		in.ID = hex.EncodeToString(b[:])
	}
	if err := checkWord("token id", in.ID, meta.MaxTokenID); err != nil {
		return nil, err
	}
	if err := checkWord("identity", in.Identity, auth.MaxIdentity); err != nil {
		return nil, err
	}
	if err := a.PutToken(ctx, meta.Token{ID: in.ID, Identity: in.Identity, Hash: [meta.HashLen]byte(in.Hash),
		ExpiresAt: in.ExpiresAtMS}); err != nil {
		return nil, err
	}
	return protocol.AuthToken{ID: in.ID, Identity: in.Identity, ExpiresAtMS: in.ExpiresAtMS}, nil
}

func (a *AuthMethods) grant(ctx context.Context, in protocol.AuthRight) (any, error) {
	prefix, err := prefixOf(in.Path)
	if err != nil {
		return nil, err
	}
	if err := checkWord("identity", in.Identity, auth.MaxIdentity); err != nil {
		return nil, err
	}
	r := meta.Right{Prefix: prefix, Identity: auth.PlainIdentity(in.Identity)}
	i := slices.IndexFunc(rightWords, func(w rightWord) bool { return w.word == in.Right })
	if i < 0 {
		return nil, protocol.Errorf(protocol.StatusBadRequest,
			"right %.40q is unknown; choose read, use, admin or none", in.Right)
	}
	r.Rights = rightWords[i].bits
	if err := a.PutRight(ctx, r); err != nil {
		return nil, err
	}
	return authRight(&r), nil
}

type rightWord struct {
	word string
	bits meta.RightBits
}

// rightWords are the rights as people give them: each has those before it.
var rightWords = []rightWord{{"none", 0}, {"read", meta.Read}, {"use", meta.Read | meta.Use},
	{"admin", meta.AllRights}}

// prefixOf is a path as the rights list has it.
func prefixOf(path string) (string, error) {
	if path == "/" {
		return "", nil
	}
	return path, protocol.ValidatePath(path)
}

// checkWord refuses what could not be shown, or told apart from something else, or has more bytes
// than most.
func checkWord(what, s string, most int) error {
	if s == "" || len(s) > most ||
		strings.ContainsFunc(s, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }) {
		return protocol.Errorf(protocol.StatusBadRequest,
			"%s %.40q is empty, too long, or has characters that cannot be shown; give up to %d bytes of text",
			what, s, most)
	}
	return nil
}

// whoAmI is the document of what an identity may do.
func whoAmI(s *meta.State, identity string) protocol.AuthIdentity {
	out := protocol.AuthIdentity{Identity: identity, Enabled: s.AuthOn()}
	rights, _ := s.RightsList()
	for i := range rights {
		if rights[i].Identity == auth.PlainIdentity(identity) {
			out.Rights = append(out.Rights, authRight(&rights[i]))
		}
	}
	return out
}

// authState is the document of who may do what.
func authState(s *meta.State) protocol.AuthState {
	tokens, _ := s.Tokens()
	rights, _ := s.RightsList()
	out := protocol.AuthState{Enabled: s.AuthOn(), Tokens: []protocol.AuthToken{}, Rights: []protocol.AuthRight{}}
	for i := range tokens {
		t := &tokens[i]
		out.Tokens = append(out.Tokens, protocol.AuthToken{ID: t.ID, Identity: t.Identity, CreatedAtMS: t.CreatedAt,
			ExpiresAtMS: t.ExpiresAt, UsedAtMS: t.UsedAt})
	}
	for i := range rights {
		out.Rights = append(out.Rights, authRight(&rights[i]))
	}
	for _, t := range s.Trusts() {
		out.Trusts = append(out.Trusts, authTrust(&t))
	}
	return out
}

func authRight(r *meta.Right) protocol.AuthRight {
	out := protocol.AuthRight{Path: cmp.Or(r.Prefix, "/"), Identity: cmp.Or(r.Identity, meta.AnonymousIdentity)}
	for _, w := range rightWords {
		if r.Rights&w.bits == w.bits {
			out.Right = w.word
		}
	}
	return out
}
