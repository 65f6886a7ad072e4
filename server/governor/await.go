package governor

import (
	"context"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Await returns when what is true of the state that this instance has applied, or when ctx ends.
func (g *Governor) Await(ctx context.Context, what func(s *meta.State) bool) error {
	for {
		changed := g.changes.wait()
		if what(g.State()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
