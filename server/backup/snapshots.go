package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// partSize is the bytes of one answer. As JSON they must stay below the protocol's bound.
	partSize = 512 << 10
	// maxSnapshots is the number of snapshots that may exist at a time.
	maxSnapshots = 16
	// snapshotIdle is how long a snapshot is kept that nobody asks for.
	snapshotIdle = time.Minute
	// snapshotGrace is how long one is kept whose last part was fetched: an answer that was lost is
	// asked for again.
	snapshotGrace = 10 * time.Second
	// snapshotSweep is the time between looks for snapshots that are not needed any more.
	snapshotSweep = time.Second
)

// SnapshotsConfig is what Snapshots need of an instance. All fields are required.
type SnapshotsConfig struct {
	Clock  Clock
	Logger *slog.Logger
	Dir    string // the data folder
	Memory bool   // nothing is on disk

	// Led says why a shard is not to be asked for here, and Write writes one.
	Led   func(shard uint64) error
	Write func(ctx context.Context, shard uint64, to io.Writer) (index, size uint64, err error)

	Go      func(func())                     // starts a goroutine that ends with the context
	Contain func(where string, panicked any) // reports a contained panic
}

// Clock is a clock that never goes back, and the time of day.
type Clock interface {
	Now() time.Duration
	Wall() time.Time
}

// Snapshots are snapshots of shards that operators fetch piece by piece. Each is written to a file
// without a name. So a slow reader holds up nothing in the shard, and no file is left when the
// process ends.
type Snapshots struct {
	cfg SnapshotsConfig
	ctx context.Context

	mu       sync.Mutex
	byID     map[string]*shardSnapshot
	sweeping bool // dropUnused runs

	times map[string]int64 // when each shard was last read, see backupTimesFile; nil: not loaded
}

// shardSnapshot is one of them. The fields below ready do not change once it is closed.
type shardSnapshot struct {
	id    string
	shard uint64
	file  snapshotFile

	// Guarded by Snapshots.mu.
	used    time.Duration // clock
	fetched bool          // the last part was

	ready chan struct{}
	size  uint64
	index uint64
	err   error
}

// snapshotFile is where a snapshot is written.
type snapshotFile interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// NewSnapshots returns none yet. Its goroutines end with ctx.
func NewSnapshots(ctx context.Context, cfg SnapshotsConfig) *Snapshots {
	return &Snapshots{cfg: cfg, ctx: ctx, byID: make(map[string]*shardSnapshot)}
}

// Serve answers a request for a part of a backup. WRONG_SHARD sends it on to another instance.
func (b *Snapshots) Serve(ctx context.Context, request []byte) ([]byte, error) {
	var in protocol.BackupRequest
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the request is not the method's JSON document: %v", err)
	}
	in.Shard = cmp.Or(in.Shard, meta.MetaShardID)
	x := b.find(in.Snapshot, in.Shard)
	if x == nil {
		if err := b.cfg.Led(in.Shard); err != nil {
			return nil, err
		}
		if in.Snapshot != "" {
			return nil, protocol.Errorf(protocol.StatusNotFound, "this snapshot is gone; begin the backup again")
		}
		var err error
		if x, err = b.begin(in.Shard); err != nil {
			return nil, err
		}
	}
	part := protocol.BackupPart{Snapshot: x.id}
	select {
	case <-x.ready:
	case <-time.After(100 * time.Millisecond): // the asking instance waits for a second at most
		return json.Marshal(part)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if x.err != nil {
		b.drop(x)
		return nil, x.err
	}
	if in.Offset > x.size {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "offset is %d, the snapshot has %d bytes", in.Offset, x.size)
	}
	part.Ready, part.Size, part.Index = true, x.size, x.index
	part.Bytes = make([]byte, min(partSize, x.size-in.Offset))
	if _, err := x.file.ReadAt(part.Bytes, int64(in.Offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	if in.Offset+uint64(len(part.Bytes)) == x.size {
		b.completed(x)
	}
	return json.Marshal(part)
}

// find finds a backup that was begun.
func (b *Snapshots) find(id string, shard uint64) *shardSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.byID[id]
	if x == nil || x.shard != shard {
		return nil
	}
	x.used = b.cfg.Clock.Now()
	return x
}

// dropUnused drops snapshots that are not needed any more, until none is left or the instance ends.
// They take up the space of a shard each.
func (b *Snapshots) dropUnused() {
	for beat.Sleep(b.ctx, beat.Next(snapshotSweep)) && !b.sweep() {
	}
}

// sweep drops the snapshots that were fetched, and those that nobody asks for. If done, none is
// left, and the next one begins dropUnused again.
func (b *Snapshots) sweep() (done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	for _, x := range b.byID {
		if idle := now - x.used; idle > snapshotIdle || x.fetched && idle > snapshotGrace {
			b.remove(x)
		}
	}
	b.sweeping = len(b.byID) > 0
	return !b.sweeping
}

// begin begins a snapshot.
func (b *Snapshots) begin(shard uint64) (*shardSnapshot, error) {
	f, err := b.create()
	if err != nil {
		return nil, err
	}
	x := &shardSnapshot{id: rand.Text(), shard: shard, file: f, used: b.cfg.Clock.Now(), ready: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byID) >= maxSnapshots {
		b.makeRoom()
	}
	if len(b.byID) >= maxSnapshots || b.ctx.Err() != nil {
		_ = f.Close()
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d snapshots are being fetched from this instance already; retry in a minute", len(b.byID))
	}
	b.byID[x.id] = x
	if !b.sweeping {
		b.sweeping = true
		b.cfg.Go(b.dropUnused)
	}
	b.cfg.Logger.Info("backup of a shard is begun", "shard", shard)
	b.cfg.Go(func() {
		defer close(x.ready)
		defer func() {
			if p := recover(); p != nil {
				b.cfg.Contain("backup", p)
				x.err = protocol.Errorf(protocol.StatusInternal,
					"a snapshot of shard %d could not be written; the instance's log says why", shard)
			}
		}()
		if x.index, x.size, x.err = b.write(x); x.err != nil {
			b.cfg.Logger.Warn("backup of a shard failed", "shard", shard, "error", x.err)
		}
	})
	return x, nil
}

// makeRoom drops the snapshot whose grace is nearest to its end. A backup of many small shards
// fetches them faster than they are swept. The caller holds mu.
func (b *Snapshots) makeRoom() {
	var first *shardSnapshot
	for _, x := range b.byID {
		if x.fetched && (first == nil || x.used < first.used) {
			first = x
		}
	}
	if first != nil {
		b.remove(first)
	}
}

// create makes the place for a snapshot: a file without a name, or memory where nothing is on disk.
func (b *Snapshots) create() (snapshotFile, error) {
	if b.cfg.Memory {
		return new(memoryFile), nil
	}
	f, err := os.CreateTemp(b.cfg.Dir, "backup-*")
	if err != nil {
		return nil, fmt.Errorf("place for a snapshot: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("place for a snapshot: %w", err)
	}
	return f, nil
}

func (b *Snapshots) write(x *shardSnapshot) (index, size uint64, err error) {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	return b.cfg.Write(ctx, x.shard, x.file)
}

func (b *Snapshots) drop(x *shardSnapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(x)
}

// remove forgets a backup. One that is being written keeps its file until it is. The caller holds
// mu.
func (b *Snapshots) remove(x *shardSnapshot) {
	delete(b.byID, x.id)
	select {
	case <-x.ready:
		_ = x.file.Close() // it has no name: nothing of it is left
	default:
		b.cfg.Go(func() {
			<-x.ready
			_ = x.file.Close()
		})
	}
}

// Close forgets all. Nothing may be being written any more.
func (b *Snapshots) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.byID {
		delete(b.byID, x.id)
		_ = x.file.Close()
	}
}

// memoryFile is a file in memory.
type memoryFile struct{ bytes.Buffer }

func (m *memoryFile) ReadAt(b []byte, at int64) (int, error) {
	n := copy(b, m.Bytes()[min(at, int64(m.Len())):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memoryFile) Close() error { return nil }
