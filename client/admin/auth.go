package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// WhoAmI returns the identity that the client's credentials have. It needs no right.
func (a *Client) WhoAmI(ctx context.Context) (*Identity, error) {
	return call[Identity](ctx, a, protocol.MethodWhoAmI, nil)
}

// Auth lists tokens, without their secrets, trusts, without their keys, and rights.
func (a *Client) Auth(ctx context.Context) (*AuthState, error) {
	return call[AuthState](ctx, a, protocol.MethodAuth, nil)
}

// EnableAuth makes tokens and rights count. Unless somebody may administer everything already, it
// creates the first administrator, with the identity and token id "admin" and this secret, which
// has at least 16 random bytes. The caller chooses the secret so that a lost answer locks nobody
// out.
func (a *Client) EnableAuth(ctx context.Context, secret string) (*Token, error) {
	return call[Token](ctx, a, protocol.MethodAuthSwitch, protocol.AuthSwitchRequest{Enabled: true, Secret: secret})
}

// DisableAuth lets everybody do everything again. Tokens and rights are kept. While authentication
// is on it needs force, and a Client that WithReason made: ErrPreconditionFailed and ErrBadRequest
// without.
func (a *Client) DisableAuth(ctx context.Context, force bool) error {
	_, err := call[struct{}](ctx, a, protocol.MethodAuthSwitch,
		protocol.AuthSwitchRequest{Force: force, Reason: a.reason})
	return err
}

// TokenOption changes a token that is created.
type TokenOption func(*tokenOptions)

type tokenOptions struct{ expires uint64 }

// Expires has instances refuse the token from a time on, by their clocks, and close its
// connections. The default is never. The last administrator's token has to be one that does not
// expire.
func Expires(at time.Time) TokenOption {
	return func(o *tokenOptions) { o.expires = uint64(max(1, at.UnixMilli())) }
}

// CreateToken creates a token for an identity, 1 to 255 bytes. An empty id is made up; one that is
// given has up to 64 bytes. The token's secret is made here, and is only in this result: the
// cluster gets a hash. After ErrOutcomeUnknown nobody has the secret of a token that may be there:
// revoke it.
func (a *Client) CreateToken(ctx context.Context, id, identity string, opts ...TokenOption) (*Token, error) {
	var random [30]byte
	_, _ = rand.Read(random[:]) // never fails
	if id == "" {
		id = hex.EncodeToString(random[24:])
	}
	secret := "sbx_" + hex.EncodeToString(random[:24])
	hash := sha256.Sum256([]byte(secret))
	var o tokenOptions
	for _, f := range opts {
		f(&o)
	}
	t, err := call[Token](ctx, a, protocol.MethodTokenCreate,
		protocol.AuthTokenRequest{ID: id, Identity: identity, Hash: hash[:], ExpiresAtMS: o.expires})
	if err == nil {
		t.Secret = secret
	}
	return t, err
}

// RevokeToken removes a token.
func (a *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, a, protocol.MethodTokenRevoke, protocol.AuthTokenRequest{ID: id})
	return err
}

// Grant sets what an identity may do at a path and below it: read, use (which includes read), admin
// (which includes both), or none. An entry for a longer path overrides it.
func (a *Client) Grant(ctx context.Context, identity, path, right string) (*Right, error) {
	return call[Right](ctx, a, protocol.MethodGrant, protocol.AuthRight{Identity: identity, Path: path, Right: right})
}

// Revoke removes the entry of an identity at a path.
func (a *Client) Revoke(ctx context.Context, identity, path string) error {
	_, err := call[struct{}](ctx, a, protocol.MethodRevoke, protocol.AuthRight{Identity: identity, Path: path})
	return err
}

// CreateTrust creates a trust, without rules. Its keys are fetched if its issuer is an https
// address; Problem of the answer says why that was not possible yet. Rules and Keys of t do not
// count.
func (a *Client) CreateTrust(ctx context.Context, t Trust) (*Trust, error) {
	t.Rules, t.Keys = nil, ""
	return call[Trust](ctx, a, protocol.MethodTrustCreate, t)
}

// PutTrust creates a trust with rules, or changes the one that there is. It keeps its keys unless
// its issuer is another one.
func (a *Client) PutTrust(ctx context.Context, t Trust) (*Trust, error) {
	t.Keys, t.Replace = "", true
	return call[Trust](ctx, a, protocol.MethodTrustCreate, t)
}

// MapTrust appends rules to those of a trust. The first rule that matches a token gives the
// identity.
func (a *Client) MapTrust(ctx context.Context, name string, rules ...TrustRule) (*Trust, error) {
	return call[Trust](ctx, a, protocol.MethodTrustMap, protocol.AuthTrust{Name: name, Rules: rules})
}

// SetTrustKeys replaces the keys of a trust, by a JSON Web Key Set. Connections that came in by a
// key that is gone are closed.
func (a *Client) SetTrustKeys(ctx context.Context, name string, keys []byte) (*Trust, error) {
	return call[Trust](ctx, a, protocol.MethodTrustKeys, protocol.AuthTrust{Name: name, Keys: string(keys)})
}

// Trust returns a trust with its keys.
func (a *Client) Trust(ctx context.Context, name string) (*Trust, error) {
	return call[Trust](ctx, a, protocol.MethodTrust, protocol.AuthTrust{Name: name})
}

// DeleteTrust deletes a trust, and closes the connections that came in by it.
func (a *Client) DeleteTrust(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, a, protocol.MethodTrustDelete, protocol.AuthTrust{Name: name})
	return err
}
