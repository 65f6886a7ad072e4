package shardhost

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// restorePause is the pause before a shard is asked again that did not lead here, or was busy.
const restorePause = 100 * time.Millisecond

// Restore imports what a backup has of runs of buckets into the shards that are to own them, which
// this instance leads. It may be interrupted at any point and repeated, also by another process:
// each shard knows how far it has come. Nothing is activated, so no shard serves a part, and the
// time of no session begins before all have their buckets: see [meta.TierRestored].
func (h *Hosting) Restore(ctx context.Context, from *backup.Source, tier uint8, runs []meta.Run) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	byShard := make(map[uint64][]meta.Run)
	for _, run := range runs {
		byShard[run.Shard] = append(byShard[run.Shard], run)
	}
	errs := make(chan error, len(byShard))
	for _, own := range byShard { // beside each other
		go func() { errs <- h.restoreRuns(ctx, from, tier, own) }()
	}
	var first error
	for range byShard {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// restoreRuns imports the runs of one shard, one after the other.
func (h *Hosting) restoreRuns(ctx context.Context, from *backup.Source, tier uint8, runs []meta.Run) error {
	for _, run := range runs {
		if err := h.restoreRun(ctx, from, tier, run); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hosting) restoreRun(ctx context.Context, from *backup.Source, tier uint8, run meta.Run) error {
	for _, part := range from.Parts(tier, run.First, run.Count) {
		if err := h.restorePart(ctx, from, run.Shard, part); err != nil {
			return fmt.Errorf("restore buckets %d to %d from the backup to shard %d: %w",
				part.First, part.First+part.Count-1, run.Shard, err)
		}
		h.Logger.Debug("buckets restored", "shard", run.Shard, "first", part.First, "count", part.Count)
	}
	return nil
}

// restorePart goes on until the shard has the whole part, or cannot have it.
func (h *Hosting) restorePart(ctx context.Context, from *backup.Source, id uint64, part shard.BucketsBody) error {
	for {
		if d := h.Shards.Get(id); d != nil && d.Leading() {
			done, err := importBuckets(ctx, d.replica, part, func(cursor []byte) (chunk, next []byte, err error) {
				return from.Chunk(part, cursor)
			}, func() bool { return ctx.Err() == nil })
			if done || err != nil && ctx.Err() == nil && !mayPass(err) {
				return err
			}
		}
		if !beat.Sleep(ctx, restorePause) {
			return ctx.Err()
		}
	}
}

// mayPass reports whether a shard may take later what it refused with this error.
func mayPass(err error) bool {
	switch protocol.StatusOf(err) {
	case protocol.StatusUnavailable, protocol.StatusWrongShard, protocol.StatusAborted, protocol.StatusOverloaded:
		return true
	}
	return false
}
