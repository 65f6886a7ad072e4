package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// sameHistory compares the digests after each entry that both replicas, or both lives of one, have
// applied.
func sameHistory(t *testing.T, a, b *recorder) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a != b {
		b.mu.Lock()
		defer b.mu.Unlock()
	}
	n := 0
	for i, d := range a.digests {
		if e, ok := b.digests[i]; ok {
			n++
			if d != e {
				t.Errorf("digests after entry %d differ", i)
			}
		}
	}
	if n == 0 {
		t.Error("no entry in common")
	}
}

func TestRestartKeepsEverything(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	h := openHost(t, HostConfig{Disk: disk})
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 20 {
		c.mustCreate(fmt.Sprint(i))
	}
	epoch, logTime := s.Stats().Epoch, s.Stats().LogTime
	closeHost(t, h)

	h = openHost(t, HostConfig{Disk: disk})
	again, r2 := startOne(t, h, nil)
	for i := range 20 {
		if !exists(t, again, fmt.Sprint(i)) {
			t.Errorf("semaphore %d is gone", i)
		}
	}
	sameHistory(t, r, r2)
	st := again.Stats()
	if st.Epoch>>16 <= epoch>>16 || st.LogTime < logTime {
		t.Errorf("epoch %x, log time %d after epoch %x, log time %d", st.Epoch, st.LogTime, epoch, logTime)
	}
	// Nothing of the former life is answered again.
	if len(r2.results) != 0 {
		t.Errorf("replay answered %d requests", len(r2.results))
	}
}

func TestSnapshotAndRestart(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	h := openHost(t, HostConfig{Disk: disk})
	small := func(c *ShardConfig) { c.SnapshotEntries, c.CompactionOverhead = 50, 5 }
	s, r := startOne(t, h, small)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 120 {
		c.mustCreate(fmt.Sprint(i))
	}
	for i := 0; ; i++ {
		_, err := h.SnapshotNow(timeout(t), 1)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNoSnapshot) {
			t.Fatal(err)
		}
		c.mustCreate(fmt.Sprint("more ", i)) // the replica may be saving one by itself
	}
	c.mustCreate("tail")
	if got := s.Stats().Snapshots; got < 2 {
		t.Errorf("%d snapshots saved", got)
	}
	closeHost(t, h)

	h = openHost(t, HostConfig{Disk: disk})
	again, r2 := startOne(t, h, small)
	st := again.Stats()
	if st.Restores != 1 {
		t.Errorf("%d snapshots restored", st.Restores)
	}
	for i := range 120 {
		if !exists(t, again, fmt.Sprint(i)) {
			t.Errorf("semaphore %d is gone", i)
		}
	}
	if !exists(t, again, "tail") {
		t.Error("what came after the snapshot is gone")
	}
	sameHistory(t, r, r2) // the tail was applied on the restored machine
	if n := len(r2.digests); n > 60 {
		t.Errorf("%d entries were read back although there was a snapshot", n)
	}
	c2 := newCaller(t, again, r2, 1, 60_000)
	c2.mustCreate("after")
}

// TestSnapshotsWithoutLog: a replica whose removal the process did not finish, so that its log is
// gone and its snapshots are not, is known until they are removed too.
func TestSnapshotsWithoutLog(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	h := openHost(t, HostConfig{Disk: disk})
	s, _ := startOne(t, h, nil)
	populate(t, s)
	if _, err := h.SnapshotNow(timeout(t), 1); err != nil {
		t.Fatal(err)
	}
	closeHost(t, h)
	h = openHost(t, HostConfig{Disk: disk})
	if err := h.store.RemoveNodeData(1, 1); err != nil {
		t.Fatal(err)
	}
	closeHost(t, h)

	h = openHost(t, HostConfig{Disk: disk})
	stored := func(what string, want ...[2]uint64) {
		t.Helper()
		if got := h.StoredReplicas(); !slices.Equal(got, want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	if has, err := h.HasReplica(1, 1); has || err != nil {
		t.Error("the log is there:", err)
	}
	stored("only snapshots are left", [2]uint64{1, 1})
	if err := h.RemoveData(timeout(t), 1, 1); err != nil {
		t.Fatal(err)
	}
	stored("they are removed")
}

func TestLongLogIsSnapshotted(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	h := openHost(t, HostConfig{Disk: disk})
	s, r := startOne(t, h, func(c *ShardConfig) { c.SnapshotBytes = 10_000 })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	end := time.Now().Add(patience)
	n := 0
	for ; s.Stats().Snapshots == 0; n++ {
		if time.Now().After(end) {
			t.Fatal("no snapshot is saved")
		}
		c.mustCreate(fmt.Sprint(n))
	}
	closeHost(t, h)
	h = openHost(t, HostConfig{Disk: disk})
	again, _ := startOne(t, h, nil)
	if again.Stats().Restores != 1 || !exists(t, again, "0") || !exists(t, again, fmt.Sprint(n-1)) {
		t.Errorf("after the restart: %+v", again.Stats())
	}
}

func TestPowerLossKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	acked := 0
	for life := range 4 {
		h := openHost(t, HostConfig{Disk: disk})
		s, r := startOne(t, h, func(c *ShardConfig) { c.SnapshotEntries, c.CompactionOverhead = 20, 5 })
		if life == 0 {
			populate(t, s)
		}
		for i := range acked {
			if !exists(t, s, fmt.Sprint(i)) {
				t.Errorf("life %d: acknowledged semaphore %d is gone", life, i)
			}
		}
		c := newCaller(t, s, r, 1, 60_000)
		for range 15 {
			c.mustCreate(fmt.Sprint(acked))
			acked++
		}
		for i := range 8 {
			c.create(fmt.Sprintf("unacknowledged-%d-%d", life, i)) // on their way while the power goes
		}
		disk.PowerLoss()
		closeHost(t, h)
		disk.PowerBack()
	}
}

func TestStopCutsUndetermined(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia, c.InFlight = f.via, 1 })
	populate(t, s)
	c := newCaller(t, s, r, 7, 60_000)
	took := make(chan struct{})
	f.set(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		if !bytes.Contains(entry, []byte("undecided")) {
			return next(entry) // a tick
		}
		close(took)
		return fakeProposal{make(chan engine.Outcome, 1)}, nil
	})
	undecided := c.create("undecided")
	<-took
	c.conn = 8
	waiting := c.create("waiting")
	closeHost(t, h)
	if res := r.result(waiting); !res.failed || res.status != protocol.StatusUnavailable {
		t.Errorf("request that was never proposed got %+v", res)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.results[undecided]) != 0 || r.cuts[7] == "" || r.cuts[8] != "" {
		t.Errorf("undecided request got %+v, cut are %v", r.results[undecided], r.cuts)
	}
}

func TestExclusiveIsBetweenSteps(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !isClosed(stop) {
			s.Exclusive(func(m *shard.Machine) {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.index != m.AppliedIndex() {
					t.Errorf("machine is at entry %d, delivered is %d", m.AppliedIndex(), r.index)
				}
			})
		}
	}()
	for i := range 300 {
		c.mustCreate(fmt.Sprint(i))
	}
	close(stop)
	<-done
}

func TestSnapshotDoesNotStopTheShard(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 200 {
		c.mustCreate(fmt.Sprint(i))
	}
	// The writer stops in the middle of the snapshot until the shard has gone on.
	sm := (*stateMachine)(s)
	state, err := sm.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	w := &slowWriter{entered: make(chan struct{}), goOn: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- sm.SaveSnapshot(state, w, nil, make(chan struct{})) }()
	<-w.entered
	during := s.Digest()
	c.mustCreate("during")
	if s.Digest() == during {
		t.Error("digest does not show the change")
	}
	close(w.goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	m, err := shard.Restore(&w.buf)
	if err != nil {
		t.Fatal(err)
	}
	if m.Digest() != during {
		t.Error("snapshot is not of the moment it was taken at")
	}

	// A stopping replica does not finish its snapshot.
	if state, err = sm.PrepareSnapshot(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	close(stop)
	if err := sm.SaveSnapshot(state, w, nil, stop); err == nil {
		t.Error("a stopped snapshot was written")
	}
}

// filesBelow is what the files of a folder hold, by their paths in it.
func filesBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestCopyOfARunningDirectory copies a directory while its host runs, which is what is left when a
// process is killed. The clock stands, so that the leader soon writes nothing more. Two copies that
// are equal are of the moment between them.
func TestCopyOfARunningDirectory(t *testing.T) {
	t.Parallel()
	dir, left := filepath.Join(t.TempDir(), "data"), ""
	cfg := HostConfig{Dir: dir, RaftAddress: freeAddress(t), Clock: NewManualClock(time.Unix(1_700_000_000, 0))}
	h := openHost(t, cfg)
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 20 {
		c.mustCreate(fmt.Sprint(i))
	}
	for before := map[string]string(nil); ; {
		left = filepath.Join(t.TempDir(), "left")
		err := os.CopyFS(left, os.DirFS(dir))
		if errors.Is(err, fs.ErrNotExist) { // a file got its final name meanwhile
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		now := filesBelow(t, left)
		if maps.Equal(before, now) {
			break
		}
		before = now
	}
	closeHost(t, h)

	cfg.Dir = left
	h = openHost(t, cfg)
	again, r2 := startOne(t, h, nil)
	for i := range 20 {
		if !exists(t, again, fmt.Sprint(i)) {
			t.Errorf("semaphore %d is gone", i)
		}
	}
	sameHistory(t, r, r2)
}
