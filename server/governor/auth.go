package governor

import (
	"context"
	"fmt"
	"io"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The calls below change tokens, rights and keys. Their errors are those of the calls in
// topology.go.

// PutToken adds a token. CreatedAt is filled in. After an unknown outcome, repeat the call: it
// returns ALREADY_EXISTS if the token is there.
func (svc Service) PutToken(ctx context.Context, t meta.Token) error {
	t.CreatedAt = svc.wall()
	return svc.changeAuth(ctx, &meta.TokenPut{Token: t})
}

// RemoveToken revokes a token.
func (svc Service) RemoveToken(ctx context.Context, id string) error {
	return svc.changeAuth(ctx, &meta.TokenRemove{ID: id})
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

// RotateKeys makes a new ticket key. The previous key still verifies; older keys do not.
func (svc Service) RotateKeys(ctx context.Context) error {
	var secret [meta.KeySecretLen]byte
	if _, err := io.ReadFull(svc.random, secret[:]); err != nil {
		return fmt.Errorf("no random bytes for a ticket key: %w", err)
	}
	_, err := svc.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
		current, _ := s.Keys()
		return &meta.RotateKeys{Current: current.ID, Secret: secret}, nil
	})
	return err
}

func (svc Service) changeAuth(ctx context.Context, c meta.Command) error {
	_, err := svc.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return c, nil })
	return err
}
