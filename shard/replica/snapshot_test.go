package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lni/dragonboat/v4/statemachine"
)

// busyWriter takes a while for each write.
type busyWriter time.Duration

func (w busyWriter) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(w))
	return len(b), nil
}

// TestSavesRest: a save rests as long as it has worked, and a stop ends the rest.
func TestSavesRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 16 // until a rest
		stop, began := make(chan struct{}), time.Now()
		w := &restingWriter{stoppableWriter: stoppableWriter{w: busyWriter(time.Minute), stop: stop}, resumed: began}
		write := func() error {
			_, err := w.Write(make([]byte, restAfter/pieces))
			return err
		}
		for range 10 * pieces {
			if err := write(); err != nil {
				t.Fatal(err)
			}
		}
		work, rests := 10*pieces*time.Minute, 9*pieces*time.Minute
		if took := time.Since(began); took != work+rests || w.n != 10*restAfter {
			t.Errorf("%d bytes took %s, want %s of work and %s of rests", w.n, took, work, rests)
		}
		began = time.Now()
		ended := make(chan error, 1)
		go func() { ended <- write() }()
		time.Sleep(time.Minute)
		close(stop)
		if err := <-ended; !errors.Is(err, statemachine.ErrSnapshotStopped) || time.Since(began) != time.Minute {
			t.Errorf("stopped after %s with %v", time.Since(began), err)
		}
	})
}

// TestSnapshotFiles: the engine has its snapshots in files that are known as such.
func TestSnapshotFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := openHost(t, HostConfig{Dir: dir, RaftAddress: freeAddress(t)})
	s, r := startOne(t, h, nil)
	populate(t, s)
	newCaller(t, s, r, 1, 60_000).mustCreate("lock")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := h.SnapshotNow(ctx, s.cfg.ID); err != nil {
		t.Fatal(err)
	}
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".gbsnap") {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) != 1 {
		t.Errorf("snapshots are in %q, %v", found, err)
	}
}
