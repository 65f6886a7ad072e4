package shardhost

import (
	"context"

	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Restore imports what a backup has of runs of buckets into the shards that are to own them, which
// this instance leads: see [backup.Source.Restore].
func (h *Hosting) Restore(ctx context.Context, from *backup.Source, tier uint8, runs []meta.Run) error {
	return from.Restore(ctx, tier, runs, func(ctx context.Context, id uint64, part shard.BucketsBody) (bool, error) {
		d := h.Shards.Get(id)
		if d == nil || !d.Leading() {
			return false, nil
		}
		return importBuckets(ctx, d.replica, part, func(cursor []byte) (chunk, next []byte, err error) {
			return from.Chunk(part, cursor)
		}, func() bool { return ctx.Err() == nil })
	}, h.Logger)
}
