package shardhost

import (
	"context"
	"io"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// backupAttempts is how often a snapshot is begun again that one of the engine's interrupted.
	backupAttempts = 50
	// backupPause is the pause before that.
	backupPause = 100 * time.Millisecond
)

// led says why a shard is not to be asked for here.
func (l Local) led(shard uint64) error {
	if shard == meta.MetaShardID {
		if !l.Meta.Leading() {
			return protocol.Errorf(protocol.StatusWrongShard, "the meta shard is not led on this instance")
		}
		return nil
	}
	_, err := l.ledShard(shard)
	return err
}

// writeSnapshot writes a snapshot of a shard that is led here.
func (l Local) writeSnapshot(ctx context.Context, shard uint64, to io.Writer) (index, size uint64, err error) {
	out := &countingWriter{w: to}
	if shard == meta.MetaShardID {
		index, err = l.Meta.Backup(ctx, out)
		return index, out.n, err
	}
	d, err := l.ledShard(shard)
	if err == nil {
		err = l.barrier(ctx, d)
	}
	if err != nil {
		return 0, 0, err
	}
	for try := 1; ; try++ {
		index, err = d.replica.Backup(out)
		if err == nil || out.n > 0 || try == backupAttempts || !beat.Sleep(l.ctx, backupPause) {
			return index, out.n, err
		}
	}
}

type countingWriter struct {
	w io.Writer
	n uint64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += uint64(n)
	return n, err
}

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
