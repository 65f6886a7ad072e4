package replica

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// stuckWriter holds its writer up, at one of its writes.
type stuckWriter struct {
	entered, release chan struct{}
	w                io.Writer
	at, n            int
}

func (s *stuckWriter) Write(b []byte) (int, error) {
	if s.n++; s.n == s.at {
		close(s.entered)
		<-s.release
	}
	return s.w.Write(b)
}

// TestBackupYields: a backup is the state by its digest; the engine's snapshot is not refused
// because of one, and a backup waits for the engine's.
func TestBackupYields(t *testing.T) {
	s := &Shard{cfg: ShardConfig{ID: 2}, machine: lockedMachine{machine: shard.New(2)}, stopC: make(chan struct{})}
	sm := (*stateMachine)(s)
	var whole bytes.Buffer
	if _, err := s.Backup(&whole); err != nil {
		t.Fatal(err)
	}
	if m, err := shard.Restore(&whole); err != nil || m.Digest() != s.Digest() {
		t.Fatalf("a backup is not the state: %v", err)
	}

	stuckAt := func(write int) (stuck *stuckWriter, ended chan error) {
		stuck = &stuckWriter{entered: make(chan struct{}), release: make(chan struct{}), w: io.Discard, at: write}
		ended = make(chan error, 1)
		go func() {
			_, err := s.Backup(stuck)
			ended <- err
		}()
		<-stuck.entered
		return stuck, ended
	}
	stuck, ended := stuckAt(1)
	if _, err := s.Backup(io.Discard); !errors.Is(err, protocol.StatusUnavailable) {
		t.Errorf("a backup beside another: %v", err)
	}
	state, err := sm.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	close(stuck.release)
	if err := <-ended; !errors.Is(err, protocol.StatusUnavailable) {
		t.Errorf("the backup that was in the way: %v", err)
	}
	if _, err := s.Backup(io.Discard); !errors.Is(err, protocol.StatusUnavailable) {
		t.Errorf("a backup while the engine's snapshot is written: %v", err)
	}
	var saved bytes.Buffer
	if err := sm.SaveSnapshot(state, &saved, nil, nil); err != nil {
		t.Fatalf("the engine's snapshot: %v", err)
	}
	if _, err := shard.Restore(&saved); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(io.Discard); err != nil {
		t.Errorf("afterwards: %v", err)
	}

	// One has its state already and still writes the last of it, and the next one has begun.
	stuck, ended = stuckAt(2)
	next, nextEnded := stuckAt(1)
	close(stuck.release)
	if err := <-ended; err != nil {
		t.Errorf("the first of two: %v", err)
	}
	if state, err = sm.PrepareSnapshot(); err != nil {
		t.Fatal(err)
	}
	if err := sm.SaveSnapshot(state, io.Discard, nil, nil); err != nil {
		t.Errorf("the engine's snapshot after the first of two: %v", err)
	}
	close(next.release)
	if err := <-nextEnded; !errors.Is(err, protocol.StatusUnavailable) {
		t.Errorf("the second of two, which was in the way: %v", err)
	}
}
