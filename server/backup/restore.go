package backup

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// restorePause is the pause before a shard is asked again that did not lead here, or was busy.
const restorePause = 100 * time.Millisecond

// Importer imports what fits of a part into a shard, from where an earlier call has ended. done: the
// shard has the whole part. It is not done, and no error, if the shard is not led here.
type Importer func(ctx context.Context, shard uint64, part shard.BucketsBody) (done bool, err error)

// Restore has the shards that are to own runs of buckets import what the backup has of them. It may be
// interrupted at any point and repeated, also by another process: each shard knows how far it has
// come. Nothing is activated, so no shard serves a part, and the time of no session begins before all
// have their buckets: see [meta.TierRestored].
func (s *Source) Restore(ctx context.Context, tier uint8, runs []meta.Run, to Importer, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	byShard := make(map[uint64][]meta.Run)
	for _, run := range runs {
		byShard[run.Shard] = append(byShard[run.Shard], run)
	}
	errs := make(chan error, len(byShard))
	for _, own := range byShard { // beside each other
		go func() { errs <- s.restoreRuns(ctx, tier, own, to, log) }()
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
func (s *Source) restoreRuns(ctx context.Context, tier uint8, runs []meta.Run, to Importer, log *slog.Logger) error {
	for _, run := range runs {
		for _, part := range s.Parts(tier, run.First, run.Count) {
			if err := restorePart(ctx, run.Shard, part, to); err != nil {
				return fmt.Errorf("restore buckets %d to %d from the backup to shard %d: %w",
					part.First, part.First+part.Count-1, run.Shard, err)
			}
			log.Debug("buckets restored", "shard", run.Shard, "first", part.First, "count", part.Count)
		}
	}
	return nil
}

// restorePart goes on until the shard has the whole part, or cannot have it.
func restorePart(ctx context.Context, id uint64, part shard.BucketsBody, to Importer) error {
	for {
		done, err := to(ctx, id, part)
		if done || err != nil && ctx.Err() == nil && !mayPass(err) {
			return err
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
