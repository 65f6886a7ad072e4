package replica

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/shard"
)

// PrepareSnapshot fixes the state to be saved, cheaply; Update continues afterwards.
func (sm *stateMachine) PrepareSnapshot() (interface{}, error) {
	sm.logTail.bytes.Store(0)
	sm.logTail.entries.Store(0)
	return sm.machine.prepareSnapshot(), nil
}

// SaveSnapshot writes it while entries are applied.
func (sm *stateMachine) SaveSnapshot(
	state interface{}, w io.Writer, _ statemachine.ISnapshotFileCollection, stop <-chan struct{},
) error {
	snap, ok := state.(*shard.Snapshot)
	if !ok {
		return fmt.Errorf("snapshot of type %T was not prepared here", state)
	}
	defer sm.machine.closeSnapshot(snap)
	out := &restingWriter{stoppableWriter: stoppableWriter{w: w, stop: stop}, resumed: time.Now()}
	if err := snap.WriteTo(out, &sm.machine.mu); err != nil {
		if isClosed(stop) {
			return statemachine.ErrSnapshotStopped
		}
		return fmt.Errorf("save snapshot: %w", err)
	}
	sm.logTail.snapshot.Store(out.n)
	sm.counters.snapshots.Add(1)
	return nil
}

// RecoverFromSnapshot replaces the machine: at start, or when this replica lagged so far that the
// leader sent a snapshot instead of the log.
func (sm *stateMachine) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, stop <-chan struct{}) error {
	s := (*Shard)(sm)
	in := &stoppableReader{r: r, stop: stop}
	m, err := shard.Restore(in)
	if err != nil {
		if isClosed(stop) {
			return statemachine.ErrSnapshotStopped
		}
		return s.host.fatal(fmt.Errorf("restore the snapshot of shard %d: %w", s.cfg.ID, err))
	}
	s.applyMu.Lock()
	defer s.applyMu.Unlock()
	epoch, logTime := s.machine.replace(m)
	s.counters.restores.Add(1)
	s.logTail.snapshot.Store(in.n)
	s.logTail.bytes.Store(0)
	s.logTail.entries.Store(0)
	// The snapshot may or may not include the batches in flight: their entries will not be seen
	// here.
	s.proposer.cutUndetermined("outcome unknown: the replica was restored from a snapshot")
	s.leadership.epochApplied(epoch, logTime)
	if r, ok := s.sink.(Restorer); ok {
		r.Restored(s)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stoppableWriter ends a long save when the replica stops, and counts bytes.
type stoppableWriter struct {
	w    io.Writer
	stop <-chan struct{}
	n    int64
}

func (w *stoppableWriter) Write(b []byte) (int, error) {
	if isClosed(w.stop) {
		return 0, statemachine.ErrSnapshotStopped
	}
	n, err := w.w.Write(b)
	w.n += int64(n)
	return n, err
}

// restAfter is how many bytes a save writes between two rests: 0.2 ms of work.
const restAfter = 64 << 10

// restingWriter rests as long as it has worked, so that a save takes at most half of a processor.
// Without rests the requests beside the save of a million semaphores wait four times as long on two
// cores.
type restingWriter struct {
	stoppableWriter
	resumed time.Time // the last rest's end
	work    int       // bytes since then
}

func (w *restingWriter) Write(b []byte) (int, error) {
	if w.work >= restAfter {
		w.rest()
	}
	n, err := w.stoppableWriter.Write(b)
	w.work += n
	return n, err
}

func (w *restingWriter) rest() {
	t := time.NewTimer(time.Since(w.resumed))
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.stop:
	}
	w.resumed, w.work = time.Now(), 0
}

// stoppableReader ends a long restore when the replica stops, and counts bytes.
type stoppableReader struct {
	r    io.Reader
	stop <-chan struct{}
	n    int64
}

func (r *stoppableReader) Read(b []byte) (int, error) {
	if isClosed(r.stop) {
		return 0, statemachine.ErrSnapshotStopped
	}
	n, err := r.r.Read(b)
	r.n += int64(n)
	return n, err
}

// logTail is the log that a restart would read back.
type logTail struct {
	most        int64        // bytes after which a snapshot is due, unless the last one was larger
	bytes       atomic.Int64 // applied since the last snapshot began
	entries     atomic.Int64
	snapshot    atomic.Int64 // bytes of the last snapshot
	requestedAt atomic.Int64 // when a snapshot was requested, by the host's clock
}

// snapshotRetry is how long a requested snapshot may take to begin before it is requested again.
const snapshotRetry = 10 * time.Second

// snapshotDue records that a snapshot is requested now if the log since the last one is too long in
// bytes. The engine counts entries, but an entry is a batch of one command or thousands. A snapshot
// larger than the bound is repeated only after as much has been logged again.
func (t *logTail) snapshotDue(clock Clock) bool {
	if t.bytes.Load() < max(t.most, t.snapshot.Load()) {
		return false
	}
	now := clock.Now()
	if asked := t.requestedAt.Load(); asked != 0 && now-time.Duration(asked) < snapshotRetry {
		return false
	}
	t.requestedAt.Store(int64(now))
	return true
}
