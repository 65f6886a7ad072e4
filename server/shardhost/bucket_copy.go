package shardhost

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// exportChunk is how many bytes of moving buckets go into one entry of the target's log.
	exportChunk = 256 << 10
	// copyTime is how long one call of CopyBuckets goes on: less than a call between instances may
	// take.
	copyTime = 400 * time.Millisecond
	// exportTime bounds one export, so that a source that does not answer leaves time to say so.
	exportTime = 300 * time.Millisecond
	// importPause is the pause before a chunk is proposed again that the target could not take yet.
	importPause = 10 * time.Millisecond
)

// Export implements cluster.Local. What is frozen under an epoch is the same on every replica that
// has applied the freeze.
func (l Local) Export(
	_ context.Context, id uint64, run shard.BucketsBody, cursor []byte,
) (chunk, next []byte, err error) {
	d, err := l.ledShard(id)
	if err != nil {
		return nil, nil, err
	}
	d.replica.View(func(m *shard.Machine) {
		chunk, next, err = m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, exportChunk)
	})
	return chunk, next, err
}

// CopyBuckets implements governor.Shards. The target's leader fetches chunks from the source's.
func (l Local) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	d, err := l.ledShard(target)
	if err != nil {
		return false, err
	}
	until := time.Now().Add(copyTime)
	return importBuckets(ctx, d.replica, run, func(cursor []byte) (chunk, next []byte, err error) {
		ctx, cancel := context.WithTimeout(ctx, exportTime)
		defer cancel()
		if chunk, next, err = l.service.Export(ctx, source, run, cursor); err != nil {
			err = exportError(source, err)
		}
		return chunk, next, err
	}, func() bool { return time.Now().Before(until) })
}

// exportError is the source's error as the target reports it. A source without a reachable leader
// is ABORTED, to be tried again: WRONG_SHARD and UNAVAILABLE would be taken for the target's own,
// and send the governor to the target's other replicas.
func exportError(source uint64, err error) error {
	st := protocol.StatusOf(err)
	if st == protocol.StatusWrongShard || st == protocol.StatusUnavailable || errors.Is(err, context.DeadlineExceeded) {
		st = protocol.StatusAborted
	}
	return protocol.Errorf(st, "export from shard %d: %v", source, err)
}

// importer is a shard that buckets are imported into.
type importer interface {
	View(f func(m *shard.Machine))
	ProposeInternal(ctx context.Context, c shard.Command) error
}

// importBuckets imports the chunks of a run, from the first one that the shard has not got, for as
// long as more says so. Two may import the same run at the same time: the shard takes each chunk
// once.
func importBuckets(ctx context.Context, to importer, run shard.BucketsBody,
	export func(cursor []byte) (chunk, next []byte, err error),
	more func() bool,
) (done bool, err error) {
	var cursor []byte
	ok := false
	to.View(func(m *shard.Machine) { cursor, done, ok = m.Buckets().Imported(run.First, run.Count, run.Epoch) })
	if !ok {
		return false, protocol.Errorf(protocol.StatusPreconditionFailed,
			"buckets %d to %d cannot be imported under epoch %d any more",
			run.First, run.First+run.Count-1, run.Epoch)
	}
	for !done && more() {
		chunk, next, err := export(cursor)
		if err != nil {
			return false, err
		}
		body := shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk})
		if err := importChunk(ctx, to, run, cursor, body, more); err != nil {
			return false, err
		}
		cursor, done = next, len(next) == 0
	}
	return done, nil
}

// importChunk proposes a chunk until the shard has it. ABORTED with the shard still at the chunk's
// cursor says that the shard has work left over: the same chunk is proposed again.
func importChunk(
	ctx context.Context, to importer, run shard.BucketsBody, cursor, body []byte, more func() bool,
) error {
	for {
		err := to.ProposeInternal(ctx, shard.Command{Kind: shard.CmdImport, Body: body})
		if !errors.Is(err, protocol.StatusAborted) {
			return err
		}
		var at []byte
		waits := false
		to.View(func(m *shard.Machine) {
			var done bool
			at, done, waits = m.Buckets().Imported(run.First, run.Count, run.Epoch)
			waits = waits && !done
		})
		if !waits || !bytes.Equal(at, cursor) || !more() || !beat.Sleep(ctx, importPause) {
			return err
		}
	}
}
