package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// Recovery reads the logs of a raft directory whose majority is lost: each replica's newest
// snapshot and every entry after it, including entries not known to be committed. Without a
// majority it is unknown which of the last ones were committed. An acknowledged one may be among
// them; one that was not acknowledged does no more harm than a request whose reply was lost.
//
// It opens the directory as a host does, and may write to it: give it a copy. The raft address is
// the one that the directory was created with; no other host is contacted.
type Recovery struct {
	host   *Host
	logs   []RecoveredLog
	unread []RecoveredLog // nothing is left of them

	mu     sync.Mutex
	fatal  error // the engine cannot go on
	failed chan struct{}
}

// RecoveredLog is the position of a replica's log. Of two logs of a shard the one with the higher
// term of the last entry is newer; with equal terms, the longer one.
type RecoveredLog struct {
	Shard, Replica uint64
	Term           uint64 // the highest known
	LastTerm       uint64 // of the last entry
	LastIndex      uint64
	Committed      uint64 // the highest index known to be committed
	Snapshot       uint64 // index of its snapshot, 0 for none
	Loss           string // why entries may be missing; empty for a complete log
}

// Newer reports whether the log has more than another one of the same shard.
func (l *RecoveredLog) Newer(o *RecoveredLog) bool {
	if l.LastTerm != o.LastTerm {
		return l.LastTerm > o.LastTerm
	}
	return l.LastIndex > o.LastIndex
}

// OpenRecovery opens a copy of a raft directory. It fails like [OpenHost]: if another process uses
// it or the log cannot be read. Unless acceptLoss, it also fails if the log is behind its watermark
// or has none.
func OpenRecovery(dir, raftAddress string, acceptLoss bool, logger *slog.Logger) (*Recovery, error) {
	return openRecovery(HostConfig{Dir: dir, RaftAddress: raftAddress, Logger: logger, acceptLoss: acceptLoss})
}

func openRecovery(cfg HostConfig) (*Recovery, error) {
	s := &Recovery{failed: make(chan struct{})}
	cfg.Fatal = s.fail
	cfg.recovery = true
	var err error
	s.host, err = OpenHost(cfg)
	if err != nil {
		return nil, err
	}
	for _, k := range s.host.StoredReplicas() {
		l, err := s.readLog(k[0], k[1])
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read the log of %s: %w", shardName(k[0]), err), s.Close())
		}
		switch {
		case l.LastIndex > 0:
			s.logs = append(s.logs, l)
		case l.Loss != "":
			s.unread = append(s.unread, l)
		}
	}
	return s, nil
}

func (s *Recovery) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fatal == nil {
		s.fatal = err
		close(s.failed)
	}
}

func shardName(id uint64) string {
	if id == MetaShard {
		return "the meta shard"
	}
	return fmt.Sprintf("shard %d", id)
}

// Logs returns the logs, in order of shard and replica. Replicas without any entry are left out.
func (s *Recovery) Logs() []RecoveredLog { return slices.Clone(s.logs) }

// Unread returns the logs of which no entry and no snapshot can be read, with their Loss.
func (s *Recovery) Unread() []RecoveredLog { return slices.Clone(s.unread) }

// Close closes the directory.
func (s *Recovery) Close() error { return s.host.Close() }

// readLog reads the position of a log.
func (s *Recovery) readLog(id, replica uint64) (l RecoveredLog, err error) {
	defer recoverDamaged(&err)
	l = RecoveredLog{Shard: id, Replica: replica, Loss: s.host.store.Loss(id, replica)}
	snapshot, err := s.host.store.GetSnapshot(id, replica)
	if err != nil {
		return l, err
	}
	l.Snapshot, l.LastTerm, l.LastIndex = snapshot.Index, snapshot.Term, snapshot.Index
	state, err := s.host.store.ReadRaftState(id, replica, snapshot.Index)
	if errors.Is(err, raftio.ErrNoSavedLog) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	l.Term, l.Committed = state.State.Term, state.State.Commit
	if state.EntryCount == 0 {
		return l, nil
	}
	if state.FirstIndex > snapshot.Index+1 {
		gap := fmt.Sprintf("entries %d to %d are missing between its snapshot and its log",
			snapshot.Index+1, state.FirstIndex-1)
		if l.Loss == "" {
			return l, errors.New(gap)
		}
		l.Loss += "; " + gap // it ends with its snapshot
		return l, nil
	}
	last := state.FirstIndex + state.EntryCount - 1
	if last <= snapshot.Index {
		return l, nil
	}
	entries, _, err := s.host.store.IterateEntries(nil, 0, id, replica, last, last+1, 1<<62)
	if err != nil {
		return l, err
	}
	if len(entries) != 1 || entries[0].Index != last {
		return l, fmt.Errorf("its last entry, %d, cannot be read", last)
	}
	l.LastTerm, l.LastIndex = entries[0].Term, last
	return l, nil
}

// Shard builds the machine of a data shard's log.
func (s *Recovery) Shard(ctx context.Context, l RecoveredLog) (*shard.Machine, error) {
	m := shard.New(l.Shard)
	err := s.snapshot(ctx, &l, func(r io.Reader) (err error) {
		m, err = shard.Restore(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out shard.Events
	return m, s.entries(ctx, &l, func(index uint64, cmd []byte) error {
		if _, _, err := shard.ReadHeader(cmd); errors.Is(err, shard.ErrFormat) {
			return err
		}
		out.Reset()
		m.Apply(index, cmd, &out)
		return nil
	})
}

// Meta builds the machine of the meta shard's log.
func (s *Recovery) Meta(ctx context.Context, l RecoveredLog) (*meta.Machine, error) {
	m := meta.New()
	err := s.snapshot(ctx, &l, func(r io.Reader) (err error) {
		m, err = meta.Restore(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, s.entries(ctx, &l, func(index uint64, cmd []byte) error {
		if err := meta.CheckFormat(cmd); err != nil {
			return err
		}
		m.Apply(index, cmd)
		return nil
	})
}

// snapshot makes the engine read the log's snapshot, which checks it. What the engine does with the
// entries after it does not matter.
func (s *Recovery) snapshot(ctx context.Context, l *RecoveredLog, restore func(io.Reader) error) error {
	if l.Snapshot == 0 {
		return nil
	}
	reader := &recoveryMachine{restore: restore, done: make(chan error, 1)}
	g := &group{shard: l.Shard, id: l.Replica, replica: reader}
	cfg := engine.GroupConfig(l.Shard, l.Replica, 0, 0)
	cfg.SnapshotEntries, cfg.CompactionOverhead = 0, 0 // no new snapshots
	create := func(uint64, uint64) statemachine.IConcurrentStateMachine { return reader }
	if err := s.host.startGroup(g, bootstrap{}, create, cfg); err != nil {
		return err
	}
	var err error
	select {
	case err = <-reader.done:
	case <-s.failed:
		err = s.fatal
	case <-ctx.Done():
		err = ctx.Err()
	}
	if stop := s.host.stopGroup(g); err == nil {
		err = stop
	}
	if err != nil {
		return fmt.Errorf("snapshot of %s: %w", shardName(l.Shard), err)
	}
	return nil
}

// recoveryChunk bounds the entries in memory at a time, in bytes.
const recoveryChunk = 16 << 20

// recoverDamaged turns the log store's panics on damaged files into an error.
func recoverDamaged(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %v", logstore.ErrDamaged, r)
	}
}

// entries calls apply with the commands of the log after its snapshot, in order.
func (s *Recovery) entries(
	ctx context.Context, l *RecoveredLog, apply func(index uint64, cmd []byte) error,
) (err error) {
	defer recoverDamaged(&err)
	at := l.Snapshot + 1
	for at <= l.LastIndex {
		if err := ctx.Err(); err != nil {
			return err
		}
		list, _, err := s.host.store.IterateEntries(nil, 0, l.Shard, l.Replica, at, l.LastIndex+1, recoveryChunk)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", shardName(l.Shard), err)
		}
		if len(list) == 0 {
			return fmt.Errorf("the log of %s is incomplete: entry %d is missing", shardName(l.Shard), at)
		}
		for i := range list {
			e := &list[i]
			if e.Index != at {
				return fmt.Errorf("the log of %s is incomplete: entry %d is in place of %d",
					shardName(l.Shard), e.Index, at)
			}
			at++
			cmd, ok, err := commandOf(e)
			if err == nil && ok {
				err = apply(e.Index, cmd)
			}
			if err != nil {
				return fmt.Errorf("entry %d of %s: %w", e.Index, shardName(l.Shard), err)
			}
		}
	}
	return nil
}

// commandOf returns the command of an entry; false for an entry of the engine. The engine puts a
// byte before a command, its compression; 0: uncompressed.
func commandOf(e *pb.Entry) (cmd []byte, ok bool, err error) {
	switch {
	case e.Type == pb.ApplicationEntry && len(e.Cmd) > 0:
		return e.Cmd, true, nil
	case e.Type != pb.EncodedEntry:
		return nil, false, nil
	case len(e.Cmd) < 2 || e.Cmd[0] != 0:
		return nil, false, errors.New("it has an unknown compression; use the program version that wrote it")
	}
	return e.Cmd[1:], true, nil
}

// recoveryMachine receives a snapshot from the engine.
type recoveryMachine struct {
	restore func(io.Reader) error
	once    sync.Once
	done    chan error
}

var (
	_ statemachine.IConcurrentStateMachine = (*recoveryMachine)(nil)
	_ replicaMachine                       = (*recoveryMachine)(nil)
)

func (m *recoveryMachine) RecoverFromSnapshot(r io.Reader, _ []statemachine.SnapshotFile, _ <-chan struct{}) error {
	m.once.Do(func() { m.done <- m.restore(r) })
	return nil
}

func (m *recoveryMachine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	return entries, nil
}

func (m *recoveryMachine) PrepareSnapshot() (any, error) { return nil, statemachine.ErrSnapshotStopped }

func (m *recoveryMachine) SaveSnapshot(any, io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return statemachine.ErrSnapshotStopped
}

func (m *recoveryMachine) Lookup(any) (any, error) { return nil, errors.ErrUnsupported }
func (m *recoveryMachine) Close() error            { return nil }

func (m *recoveryMachine) leaderUpdated(uint64, uint64)  {}
func (m *recoveryMachine) tick(time.Duration)            {}
func (m *recoveryMachine) startTick() func(bool)         { return func(bool) {} }
func (m *recoveryMachine) quiet() bool                   { return true }
func (m *recoveryMachine) appliedEntries() uint64        { return 0 }
func (m *recoveryMachine) awaitQuiet(time.Duration) bool { return true }
func (m *recoveryMachine) transfer(context.Context, uint64, uint64) error {
	return errors.ErrUnsupported
}
func (m *recoveryMachine) report(*GroupReport) {}
func (m *recoveryMachine) stop()               {}
func (m *recoveryMachine) stopped()            {}
