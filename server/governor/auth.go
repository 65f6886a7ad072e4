package governor

import (
	"context"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// The calls below change tokens and rights. Their errors are those of the calls in topology.go.

// PutToken adds a token. CreatedAt is filled in. After an unknown outcome, repeat the call: it
// returns ALREADY_EXISTS if the token is there.
func (g *Governor) PutToken(ctx context.Context, t meta.Token) error {
	t.CreatedAt = g.wall()
	return g.changeAuth(ctx, &meta.TokenPut{Token: t})
}

// RemoveToken revokes a token.
func (g *Governor) RemoveToken(ctx context.Context, id string) error {
	return g.changeAuth(ctx, &meta.TokenRemove{ID: id})
}

// TurnAuth turns auth on or off. A token with an id becomes the first administrator: see
// meta.AuthSet.
func (g *Governor) TurnAuth(ctx context.Context, on bool, t meta.Token) error {
	if t.ID != "" {
		t.CreatedAt = g.wall()
	}
	return g.changeAuth(ctx, &meta.AuthSet{On: on, Token: t})
}

// PutRight replaces the rights of an identity at a path and below.
func (g *Governor) PutRight(ctx context.Context, r meta.Right) error {
	return g.changeAuth(ctx, &meta.RightsPut{Right: r})
}

// RemoveRight removes the entry of a path and an identity. The entry of a shorter path applies
// then.
func (g *Governor) RemoveRight(ctx context.Context, prefix, identity string) error {
	return g.changeAuth(ctx, &meta.RightsRemove{Prefix: prefix, Identity: identity})
}

func (g *Governor) changeAuth(ctx context.Context, c meta.Command) error {
	_, err := g.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return c, nil })
	return err
}
