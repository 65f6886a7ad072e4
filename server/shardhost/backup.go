package shardhost

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

const (
	// backupPartSize is the bytes of one answer. As JSON they must stay below the protocol's bound.
	backupPartSize = 512 << 10
	// maxBackups is the number of snapshots that may exist at a time.
	maxBackups = 16
	// backupIdle is how long a snapshot is kept that nobody asks for.
	backupIdle = time.Minute
	// backupGrace is how long one is kept whose last part was fetched: an answer that was lost is
	// asked for again.
	backupGrace = 10 * time.Second
	// backupSweep is the time between looks for snapshots that are not needed any more.
	backupSweep = time.Second
	// backupAttempts is how often a snapshot is begun again that one of the engine's interrupted.
	backupAttempts = 50
	// backupPause is the pause before that.
	backupPause = 100 * time.Millisecond
)

// Backups are snapshots of shards that operators fetch piece by piece. Each is written to a file
// without a name. So a slow reader holds up nothing in the shard, and no file is left when the
// process ends.
type Backups struct {
	hosting *Hosting

	mu       sync.Mutex
	byID     map[string]*backupSnapshot
	sweeping bool // dropUnused runs

	times map[string]int64 // when each shard was last read, see backupTimesFile; nil: not loaded
}

// backupSnapshot is one of them. The fields below ready do not change once it is closed.
type backupSnapshot struct {
	id    string
	shard uint64
	file  backupFile

	// Guarded by Backups.mu.
	used    time.Duration // clock
	fetched bool          // the last part was

	ready chan struct{}
	size  uint64
	index uint64
	err   error
}

// backupFile is where a snapshot is written.
type backupFile interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// Serve answers a request for a part of a backup. WRONG_SHARD sends it on to another instance.
func (b *Backups) Serve(ctx context.Context, request []byte) ([]byte, error) {
	var in protocol.BackupRequest
	if err := json.Unmarshal(request, &in); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the request is not the method's JSON document: %v", err)
	}
	in.Shard = cmp.Or(in.Shard, meta.MetaShardID)
	x := b.find(in.Snapshot, in.Shard)
	if x == nil {
		if err := b.led(in.Shard); err != nil {
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
	part.Bytes = make([]byte, min(backupPartSize, x.size-in.Offset))
	if _, err := x.file.ReadAt(part.Bytes, int64(in.Offset)); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read a snapshot: %w", err)
	}
	if in.Offset+uint64(len(part.Bytes)) == x.size {
		b.completed(x)
	}
	return json.Marshal(part)
}

// led says why a shard is not to be asked for here.
func (b *Backups) led(shard uint64) error {
	if shard == meta.MetaShardID {
		if !b.hosting.Meta.Leading() {
			return protocol.Errorf(protocol.StatusWrongShard, "the meta shard is not led on this instance")
		}
		return nil
	}
	_, err := Local{b.hosting}.ledShard(shard)
	return err
}

// find finds a backup that was begun.
func (b *Backups) find(id string, shard uint64) *backupSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.byID[id]
	if x == nil || x.shard != shard {
		return nil
	}
	x.used = b.hosting.Clock.Now()
	return x
}

// dropUnused drops snapshots that are not needed any more, until none is left or the instance ends.
// They take up the space of a shard each.
func (b *Backups) dropUnused() {
	for beat.Sleep(b.hosting.ctx, beat.Next(backupSweep)) && !b.sweep() {
	}
}

// sweep drops the snapshots that were fetched, and those that nobody asks for. If done, none is
// left, and the next one begins dropUnused again.
func (b *Backups) sweep() (done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.hosting.Clock.Now()
	for _, x := range b.byID {
		if idle := now - x.used; idle > backupIdle || x.fetched && idle > backupGrace {
			b.remove(x)
		}
	}
	b.sweeping = len(b.byID) > 0
	return !b.sweeping
}

// begin begins a snapshot.
func (b *Backups) begin(shard uint64) (*backupSnapshot, error) {
	f, err := b.create()
	if err != nil {
		return nil, err
	}
	x := &backupSnapshot{id: rand.Text(), shard: shard, file: f, used: b.hosting.Clock.Now(), ready: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byID) >= maxBackups {
		b.makeRoom()
	}
	if len(b.byID) >= maxBackups || b.hosting.ctx.Err() != nil {
		_ = f.Close()
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d snapshots are being fetched from this instance already; retry in a minute", len(b.byID))
	}
	b.byID[x.id] = x
	if !b.sweeping {
		b.sweeping = true
		b.hosting.Go(b.dropUnused)
	}
	b.hosting.Logger.Info("backup of a shard is begun", "shard", shard)
	b.hosting.Go(func() {
		defer close(x.ready)
		defer func() {
			if p := recover(); p != nil {
				b.hosting.Contain("backup", p)
				x.err = protocol.Errorf(protocol.StatusInternal,
					"a snapshot of shard %d could not be written; the instance's log says why", shard)
			}
		}()
		if x.index, x.size, x.err = b.write(x); x.err != nil {
			b.hosting.Logger.Warn("backup of a shard failed", "shard", shard, "error", x.err)
		}
	})
	return x, nil
}

// makeRoom drops the snapshot whose grace is nearest to its end. A backup of many small shards
// fetches them faster than they are swept. The caller holds mu.
func (b *Backups) makeRoom() {
	var first *backupSnapshot
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
func (b *Backups) create() (backupFile, error) {
	if b.hosting.Memory {
		return new(memoryFile), nil
	}
	f, err := os.CreateTemp(b.hosting.Dir, "backup-*")
	if err != nil {
		return nil, fmt.Errorf("place for a snapshot: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("place for a snapshot: %w", err)
	}
	return f, nil
}

func (b *Backups) write(x *backupSnapshot) (index, size uint64, err error) {
	ctx, cancel := context.WithTimeout(b.hosting.ctx, 10*time.Second)
	defer cancel()
	out := &countingWriter{w: x.file}
	if x.shard == meta.MetaShardID {
		index, err = b.hosting.Meta.Backup(ctx, out)
		return index, out.n, err
	}
	l := Local{b.hosting}
	d, err := l.ledShard(x.shard)
	if err == nil {
		err = l.barrier(ctx, d)
	}
	if err != nil {
		return 0, 0, err
	}
	for try := 1; ; try++ {
		index, err = d.replica.Backup(out)
		if err == nil || out.n > 0 || try == backupAttempts || !beat.Sleep(b.hosting.ctx, backupPause) {
			return index, out.n, err
		}
	}
}

func (b *Backups) drop(x *backupSnapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remove(x)
}

// remove forgets a backup. One that is being written keeps its file until it is. The caller holds
// mu.
func (b *Backups) remove(x *backupSnapshot) {
	delete(b.byID, x.id)
	select {
	case <-x.ready:
		_ = x.file.Close() // it has no name: nothing of it is left
	default:
		b.hosting.Go(func() {
			<-x.ready
			_ = x.file.Close()
		})
	}
}

// Close forgets all. Nothing may be being written any more.
func (b *Backups) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.byID {
		delete(b.byID, x.id)
		_ = x.file.Close()
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
