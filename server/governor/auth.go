package governor

import (
	"context"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// What follows changes who may do what, with the errors of the changes of the cluster.

// PutToken adds a token. CreatedAt is filled in. A call that is repeated with the same token after an unknown outcome finds it there: ALREADY_EXISTS.
func (g *Governor) PutToken(ctx context.Context, t meta.Token) error {
	t.CreatedAt = g.wall()
	return g.changeAuth(ctx, &meta.TokenPut{Token: t})
}

// RemoveToken revokes a token.
func (g *Governor) RemoveToken(ctx context.Context, id string) error {
	return g.changeAuth(ctx, &meta.TokenRemove{ID: id})
}

// TurnAuth turns auth on or off; a token with an id makes the first administrator, see meta.AuthSet.
func (g *Governor) TurnAuth(ctx context.Context, on bool, t meta.Token) error {
	if t.ID != "" {
		t.CreatedAt = g.wall()
	}
	return g.changeAuth(ctx, &meta.AuthSet{On: on, Token: t})
}

// PutRight gives an identity its rights at a path and below, in place of those it had by an entry for that path.
func (g *Governor) PutRight(ctx context.Context, r meta.Right) error {
	return g.changeAuth(ctx, &meta.RightsPut{Right: r})
}

// RemoveRight removes the entry of a path and an identity: what counts then is that of a shorter path.
func (g *Governor) RemoveRight(ctx context.Context, prefix, identity string) error {
	return g.changeAuth(ctx, &meta.RightsRemove{Prefix: prefix, Identity: identity})
}

func (g *Governor) changeAuth(ctx context.Context, c meta.Command) error {
	_, err := g.proposeAndWait(ctx, func(*meta.State) (meta.Command, error) { return c, nil })
	return err
}
