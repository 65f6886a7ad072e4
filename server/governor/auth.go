package governor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The calls below change tokens, rights and keys. Their errors are those of the calls in
// topology.go.

// PutToken adds a token. CreatedAt is filled in. It may be repeated: a token with the same id,
// identity and hash stays as it is.
func (svc Service) PutToken(ctx context.Context, t meta.Token) error {
	t.CreatedAt = svc.wall()
	err := svc.changeAuth(ctx, &meta.TokenPut{Token: t})
	if errors.Is(err, protocol.StatusAlreadyExists) && HasToken(svc.State(), t) {
		return nil
	}
	return err
}

// HasToken reports whether there is a token with the same id, identity and hash, whenever it was
// made.
func HasToken(s *meta.State, t meta.Token) bool {
	list, _ := s.Tokens()
	return slices.ContainsFunc(list, func(o meta.Token) bool {
		return o.ID == t.ID && o.Identity == t.Identity && o.Hash == t.Hash
	})
}

// RemoveToken revokes a token.
func (svc Service) RemoveToken(ctx context.Context, id string) error {
	return svc.changeAuth(ctx, &meta.TokenRemove{ID: id})
}

// ChangeTrust changes a trust, or adds one: change gets it as it is, or with its name alone, and
// may be called again.
func (svc Service) ChangeTrust(ctx context.Context, name string, change func(t *meta.Trust) error) error {
	_, err := svc.proposeAndWait(ctx, func(s *meta.State) (meta.Command, error) {
		t, ok := s.Trust(name)
		if !ok {
			t = meta.Trust{Name: name, CreatedAt: svc.wall()}
		}
		keys := t.Keys
		if err := change(&t); err != nil {
			return nil, err
		}
		if !bytes.Equal(keys, t.Keys) {
			t.KeysAt = svc.wall()
		}
		return &meta.TrustPut{Trust: t}, nil
	})
	return err
}

// RemoveTrust deletes a trust.
func (svc Service) RemoveTrust(ctx context.Context, name string) error {
	return svc.changeAuth(ctx, &meta.TrustRemove{Name: name})
}

// TokensUsed records that tokens are used now.
func (svc Service) TokensUsed(ctx context.Context, ids []string) error {
	return svc.changeAuth(ctx, &meta.TokensUsed{At: svc.wall(), IDs: ids})
}

// TurnAuth turns auth on or off. A token with an id becomes the first administrator: see
// meta.AuthSet.
func (svc Service) TurnAuth(ctx context.Context, on bool, t meta.Token) error {
	if t.ID != "" {
		t.CreatedAt = svc.wall()
	}
	return svc.changeAuth(ctx, &meta.AuthSet{On: on, Token: t})
}

// PutRight replaces the rights of an identity at a path and below.
func (svc Service) PutRight(ctx context.Context, r meta.Right) error {
	return svc.changeAuth(ctx, &meta.RightsPut{Right: r})
}

// RemoveRight removes the entry of a path and an identity. The entry of a shorter path applies
// then.
func (svc Service) RemoveRight(ctx context.Context, prefix, identity string) error {
	return svc.changeAuth(ctx, &meta.RightsRemove{Prefix: prefix, Identity: identity})
}

// errReplaced ends RotateKeys: the key has been replaced.
var errReplaced = errors.New("the ticket key has been replaced")

// RotateKeys replaces the current ticket key, which the caller names, by a new one. The previous
// key still verifies; older keys do not. If the key has been replaced already, nothing changes: so
// the call may be repeated, here and at other instances.
func (svc Service) RotateKeys(ctx context.Context, key uint64) error {
	var secret [meta.KeySecretLen]byte
	_, _ = rand.Read(secret[:]) // it never fails
	_, err := svc.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
		if current, _ := s.Keys(); current.ID > key {
			return nil, errReplaced
		}
		return &meta.RotateKeys{Current: key, Secret: secret}, nil
	})
	if errors.Is(err, errReplaced) {
		return nil
	}
	return err
}

func (svc Service) changeAuth(ctx context.Context, c meta.Command) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return c, nil })
	return err
}
