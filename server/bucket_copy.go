package server

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

const (
	// exportChunk is how many bytes of moving buckets go into one entry of the target's log.
	exportChunk = 256 << 10
	// copyTime is how long one call of CopyBuckets goes on: less than a call between instances may take.
	copyTime = 400 * time.Millisecond
)

// Export implements cluster.Local. What is frozen under an epoch is the same on every replica that has applied the freeze.
func (l localOperations) Export(_ context.Context, id uint64, run shard.BucketsBody, cursor []byte) (chunk, next []byte, err error) {
	d, err := l.ledShard(id)
	if err != nil {
		return nil, nil, err
	}
	d.raft.View(func(m *shard.Machine) {
		chunk, next, err = m.Export(run.First, run.Count, run.Epoch, cursor, exportChunk)
	})
	return chunk, next, err
}

// CopyBuckets implements governor.Shards. The target's leader fetches chunks from the source's.
func (l localOperations) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	d, err := l.ledShard(target)
	if err != nil {
		return false, err
	}
	until := time.Now().Add(copyTime)
	return importBuckets(ctx, d.raft, run, func(cursor []byte) (chunk, next []byte, err error) {
		return l.s.member.Export(ctx, source, run, cursor)
	}, func() bool { return time.Now().Before(until) })
}

// importer is a shard that buckets are imported into.
type importer interface {
	View(f func(m *shard.Machine))
	ProposeInternal(ctx context.Context, c shard.Command) error
}

// importBuckets imports the chunks of a run, from the first one that the shard has not got, for as
// long as more says so. Two may import the same run at the same time: the shard takes each chunk once.
func importBuckets(ctx context.Context, to importer, run shard.BucketsBody, export func(cursor []byte) (chunk, next []byte, err error),
	more func() bool,
) (done bool, err error) {
	var cursor []byte
	ok := false
	to.View(func(m *shard.Machine) { cursor, done, ok = m.Imported(run.First, run.Count, run.Epoch) })
	if !ok {
		return false, protocol.Errorf(protocol.StatusPreconditionFailed, "buckets %d to %d cannot be imported under epoch %d any more",
			run.First, run.First+run.Count-1, run.Epoch)
	}
	for !done && more() {
		chunk, next, err := export(cursor)
		if err != nil {
			return false, err
		}
		body := shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk})
		if err := to.ProposeInternal(ctx, shard.Command{Kind: shard.CmdImport, Body: body}); err != nil {
			return false, err
		}
		cursor, done = next, len(next) == 0
	}
	return done, nil
}
