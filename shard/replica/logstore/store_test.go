package logstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/config"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"

	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// bed is a folder on a disk, and the store that is open on it.
type bed struct {
	t     testing.TB
	fs    vfs.FS
	dir   string
	store *Store
	fatal chan error

	every      time.Duration // between syncs of the watermark
	acceptLoss bool
	wrap       func(vfs.FS) vfs.FS
}

func newBed(t testing.TB, fs vfs.FS, dir string) *bed {
	return &bed{t: t, fs: fs, dir: dir, fatal: make(chan error, 1), every: syncPeriod}
}

// engine is the engine's configuration.
func (b *bed) engine() config.NodeHostConfig {
	store := config.GetTinyMemLogDBConfig()
	store.Shards = 1
	return config.NodeHostConfig{Expert: config.ExpertConfig{
		FS: b.fs, LogDB: store, Engine: config.EngineConfig{ExecShards: 1, CommitShards: 1,
			ApplyShards: 1, SnapshotShards: 1, CloseShards: 1},
	}}
}

// folder makes the engine's folder.
func (b *bed) folder() string {
	b.t.Helper()
	db := b.fs.PathJoin(b.dir, "db")
	if err := b.fs.MkdirAll(db, 0o700); err != nil {
		b.t.Fatal(err)
	}
	for dir := db; ; dir = b.fs.PathDir(dir) { // as the engine does with its folders
		if d, err := b.fs.OpenDir(dir); err == nil {
			_ = d.Sync()
			_ = d.Close()
		}
		if dir == b.fs.PathDir(dir) {
			return db
		}
	}
}

func (b *bed) open() error {
	b.t.Helper()
	db := b.folder()
	s := New(Config{
		Dir: b.dir, Fatal: func(err error) { b.fatal <- err }, Logger: slog.New(slog.DiscardHandler),
		AcceptLoss: b.acceptLoss,
	})
	s.syncEvery, s.wrap = b.every, b.wrap
	_, err := s.Create(b.engine(), func(config.LogDBInfo) {}, []string{db}, []string{db})
	if err == nil {
		b.store = s
	}
	return err
}

func (b *bed) mustOpen() {
	b.t.Helper()
	if err := b.open(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) close() {
	b.t.Helper()
	if err := errors.Join(b.store.Close(), b.store.CloseError()); err != nil {
		b.t.Fatal(err)
	}
	b.store = nil
}

func (b *bed) save(u ...pb.Update) {
	b.t.Helper()
	if err := b.store.SaveRaftState(u, 1); err != nil {
		b.t.Fatal(err)
	}
}

// bootstrap makes a replica known to the store, as the engine does before its first write.
func (b *bed) bootstrap(k key) {
	b.t.Helper()
	if err := b.store.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true, Type: pb.ConcurrentStateMachine}); err != nil {
		b.t.Fatal(err)
	}
}

func entries(from uint64, terms ...uint64) (list []pb.Entry) {
	for i, term := range terms {
		list = append(list, pb.Entry{Index: from + uint64(i), Term: term, Cmd: []byte("command " + strconv.Itoa(i))})
	}
	return list
}

func update(k key, term uint64, list []pb.Entry) pb.Update {
	return pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: pb.State{Term: term, Vote: 1, Commit: 1},
		EntriesToSave: list}
}

// rlog is the naive model of one log: the terms of its entries behind a snapshot.
type rlog struct {
	term     uint64
	snapshot mark // lastTerm and lastIndex
	terms    []uint64
}

func (l *rlog) mark() mark {
	m := mark{l.term, l.snapshot.lastTerm, l.snapshot.lastIndex + uint64(len(l.terms))}
	if n := len(l.terms); n > 0 {
		m.lastTerm = l.terms[n-1]
	}
	return m
}

// TestNoFalseAlarm writes logs as raft may write them, cuts included, stops the disk at any time,
// and opens the store again: it is never refused, and the marks are those of the model.
func TestNoFalseAlarm(t *testing.T) {
	for seed := range seeds.Of(t, 12, 12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			fs := vfs.NewStrictMem()
			b := newBed(t, fs, "/bed")
			b.every = time.Duration(r.IntN(3)) * period
			b.mustOpen()
			logs := make(map[key]*rlog)
			keys := []key{{1, 1}, {1, 2}, {7, 3}}
			for range 150 {
				n := r.IntN(len(keys))
				k := keys[n]
				l := logs[k]
				if l == nil {
					b.bootstrap(k)
					l = &rlog{term: 1}
					logs[k] = l
					b.save(update(k, 1, nil))
				}
				end := l.snapshot.lastIndex + uint64(len(l.terms))
				switch do := r.IntN(20); {
				case do < 10: // append, now and then under a new term
					if r.IntN(3) == 0 {
						l.term++
					}
					more := slices.Repeat([]uint64{l.term}, 1+r.IntN(5))
					b.save(update(k, l.term, entries(end+1, more...)))
					l.terms = append(l.terms, more...)
				case do < 14 && len(l.terms) > 1: // cut, and another leader's entries, which may be of older terms
					l.term++
					keep := 1 + r.IntN(len(l.terms)-1)
					term := l.terms[keep-1]
					if r.IntN(2) == 0 {
						term = l.term
					}
					more := slices.Repeat([]uint64{term}, 1+r.IntN(3))
					b.save(update(k, l.term, entries(l.snapshot.lastIndex+uint64(keep)+1, more...)))
					l.terms = append(l.terms[:keep:keep], more...)
				case do == 14: // a snapshot from a leader; what was not committed may have been ahead of it in term
					last := l.mark()
					term := max(last.lastTerm, 1)
					if r.IntN(2) == 0 && term > 1 {
						term--
					}
					l.term++
					l.snapshot, l.terms = mark{0, term, end + 1 + r.Uint64N(5)}, nil
					u := update(k, l.term, nil)
					u.Snapshot = pb.Snapshot{Index: l.snapshot.lastIndex, Term: term, ShardID: k.shard,
						Type: pb.ConcurrentStateMachine, Filepath: "x"}
					b.save(u)
				case do == 15 && len(l.terms) > 2: // an own snapshot, and what is before it is removed
					keep := 1 + r.IntN(len(l.terms)-1)
					at := mark{0, l.terms[keep-1], l.snapshot.lastIndex + uint64(keep)}
					u := pb.Update{ShardID: k.shard, ReplicaID: k.replica,
						Snapshot: pb.Snapshot{Index: at.lastIndex, Term: at.lastTerm, ShardID: k.shard,
							Type: pb.ConcurrentStateMachine, Filepath: "x"}}
					if err := b.store.SaveSnapshots([]pb.Update{u}); err != nil {
						t.Fatal(err)
					}
					if err := b.store.RemoveEntriesTo(k.shard, k.replica, at.lastIndex); err != nil {
						t.Fatal(err)
					}
					l.snapshot, l.terms = at, slices.Clone(l.terms[keep:])
				case do == 16 && r.IntN(4) == 0:
					if err := b.store.RemoveNodeData(k.shard, k.replica); err != nil {
						t.Fatal(err)
					}
					delete(logs, k)
					keys[n].replica += 10 // the id of a replica never comes back
				case do == 17: // an orderly end
					b.close()
					b.mustOpen()
				case do == 18: // power
					fs.SetIgnoreSyncs(true)
					b.close()
					fs.ResetToSyncedState()
					fs.SetIgnoreSyncs(false)
					b.mustOpen()
				}
				b.store.mu.Lock()
				got := b.store.marks[k]
				b.store.mu.Unlock()
				if l := logs[k]; l != nil && got != l.mark() {
					t.Fatalf("mark of %v is %v, the log is at %v", k, got, l.mark())
				}
			}
			b.close()
			select {
			case err := <-b.fatal:
				t.Fatal(err)
			default:
			}
		})
	}
}

// TestOldCopy puts an older copy of the log back.
func TestOldCopy(t *testing.T) {
	for _, c := range []struct {
		name  string
		after pb.Update
		gone  bool // the copy is of nothing at all
	}{
		{name: "an entry less", after: update(key{1, 1}, 1, entries(4, 1))},
		{name: "a term less", after: update(key{1, 1}, 2, nil)},
		{name: "a tail cut", after: update(key{1, 1}, 2, entries(2, 2))},
		{name: "all of it", gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := vfs.NewMem()
			b := newBed(t, fs, "/bed")
			b.mustOpen()
			k := key{1, 1}
			b.bootstrap(k)
			b.save(update(k, 1, entries(1, 1, 1, 1)))
			b.close()
			copyAll(t, fs, "/bed/db", "/copy")
			b.mustOpen()
			if !c.gone {
				b.save(c.after)
			}
			b.close()
			if err := fs.RemoveAll("/bed/db"); err != nil {
				t.Fatal(err)
			}
			if !c.gone {
				copyAll(t, fs, "/copy", "/bed/db")
			}
			err := b.open()
			if !errors.Is(err, ErrRolledBack) || !strings.Contains(err.Error(), "shard 1") {
				t.Fatalf("opened with %v", err)
			}
			if err = b.open(); !errors.Is(err, ErrRolledBack) {
				t.Fatalf("opened the second time, with %v", err)
			}
		})
	}
}

func copyAll(t *testing.T, fs vfs.FS, from, to string) {
	t.Helper()
	if _, err := vfs.Clone(fs, fs, from, to); err != nil {
		t.Fatal(err)
	}
}

// TestFlippedBit damages the newest file of the log on a real disk.
func TestFlippedBit(t *testing.T) {
	dir := t.TempDir()
	b := newBed(t, vfs.Default, dir)
	b.mustOpen()
	k := key{1, 1}
	b.bootstrap(k)
	for i := range uint64(100) {
		b.save(update(k, 1, entries(1+i, 1)))
	}
	// The files as they are now are those of a process that is killed.
	if err := b.store.writeMarks(false); err != nil {
		t.Fatal(err)
	}
	killed := copyOf(t, dir)
	b.close()

	newest, content := newestSegment(t, killed)
	whole := newBed(t, vfs.Default, killed)
	content[len(content)/2] ^= 4
	if err := os.WriteFile(newest, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := whole.open(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("opened with %v", err)
	}
	whole.acceptLoss = true
	whole.mustOpen()
	if whole.store.Loss(1, 1) == "" {
		t.Error("there is no loss")
	}
	whole.save(update(k, 1, entries(whole.store.marks[k].lastIndex+1, 1)))
	whole.close()
}

// TestWatermarkIsDamaged goes on from the other file. Without any a log is refused, unless its loss
// is accepted; a folder that has no log needs none.
func TestWatermarkIsDamaged(t *testing.T) {
	k := key{1, 1}
	for _, c := range []struct {
		spoilt  [2]string
		refused string
	}{
		{[2]string{"damaged", ""}, ""},
		{[2]string{"", "damaged"}, ""},
		{[2]string{"missing", ""}, ""},
		{[2]string{"", "missing"}, ""},
		{[2]string{"", "empty"}, ""},
		{[2]string{"damaged", "damaged"}, `"/bed/watermark.0" is damaged and "/bed/watermark.1" is damaged`},
		{[2]string{"missing", "missing"}, `"/bed/watermark.0" is missing and "/bed/watermark.1" is missing`},
		{[2]string{"empty", "missing"}, `"/bed/watermark.0" is damaged and "/bed/watermark.1" is missing`},
	} {
		t.Run(strings.Join(c.spoilt[:], " "), func(t *testing.T) {
			fs := vfs.NewMem()
			b := newBed(t, fs, "/bed")
			spoil := func() {
				t.Helper()
				for slot, how := range c.spoilt {
					spoilFile(t, fs, b.fs.PathJoin("/bed", "watermark."+strconv.Itoa(slot)), how)
				}
			}
			b.mustOpen()
			b.close()
			spoil()
			b.mustOpen() // there is no log
			b.bootstrap(k)
			b.save(update(k, 3, entries(1, 1, 2, 3)))
			b.close()
			spoil()
			if err := b.open(); c.refused == "" && err != nil ||
				c.refused != "" && (!errors.Is(err, ErrNoWatermark) || !strings.Contains(err.Error(), c.refused)) {
				t.Fatalf("opened with %v, want %q", err, c.refused)
			}
			if c.refused != "" {
				b.acceptLoss = true
				b.mustOpen()
			}
			if got, want := b.store.marks[k], (mark{3, 3, 3}); got != want {
				t.Fatalf("mark is %v", got)
			}
			if loss := b.store.Loss(1, 1); (loss != "") != (c.refused != "") {
				t.Fatalf("loss is %q", loss)
			}
			b.close()
		})
	}
}

func spoilFile(t *testing.T, fs vfs.FS, path, how string) {
	t.Helper()
	switch how {
	case "":
		return
	case "missing":
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if how == "damaged" {
		if _, err := io.WriteString(f, "nothing that anybody wrote, and longer than the head of a file of marks"); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOldestMark: whatever is lost with the power, a mark that was synced is left, and it is no
// older than the last sync before the last.
func TestOldestMark(t *testing.T) {
	k := key{1, 1}
	fs := vfs.NewStrictMem()
	b := newBed(t, fs, "/bed")
	b.mustOpen()
	b.bootstrap(k)
	for i := range uint64(20) {
		b.save(update(k, 1, entries(1+i, 1)))
		b.store.syncEvery = time.Hour
		if i%5 == 4 {
			b.store.syncEvery = 0
		}
		if err := b.store.writeMarks(false); err != nil {
			t.Fatal(err)
		}
		left := watermarkFiles{fs: fs, dir: "/bed"}
		newest, lacking, err := left.read()
		if err != nil || len(lacking) > 0 || newest[k].lastIndex != i+1 {
			t.Fatalf("after entry %d: %v, %v, %v", i+1, newest[k], lacking, err)
		}
		// The file that is not being rewritten is the one that was synced.
		raw, err := readFile(fs, b.store.file.path(1-b.store.file.slot))
		if err != nil {
			t.Fatal(err)
		}
		_, synced, err := parseMarks(raw)
		if want := (i + 1) / 5 * 5; err != nil || synced[k].lastIndex != want {
			t.Fatalf("after entry %d the synced mark is %v, want entry %d: %v", i+1, synced[k], want, err)
		}
	}
	b.close()
}

// TestAcceptLoss opens a log that has gone back, as it is, and says how far it was.
func TestAcceptLoss(t *testing.T) {
	fs := vfs.NewMem()
	b := newBed(t, fs, "/bed")
	b.mustOpen()
	k := key{1, 1}
	b.bootstrap(k)
	b.save(update(k, 1, entries(1, 1)))
	b.close()
	copyAll(t, fs, "/bed/db", "/copy")
	b.mustOpen()
	b.save(update(k, 2, entries(2, 2, 2)))
	b.close()
	if err := fs.RemoveAll("/bed/db"); err != nil {
		t.Fatal(err)
	}
	copyAll(t, fs, "/copy", "/bed/db")
	b.acceptLoss = true
	b.mustOpen()
	if loss := b.store.Loss(1, 1); loss != "it was at term 2, last entry 3 of term 2" {
		t.Fatalf("loss is %q", loss)
	}
	b.close()
}

// TestStartOnFullDisk is refused before anything is written.
func TestStartOnFullDisk(t *testing.T) {
	fs := &gauge{FS: vfs.NewMem(), free: 10 << 20}
	s := New(Config{Dir: "/bed", Fatal: func(error) {}})
	_, err := s.Create(config.NodeHostConfig{Expert: config.ExpertConfig{FS: fs}}, nil, nil, nil)
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "make room, then start again") {
		t.Fatal(err)
	}
}
