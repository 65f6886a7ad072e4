package logstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"
)

// contents describes what a store has of its replicas, from their snapshots on.
func contents(t *testing.T, db raftio.ILogDB) string {
	t.Helper()
	var b strings.Builder
	nodes, err := db.ListNodeInfo()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(nodes, func(a, b raftio.NodeInfo) int {
		return key{a.ShardID, a.ReplicaID}.compare(key{b.ShardID, b.ReplicaID})
	})
	for _, n := range nodes {
		boot, err := db.GetBootstrapInfo(n.ShardID, n.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.GetSnapshot(n.ShardID, n.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		state, err := db.ReadRaftState(n.ShardID, n.ReplicaID, s.Index)
		if err != nil && !errors.Is(err, raftio.ErrNoSavedLog) {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%v %v snapshot %d %d %s state %v", n, boot, s.Index, s.Term, s.Filepath, state.State)
		if end := state.FirstIndex + state.EntryCount; end > s.Index+1 {
			list, _, err := db.IterateEntries(nil, 0, n.ShardID, n.ReplicaID, s.Index+1, end, math.MaxUint64)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				fmt.Fprintf(&b, " %d/%d:%s", e.Index, e.Term, e.Cmd)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// former opens the folder as release 0.1.0 did: with the engine's own store, and a watermark of the
// former format.
func (b *bed) former(write func(db raftio.ILogDB) error) {
	b.t.Helper()
	db, err := openStore(b.fs, b.engine(), func(config.LogDBInfo) {}, []string{b.folder()}, []string{b.folder()})
	if err != nil {
		b.t.Fatal(err)
	}
	err = write(db)
	marks, merr := findMarks(db)
	if err := errors.Join(err, merr, db.Close()); err != nil {
		b.t.Fatal(err)
	}
	f := watermarkFiles{fs: b.fs, dir: b.dir}
	if _, _, err := f.read(); err != nil {
		b.t.Fatal(err)
	}
	f.version = formerVersion
	f.encode(marks)
	if err := f.writeThrough(); err != nil {
		b.t.Fatal(err)
	}
}

func saveTo(db raftio.ILogDB, u ...pb.Update) error { return db.SaveRaftState(u, 1) }

// fill writes logs as release 0.1.0 did.
func fill(t *testing.T, b *bed) (was string) {
	t.Helper()
	b.former(func(db raftio.ILogDB) (err error) {
		for shard := range uint64(5) {
			err = errors.Join(err, fillLog(db, key{shard + 1, 3}))
		}
		was = contents(t, db)
		return err
	})
	return was
}

func fillLog(db raftio.ILogDB, k key) error {
	err := db.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true, Type: pb.ConcurrentStateMachine})
	if k.shard == 5 {
		return err // it has no more than that
	}
	err = errors.Join(err,
		saveTo(db, update(k, 4, entries(1, slices.Repeat([]uint64{2}, 200)...))),
		saveTo(db, update(k, 5, entries(150, slices.Repeat([]uint64{5}, 30)...))))
	if k.shard == 1 {
		return err
	}
	s := pb.Snapshot{Index: 100, Term: 2, ShardID: k.shard, Type: pb.ConcurrentStateMachine, Filepath: "x"}
	u := pb.Update{ShardID: k.shard, ReplicaID: k.replica, Snapshot: s}
	if k.shard == 2 { // a leader's, and nothing behind it
		u.Snapshot.Index, u.Snapshot.Term, u.State = 900, 6, pb.State{Term: 6, Vote: 1, Commit: 900}
		return errors.Join(err, saveTo(db, u))
	}
	err = errors.Join(err, db.SaveSnapshots([]pb.Update{u}))
	if k.shard == 3 {
		err = errors.Join(err, db.RemoveEntriesTo(k.shard, k.replica, 90))
	}
	return errors.Join(err,
		saveTo(db, pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: pb.State{Term: 5, Vote: 2, Commit: 170}}))
}

// TestMove moves the log of the engine's store, whatever the disk loses on the way.
func TestMove(t *testing.T) {
	disk := vfs.NewStrictMem()
	b := newBed(t, disk, "/bed")
	was := fill(t, b)
	for at := 0; ; at++ {
		copied := vfs.NewStrictMem()
		if _, err := vfs.Clone(disk, copied, "/bed", "/bed"); err != nil {
			t.Fatal(err)
		}
		syncAll(t, copied, "/")
		moving, power := newBed(t, copied, "/bed"), &failingFS{FS: copied, mem: copied, left: at}
		moving.wrap = func(vfs.FS) vfs.FS { return power }
		moving.mustOpen()
		moving.close()
		died := power.left < 0
		copied.ResetToSyncedState()
		copied.SetIgnoreSyncs(false)
		again := newBed(t, copied, "/bed")
		if err := again.open(); err != nil {
			t.Fatalf("after %d changes: %v", at, err)
		}
		if got := contents(t, again.store); got != was {
			t.Fatalf("after %d changes:\n%s\nwant\n%s", at, got, was)
		}
		if names := list(copied, "/bed/db", "*"); !slices.Equal(names, []string{"/bed/db/" + walFolder}) {
			t.Fatalf("after %d changes there is %v", at, names)
		}
		again.save(update(key{1, 3}, 7, entries(180, 7)))
		// A program that knows only the former format must not take the folder for an empty one.
		for slot := range 2 {
			b, err := readFile(copied, again.store.file.path(slot))
			if err != nil {
				t.Fatal(err)
			}
			if version, _, _, err := parseMarks(b); err != nil || version != fileVersion {
				t.Fatalf("the watermark has format %d: %v", version, err)
			}
		}
		again.close()
		if !died {
			t.Logf("%d changes", at)
			return
		}
	}
}

func syncAll(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); err == nil && info.IsDir() {
			syncAll(t, fs, path)
			continue
		}
		f, err := fs.Open(path)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := fs.OpenDir(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// failingFS loses power after some changes of folders and syncs, those within the engine's own
// store not counted.
type failingFS struct {
	vfs.FS
	mem  *vfs.MemFS
	left int
}

func (d *failingFS) change(name string) {
	if strings.Contains(name, "logdb-0/") {
		return
	}
	if d.left--; d.left == -1 {
		d.mem.SetIgnoreSyncs(true)
	}
}

func (d *failingFS) OpenDir(name string) (vfs.File, error) {
	d.change(name)
	return d.FS.OpenDir(name)
}

func (d *failingFS) RemoveAll(name string) error {
	d.change(name)
	return d.FS.RemoveAll(name)
}

func (d *failingFS) Rename(from, to string) error {
	d.change(from)
	return d.FS.Rename(from, to)
}

func (d *failingFS) Create(name string) (vfs.File, error) {
	d.change(name)
	return d.FS.Create(name)
}

// TestMoveOfADamagedLog is refused if the log has gone back, and changes nothing.
func TestMoveOfADamagedLog(t *testing.T) {
	fs := vfs.NewMem()
	b := newBed(t, fs, "/bed")
	fill(t, b)
	copyAll(t, fs, "/bed/db", "/copy")
	b.former(func(db raftio.ILogDB) error { return saveTo(db, update(key{1, 3}, 7, entries(180, 7))) })
	if err := fs.RemoveAll("/bed/db"); err != nil {
		t.Fatal(err)
	}
	copyAll(t, fs, "/copy", "/bed/db")
	for range 2 {
		if err := b.open(); !errors.Is(err, ErrRolledBack) {
			t.Fatalf("opened with %v", err)
		}
	}
	if names := list(fs, "/bed/db", "*"); !slices.Equal(names, []string{"/bed/db/logdb-0"}) {
		t.Fatal(names)
	}
	b.acceptLoss = true
	b.mustOpen()
	if b.store.Loss(1, 3) == "" || b.store.Loss(2, 3) != "" {
		t.Errorf("losses are %q and %q", b.store.Loss(1, 3), b.store.Loss(2, 3))
	}
	b.close()
}

// TestMoveOfAFlippedBit: the engine's own store opens a log with a damaged end without an error,
// and drops what comes behind the damage.
func TestMoveOfAFlippedBit(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, vfs.Default, dir)
	k := key{1, 1}
	killed := t.TempDir()
	b.former(func(db raftio.ILogDB) error {
		err := db.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true, Type: pb.ConcurrentStateMachine})
		for i := range uint64(200) {
			err = errors.Join(err, saveTo(db, update(k, 1, entries(1+i, 1))))
		}
		copyAll(t, vfs.Default, filepath.Join(dir, "db"), filepath.Join(killed, "db"))
		return err
	})
	for slot := range 2 {
		name := filepath.Base((&watermarkFiles{fs: vfs.Default}).path(slot))
		copyAll(t, vfs.Default, filepath.Join(dir, name), filepath.Join(killed, name))
	}
	logs, err := filepath.Glob(filepath.Join(killed, "db", "logdb-0", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	flip(t, slices.Max(logs), 1, 2)
	if err := newBed(t, vfs.Default, killed).open(); !errors.Is(err, ErrRolledBack) {
		t.Fatalf("opened with %v", err)
	}
}

// flip damages a file at a fraction of what is written in it.
func flip(t *testing.T, path string, part, of int) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[len(bytes.TrimRight(content, "\x00"))*part/of] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMoveOfADamagedTable names the table, although the engine's own store may panic on goroutines
// of its own when it comes to it. If losses are accepted, what comes before the damage is moved.
func TestMoveOfADamagedTable(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	dir, err := os.MkdirTemp("", "") // the store that has panicked may still write to it at the end
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, vfs.Default, dir)
	k := key{1, 1}
	for range 2 { // what was in the log is in a table then
		b.former(func(db raftio.ILogDB) error {
			err := db.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true, Type: pb.ConcurrentStateMachine})
			for i := range uint64(60) {
				e := entries(1+i, 1)
				e[0].Cmd = make([]byte, 20_000)
				err = errors.Join(err, saveTo(db, update(k, 1, e)))
			}
			return err
		})
	}
	tables, err := filepath.Glob(filepath.Join(dir, "db", "logdb-0", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	table := slices.MaxFunc(tables, func(a, b string) int { return cmp.Compare(size(a), size(b)) })
	flip(t, table, 1, 3)
	if err := b.open(); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), strings.TrimSuffix(filepath.Base(table), ".sst")) {
		t.Fatalf("%v, want one that names %s", err, table)
	}
}

// TestMoveWithoutCurrent: the engine's own store takes a folder without CURRENT for a new one,
// and would remove the tables.
func TestMoveWithoutCurrent(t *testing.T) {
	b := newBed(t, vfs.Default, t.TempDir())
	fill(t, b)
	store := filepath.Join(b.dir, "db", "logdb-0")
	if err := os.Remove(filepath.Join(store, currentFile)); err != nil {
		t.Fatal(err)
	}
	before := readAll(t, store)
	if err := b.open(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), filepath.Join(store, currentFile)) {
		t.Errorf("%v, want one that names CURRENT", err)
	}
	if after := readAll(t, store); !maps.Equal(before, after) {
		t.Errorf("the folder had %d files, and has %d", len(before), len(after))
	}
}

// readAll is the content of a folder's files.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

// TestLogIsGone: segments that are removed, or put back from an older copy.
func TestLogIsGone(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(segments []string) []string
		want   error
	}{
		{"the newest", func(s []string) []string { return s[len(s)-1:] }, ErrRolledBack},
		{"the oldest", func(s []string) []string { return s[:1] }, ErrDamaged},
		{"one in the middle", func(s []string) []string { return s[1:2] }, ErrDamaged},
		{"all", func(s []string) []string { return s }, ErrRolledBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			b := newBed(t, vfs.Default, dir)
			k := key{1, 1}
			for i := range uint64(4) { // a start begins a new segment
				b.mustOpen()
				if i == 0 {
					b.bootstrap(k)
				}
				b.save(update(k, 1, entries(1+i, 1)))
				b.close()
			}
			segments, err := filepath.Glob(filepath.Join(dir, "db", walFolder, "*.segment"))
			if err != nil || len(segments) < 3 {
				t.Fatal(segments, err)
			}
			for _, path := range c.remove(segments) {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.open(); !errors.Is(err, c.want) {
				t.Fatalf("opened with %v", err)
			}
			b.acceptLoss = true
			b.mustOpen()
			if loss := b.store.Loss(1, 1); loss == "" && c.name != "all" {
				t.Error("there is no loss")
			}
			b.close()
		})
	}
}

// TestDamageIsReported: an entry that is damaged after the start ends the process when the engine
// reads it, and is an error for a caller who asks for that.
func TestDamageIsReported(t *testing.T) {
	for _, returned := range []bool{false, true} {
		dir := t.TempDir()
		b := newBed(t, vfs.Default, dir)
		b.mustOpen()
		b.store.cfg.ReturnDamage = returned
		k := key{1, 1}
		b.bootstrap(k)
		b.save(update(k, 1, entries(1, 1, 1)))
		path := filepath.Join(dir, "db", walFolder, "00000001.segment")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(content), "command 1")
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("C"), int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if returned {
			if _, _, err := b.store.IterateEntries(nil, 0, 1, 1, 1, 3, math.MaxUint64); !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			b.close()
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = b.store.IterateEntries(nil, 0, 1, 1, 1, 3, math.MaxUint64)
		}()
		if err := <-b.fatal; !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Fatal(err)
		}
		close(b.store.failed)
		<-done
		b.close()
	}
}

// BenchmarkSave saves one entry of 256 bytes, and what a leader of three saves next: the commit
// index.
func BenchmarkSave(b *testing.B) {
	for _, what := range []string{"entry", "commit"} {
		b.Run(what, func(b *testing.B) {
			x := newBed(b, vfs.Default, b.TempDir())
			x.mustOpen()
			defer x.close()
			k := key{1, 1}
			x.bootstrap(k)
			u := []pb.Update{update(k, 1, entries(1, 1))}
			x.save(u...)
			u[0].EntriesToSave[0].Cmd = make([]byte, 256)
			if what == "commit" {
				u[0].EntriesToSave = nil
			}
			i := uint64(1)
			cpu := processorTime()
			for b.Loop() {
				i++
				if what == "commit" {
					u[0].State.Commit = i
				} else {
					u[0].EntriesToSave[0].Index = i
				}
				x.save(u...)
			}
			b.ReportMetric(float64(processorTime()-cpu)/float64(b.N)/1000, "cpu-us/op")
		})
	}
}

func processorTime() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r.Utime.Nano() + r.Stime.Nano()
}
