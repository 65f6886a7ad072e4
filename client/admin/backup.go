package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	snapshotPoll     = 50 * time.Millisecond // between two questions whether a snapshot is written
	snapshotAttempts = 5                     // snapshots that are begun when one is lost before its first byte
)

// ErrSnapshotLost: the instance that wrote a snapshot was stopped, or threw it away, before all of
// it was fetched. What was written is useless; begin again.
var ErrSnapshotLost = errors.New("snapshot was lost before all of it was fetched")

// Snapshot describes a shard's snapshot.
type Snapshot struct {
	Shard uint64 // 0 is the meta shard
	Size  uint64 // bytes
	Index uint64 // of the last log entry in it
}

// Backup writes a snapshot of a shard, 0 for the meta shard, as its leader has it behind a read
// barrier. open is called once, with the snapshot's description, for the writer. A snapshot that is
// lost before open is called is taken again; later the error is ErrSnapshotLost.
func (a *Client) Backup(ctx context.Context, shard uint64, open func(Snapshot) (io.Writer, error)) error {
	part, err := a.beginSnapshot(ctx, shard)
	for attempt := 1; errors.Is(err, client.ErrNotFound) && attempt < snapshotAttempts; attempt++ {
		part, err = a.beginSnapshot(ctx, shard)
	}
	if err != nil {
		return err
	}
	size, id := part.Size, part.Snapshot
	w, err := open(Snapshot{Shard: shard, Size: size, Index: part.Index})
	if err != nil {
		return err
	}
	for offset := uint64(0); ; {
		if _, err := w.Write(part.Bytes); err != nil {
			return err
		}
		if offset += uint64(len(part.Bytes)); offset >= size {
			return nil
		}
		part, err = a.backupPart(ctx, protocol.BackupRequest{Shard: shard, Snapshot: id, Offset: offset})
		switch {
		case errors.Is(err, client.ErrNotFound):
			return fmt.Errorf("%w: %w", ErrSnapshotLost, err)
		case err != nil:
			return err
		case !part.Ready || len(part.Bytes) == 0:
			return fmt.Errorf("%w: it has %d bytes, and was to have %d", ErrSnapshotLost, offset, size)
		}
	}
}

// beginSnapshot starts a snapshot and waits until it is written. The answer has its first part.
func (a *Client) beginSnapshot(ctx context.Context, shard uint64) (*protocol.BackupPart, error) {
	req := protocol.BackupRequest{Shard: shard}
	for {
		part, err := a.backupPart(ctx, req)
		if err != nil || part.Ready {
			return part, err
		}
		req.Snapshot = part.Snapshot
		select {
		case <-time.After(snapshotPoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *Client) backupPart(ctx context.Context, req protocol.BackupRequest) (*protocol.BackupPart, error) {
	return call[protocol.BackupPart](ctx, a, protocol.MethodBackup, req)
}
