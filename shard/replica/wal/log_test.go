package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"
	"github.com/lni/vfs"
)

func entriesOf(from uint64, n int, term uint64, size int) (list []pb.Entry) {
	for i := range n {
		list = append(list, pb.Entry{Index: from + uint64(i), Term: term, Cmd: bytes.Repeat([]byte{byte(from) + byte(i)}, size)})
	}
	return list
}

func updateOf(k key, term uint64, list []pb.Entry) pb.Update {
	return pb.Update{ShardID: k.shard, ReplicaID: k.replica, State: pb.State{Term: term, Vote: 1, Commit: 1}, EntriesToSave: list}
}

func save(t testing.TB, l *Log, u ...pb.Update) {
	t.Helper()
	if err := l.SaveRaftState(u, 1); err != nil {
		t.Fatal(err)
	}
}

func indexes(list []pb.Entry) (is []uint64) {
	for _, e := range list {
		is = append(is, e.Index)
	}
	return is
}

func TestIterateEntries(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	const size = 700
	save(t, l, updateOf(k, 1, entriesOf(5, 20, 1, size)), updateOf(key{2, 1}, 1, entriesOf(1, 3, 1, 5)))
	save(t, l, updateOf(k, 1, entriesOf(25, 80, 1, 10)))
	one := uint64(entriesOf(5, 1, 1, size)[0].SizeUpperLimit())
	for _, c := range []struct {
		low, high, max uint64
		from, to       uint64 // to 0: none
	}{
		{5, 105, math.MaxUint64, 5, 104},
		{5, 25, math.MaxUint64, 5, 24},
		{7, 8, 0, 7, 7},
		{7, 20, 0, 7, 7},
		{7, 20, one, 7, 8}, // until the size is above
		{7, 20, 3*one - 1, 7, 9},
		{100, 400, math.MaxUint64, 100, 104},
		{1, 8, math.MaxUint64, 0, 0}, // the first one is missing
		{105, 106, math.MaxUint64, 0, 0},
		{9, 9, math.MaxUint64, 0, 0},
	} {
		list, n, err := l.IterateEntries(nil, 0, 1, 1, c.low, c.high, c.max)
		if err != nil {
			t.Fatal(err)
		}
		var want []uint64
		var sizes uint64
		for i := c.from; i <= c.to && c.to > 0; i++ {
			want = append(want, i)
		}
		for _, e := range list {
			sizes += uint64(e.SizeUpperLimit())
		}
		if got := indexes(list); !slices.Equal(got, want) || n != sizes {
			t.Errorf("%+v: %v, %d bytes", c, got, n)
		}
	}
	// What is there already stays, and counts.
	list, _, err := l.IterateEntries(entriesOf(1, 1, 1, 1), 10, 2, 1, 2, 4, 5)
	if err != nil || !slices.Equal(indexes(list), []uint64{1, 2}) {
		t.Error(indexes(list), err)
	}
}

func TestReadRaftState(t *testing.T) {
	l := openOn(t, newDisk())
	k := key{1, 1}
	if _, err := l.ReadRaftState(1, 1, 0); !errors.Is(err, raftio.ErrNoSavedLog) {
		t.Fatal(err)
	}
	if _, err := l.GetBootstrapInfo(1, 1); !errors.Is(err, raftio.ErrNoBootstrapInfo) {
		t.Fatal(err)
	}
	if s, err := l.GetSnapshot(1, 1); err != nil || !pb.IsEmptySnapshot(s) {
		t.Fatal(s, err)
	}
	save(t, l, updateOf(k, 3, nil))
	read := func(snapshot uint64, want raftio.RaftState) {
		t.Helper()
		if got, err := l.ReadRaftState(1, 1, snapshot); err != nil || got != want {
			t.Fatalf("%+v, %v, want %+v", got, err, want)
		}
	}
	s := pb.State{Term: 3, Vote: 1, Commit: 1}
	read(0, raftio.RaftState{State: s})
	save(t, l, updateOf(k, 3, entriesOf(1, 10, 3, 3)))
	read(0, raftio.RaftState{State: s, FirstIndex: 1, EntryCount: 10})
	read(4, raftio.RaftState{State: s, FirstIndex: 4, EntryCount: 7})
	read(10, raftio.RaftState{State: s, FirstIndex: 10})
	if err := l.RemoveEntriesTo(1, 1, 6); err != nil {
		t.Fatal(err)
	}
	read(0, raftio.RaftState{State: s, FirstIndex: 7, EntryCount: 4})
	// A snapshot that was saved before the commit index that it follows from.
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 9, Term: 3}}}); err != nil {
		t.Fatal(err)
	}
	s.Commit = 9
	read(9, raftio.RaftState{State: s, FirstIndex: 9, EntryCount: 2})
	// An older one is ignored.
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 8, Term: 3}}}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.GetSnapshot(1, 1); err != nil || s.Index != 9 {
		t.Fatal(s, err)
	}
}

// TestGap: entries that do not follow the log replace it. The engine does not do that.
func TestGap(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 5, 1, 3)))
	save(t, l, updateOf(k, 1, entriesOf(9, 2, 1, 3)))
	for range 2 {
		if s, err := l.ReadRaftState(1, 1, 0); err != nil || s.FirstIndex != 9 || s.EntryCount != 2 {
			t.Fatal(s, err)
		}
		l = openOn(t, d)
	}
	u := updateOf(k, 1, entriesOf(3, 2, 1, 3))
	u.EntriesToSave[1].Index = 7
	if err := l.SaveRaftState([]pb.Update{u}, 1); err == nil {
		t.Fatal("entries in disorder were saved")
	}
}

// TestCommitIndexIsNotSynced counts the syncs of updates.
func TestCommitIndexIsNotSynced(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 1, 1, 3)))
	for _, c := range []struct {
		name          string
		u             pb.Update
		writes, syncs int
	}{
		{"entries", updateOf(k, 1, entriesOf(2, 1, 1, 3)), 1, 1},
		{"the same state", updateOf(k, 1, nil), 0, 0},
		{"commit", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 1, Vote: 1, Commit: 2}}, 1, 0},
		{"vote", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 1, Vote: 2, Commit: 2}}, 1, 1},
		{"term", pb.Update{ShardID: 1, ReplicaID: 1, State: pb.State{Term: 2, Vote: 2, Commit: 2}}, 1, 1},
	} {
		writes, syncs := d.writes, d.syncs
		save(t, l, c.u)
		if w, s := d.writes-writes, d.syncs-syncs; w != c.writes || s != c.syncs {
			t.Errorf("%s: %d writes and %d syncs", c.name, w, s)
		}
	}
}

// TestGroupCommit holds a sync. The calls that come meanwhile share one frame and one sync.
func TestGroupCommit(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 3)))
	hold := make(chan error)
	d.mu.Lock()
	d.holdSync, d.syncs, d.writes = hold, 0, 0
	d.mu.Unlock()
	var calls sync.WaitGroup
	call := func(shard uint64) {
		calls.Go(func() { save(t, l, updateOf(key{shard, 1}, 1, entriesOf(2, 1, 1, 3))) })
	}
	queued := func(n int) {
		for {
			l.mu.Lock()
			ok := l.writing && len(l.queue) == n
			l.mu.Unlock()
			if ok {
				return
			}
			runtime.Gosched()
		}
	}
	call(1)
	queued(0)
	for shard := range uint64(9) {
		call(shard + 2)
	}
	queued(9)
	hold <- nil
	hold <- nil
	calls.Wait()
	if d.syncs != 2 || d.writes != 2 {
		t.Errorf("%d syncs, %d writes", d.syncs, d.writes)
	}
	d.holdSync = nil
	l = openOn(t, d)
	for shard := range uint64(10) {
		if e, _, err := l.IterateEntries(nil, 0, shard+1, 1, 2, 3, 0); err != nil || len(e) != 1 {
			t.Error(shard, err)
		}
	}
}

// TestMoveOfChangedEntries: entries that changed after the maintenance looked are not moved.
func TestMoveOfChangedEntries(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	k := key{1, 1}
	save(t, l, updateOf(k, 1, entriesOf(1, 5, 1, 30)))
	_, list := l.liveIn(1, 1<<20)
	if len(list) != 6 {
		t.Fatal(list)
	}
	o, err := l.move(l.segments[0], list)
	if err != nil {
		t.Fatal(err)
	}
	save(t, l, updateOf(k, 2, entriesOf(3, 1, 2, 8)))
	if err := l.commit(o); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 9, math.MaxUint64)
		if err != nil || !slices.Equal(indexes(e), []uint64{1, 2, 3}) || e[2].Term != 2 {
			t.Fatal(e, err)
		}
		l = openOn(t, d)
	}
}

// TestIdleReplica: the records of a replica that is idle move on, and keep no segments.
func TestIdleReplica(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	idle, busy := key{1, 1}, key{2, 1}
	for _, k := range []key{idle, busy} {
		if err := l.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{Join: true}); err != nil {
			t.Fatal(err)
		}
	}
	save(t, l, updateOf(idle, 7, entriesOf(1, 6, 7, 40)))
	if err := l.SaveSnapshots([]pb.Update{{ShardID: 1, ReplicaID: 1, Snapshot: pb.Snapshot{Index: 2, Term: 7}}}); err != nil {
		t.Fatal(err)
	}
	var want string
	for i := range uint64(400) {
		save(t, l, updateOf(busy, 1, entriesOf(1+i*5, 5, 1, 100)))
		if err := l.RemoveEntriesTo(2, 1, i*5); err != nil {
			t.Fatal(err)
		}
		if err := l.work(); err != nil {
			t.Fatal(err)
		}
		if n := len(l.segments); n > 3 {
			t.Fatalf("%d segments", n)
		}
		got, _, _ := strings.Cut(text(t, l), "\n")
		if want == "" {
			want = got
		}
		if got != want {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
		if i%50 == 49 {
			l = openOn(t, d)
		}
	}
	if l.first < 20 {
		t.Errorf("the first segment is %d", l.first)
	}
	if n := len(d.now); n > 4 {
		t.Errorf("%d files", n)
	}
}

// TestLongLogIsBounded: beside a long log that is all needed, another one is written and removed.
// The whole is not much longer than twice what is needed.
func TestLongLogIsBounded(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	const n = 400
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, n/2, 1, 100)))
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+n/2, n/2, 1, 100)))
	for i := range uint64(600) {
		save(t, l, updateOf(key{2, 1}, 1, entriesOf(1+i, 1, 1, 1000)))
		if err := errors.Join(l.RemoveEntriesTo(2, 1, i), l.work()); err != nil {
			t.Fatal(err)
		}
		if have, most := int64(len(l.segments))*l.cfg.Segment, 2*l.live+(minFree+3)*l.cfg.Segment; have > most {
			t.Fatalf("%d bytes, at most %d wanted", have, most)
		}
	}
	l = openOn(t, d)
	if list, _, err := l.IterateEntries(nil, 0, 1, 1, 1, n+1, math.MaxUint64); err != nil || len(list) != n {
		t.Fatal(len(list), err)
	}
}

// TestOpenFiles: the files of old segments are closed, and opened again to be read.
func TestOpenFiles(t *testing.T) {
	const n = 3 * maxOpen
	d := newDisk()
	l := openOn(t, d)
	for i := range uint64(n) {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+i, 1, 1, 7000)))
		if err := l.work(); err != nil {
			t.Fatal(err)
		}
		d.checkOpen(t)
	}
	for range 2 {
		list, _, err := l.IterateEntries(nil, 0, 1, 1, 1, n+1, math.MaxUint64)
		if err != nil || len(list) != n || len(l.segments) < n {
			t.Fatal(len(list), len(l.segments), err)
		}
		d.checkOpen(t)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if d.open != 0 {
			t.Fatalf("%d files are open", d.open)
		}
		l = openOn(t, d)
		d.checkOpen(t)
	}
	if err := l.RemoveEntriesTo(1, 1, n-5); err != nil {
		t.Fatal(err)
	}
	if err := l.work(); err != nil {
		t.Fatal(err)
	}
	if len(l.segments) > 10 {
		t.Errorf("%d segments", len(l.segments))
	}
	d.checkOpen(t)
}

func (d *disk) checkOpen(t *testing.T) {
	t.Helper()
	if d.open > maxOpen+2 {
		t.Fatalf("%d files are open", d.open)
	}
}

// damagedLog writes a log of some segments.
func damagedLog(t testing.TB) (d *disk, was string) {
	h := newHistory(3)
	d = newDisk()
	l := openOn(t, d)
	for i := 0; i < 60 || len(l.segments) < 3; i++ {
		c := h.next()
		if err := c.run(l); err != nil {
			t.Fatal(err)
		}
		if i%20 == 19 {
			if err := l.work(); err != nil {
				t.Fatal(err)
			}
		}
	}
	was = text(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return d, was
}

// copyOf is the disk as a process finds it that starts now.
func copyOf(d *disk) *disk {
	c := newDisk()
	for name, n := range d.now {
		c.now[name] = &inode{data: bytes.Clone(n.data), durable: bytes.Clone(n.data)}
	}
	c.synced = clone(c.now)
	return c
}

// TestFlippedBits flips a bit of each byte. It is found, or does no harm.
func TestFlippedBits(t *testing.T) {
	d, was := damagedLog(t)
	found, harmless := 0, 0
	every := 7
	if long() {
		every = 1
	}
	for name, n := range d.now {
		for i := range n.data {
			if i%every != 0 && i >= headerSize {
				continue
			}
			if i >= headerLen && i < headerSize && i%64 != 0 {
				continue // nothing is there
			}
			c := copyOf(d)
			c.now[name].data[i] ^= 1 << (i % 8)
			l, err := open(testConfig(c))
			if err != nil {
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
					t.Fatalf("byte %d of %s: %v", i, name, err)
				}
				found++
				continue
			}
			if got := text(t, l); got != was {
				t.Fatalf("byte %d of %s: the log is\n%s\nand was\n%s", i, name, got, was)
			}
			harmless++
		}
	}
	t.Logf("%d found, %d without harm", found, harmless)
	if found < 5*harmless {
		t.Error("too few were found")
	}
}

// TestFlippedBitLater: damage after the start is found when an entry is read or moved.
func TestFlippedBitLater(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 5, 1, 100)))
	_, list := l.liveIn(1, 1<<20)
	at, size := l.replicas[key{1, 1}].entries.get(3)
	data := d.now[l.path(1)].data
	for i := at.offset(); i < at.offset()+entryHead+int64(size); i++ {
		data[i] ^= 4
		if _, _, err := l.IterateEntries(nil, 0, 1, 1, 1, 6, math.MaxUint64); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, err := l.move(l.segments[0], list); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
		data[i] ^= 4
	}
}

// TestMissingSegment: a segment that is needed is missing, or is another log's.
func TestMissingSegment(t *testing.T) {
	d, was := damagedLog(t)
	newest := slices.Max(slices.Collect(func(yield func(string) bool) {
		for name := range d.now {
			if filepath.Base(name) != spareName && !yield(name) {
				return
			}
		}
	}))
	other, _ := damagedLog(t)
	for name := range d.now {
		if filepath.Base(name) == spareName {
			continue
		}
		c := copyOf(d)
		delete(c.now, name)
		l, err := open(testConfig(c))
		switch {
		case name != newest && !errors.Is(err, ErrDamaged):
			t.Errorf("without %s: %v", name, err)
		case name == newest && err == nil && text(t, l) == was: // otherwise it is for the watermark to find
			t.Errorf("without %s nothing is missing", name)
		}
		if n := other.now[name]; n != nil {
			c := copyOf(d)
			c.now[name] = n
			if _, err := open(testConfig(c)); !errors.Is(err, ErrDamaged) {
				t.Errorf("with another log's %s: %v", name, err)
			}
		}
	}
}

// TestAcceptLoss opens what is left of a damaged log: the log as it was after some call.
func TestAcceptLoss(t *testing.T) {
	h := newHistory(5)
	d := newDisk()
	l := openOn(t, d)
	var texts []string
	for i := 0; i < 80 || len(l.segments) < 4; i++ {
		if err := h.next().run(l); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text(t, l))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := copyOf(d)
		name := l.path(uint32(1 + r.IntN(len(l.segments))))
		data := c.now[name].data
		at := r.IntN(headerLen + len(data) - headerSize)
		if at >= headerLen {
			at += headerSize - headerLen
		}
		data[at] ^= 2
		if _, err := open(testConfig(c)); err == nil {
			continue
		}
		cfg := testConfig(c)
		cfg.AcceptLoss = true
		half, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(t, half); at >= headerSize && !slices.Contains(texts, got) && got != "" {
			t.Fatalf("%s: the log is\n%s", name, got)
		}
		if !errors.Is(half.Damage(), ErrDamaged) {
			t.Fatal(half.Damage())
		}
		if err := half.SaveBootstrapInfo(1, 1, pb.Bootstrap{}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("it was written: %v", err)
		}
	}
}

// TestFullDisk: nothing is acknowledged after a write has failed, also if there is room again.
func TestFullDisk(t *testing.T) {
	for room := range 400 {
		h := newHistory(uint64(room))
		d := newDisk()
		l := openOn(t, d)
		for range 20 {
			if err := h.next().run(l); err != nil {
				t.Fatal(err)
			}
		}
		d.room = room * 20
		possible := []model{h.m.clone()}
		for {
			c := h.next()
			possible = append(possible, h.m.clone())
			if err := c.run(l); err != nil {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				break
			}
			if c.durable {
				possible = possible[len(possible)-1:]
			}
		}
		d.room = -1
		if err := l.SaveBootstrapInfo(1, 1, pb.Bootstrap{}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("written after a failure: %v", err)
		}
		l = openOn(t, d)
		got := text(t, l)
		if !slices.ContainsFunc(possible, func(m model) bool { return m.text() == got }) {
			t.Fatalf("room %d:\n%s", room, got)
		}
	}
}

// TestFailedSync: a sync that failed is not tried again, since a second one may lie.
func TestFailedSync(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 3)))
	d.badSync = syscall.EIO
	if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 1, entriesOf(2, 1, 1, 3))}, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	d.badSync = nil
	if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 1, entriesOf(2, 1, 1, 3))}, 1); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

// TestRestartAfterFailedSync: what a start finds is on disk then, although the kernel took what was
// written before a failed sync for clean.
func TestRestartAfterFailedSync(t *testing.T) {
	for n := range 30 {
		d := newDisk()
		l := openOn(t, d)
		for i := range n {
			save(t, l, updateOf(key{1, 1}, 1, entriesOf(uint64(1+i), 1, 1, 400)))
		}
		d.badSync = syscall.EIO
		if err := l.SaveRaftState([]pb.Update{updateOf(key{1, 1}, 2, entriesOf(uint64(1+n), 1, 2, 400))}, 1); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		d.badSync = nil
		found := openOn(t, d).replicas
		for seed := range uint64(20) {
			l := openOn(t, d.crash(rand.New(rand.NewPCG(seed, 1))))
			if !reflect.DeepEqual(l.replicas, found) {
				t.Fatalf("after %d entries: %v, want %v", n, l.replicas, found)
			}
		}
	}
}

// TestLaterFormat is refused with a sentence that says what to do.
func TestLaterFormat(t *testing.T) {
	d, _ := damagedLog(t)
	for name, n := range d.now {
		if h, ok := parseHeader(n.data); ok && filepath.Base(name) != spareName {
			b := h.encode()
			b[8]++
			binary.LittleEndian.PutUint32(b[40:], crc32.Checksum(b[:40], castagnoli))
			copy(n.data, b)
		}
	}
	if _, err := open(testConfig(d)); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "start the program that wrote it") {
		t.Fatal(err)
	}
}

// TestConcurrent calls from many goroutines while the maintenance runs.
func TestConcurrent(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, Segment: 64 << 10, Logger: slog.New(slog.DiscardHandler), Failed: func(err error) { t.Error(err) }}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rounds := uint64(60)
	if long() {
		rounds = 2000
	}
	var all sync.WaitGroup
	for shard := range uint64(6) {
		k := key{shard + 1, 1}
		stop := make(chan struct{})
		all.Go(func() {
			defer close(stop)
			if err := l.SaveBootstrapInfo(k.shard, 1, pb.Bootstrap{Join: true}); err != nil {
				t.Error(err)
			}
			for i := range rounds {
				first := 1 + i*4
				if err := l.SaveRaftState([]pb.Update{updateOf(k, 1, entriesOf(first, 4, 1, 600))}, k.shard); err != nil {
					t.Error(err)
				}
				if i%16 == 15 && k.shard != 6 { // the last one is never compacted
					u := pb.Update{ShardID: k.shard, ReplicaID: 1, Snapshot: pb.Snapshot{Index: first, Term: 1}}
					if err := errors.Join(l.SaveSnapshots([]pb.Update{u}), l.RemoveEntriesTo(k.shard, 1, first)); err != nil {
						t.Error(err)
					}
				}
			}
		})
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s, err := l.ReadRaftState(k.shard, 1, 0)
				if err != nil {
					runtime.Gosched()
					continue
				}
				list, _, err := l.IterateEntries(nil, 0, k.shard, 1, s.FirstIndex, s.FirstIndex+s.EntryCount, 20_000)
				if err != nil {
					t.Error(err)
				}
				for _, e := range list {
					if len(e.Cmd) != 600 || e.Cmd[0] != e.Cmd[599] {
						t.Errorf("entry %d is %x", e.Index, e.Cmd)
					}
				}
			}
		})
	}
	all.Wait()
	was := text(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	if text(t, l) != was {
		t.Error("the log has changed")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMillions: the memory of millions of entries, and the time to read them at the start.
func TestMillions(t *testing.T) {
	n, batch := uint64(1_000_000), 2000
	if long() {
		n = 5_000_000
	}
	cfg := Config{Dir: t.TempDir()}
	l, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for i := uint64(0); i < n; i += uint64(batch) {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(i+1, batch, 1, 40)))
	}
	used := heap() - before
	segments := len(l.segments)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if l, err = open(cfg); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries in %d segments: %d bytes of memory each, read in %v", n, segments, used/int64(n), time.Since(began).Round(time.Millisecond))
	if used/int64(n) > 16 {
		t.Errorf("%d bytes of memory for each entry", used/int64(n))
	}
	began = time.Now()
	if err := l.RemoveEntriesTo(1, 1, n-10); err != nil {
		t.Fatal(err)
	}
	t.Logf("removed in %v", time.Since(began))
	l.changed.Store(true)
	if err := l.clean(); err != nil {
		t.Fatal(err)
	}
	if s := len(l.segments); s > 2 {
		t.Errorf("%d segments are left", s)
	}
	if left := heap() - before; left > 1<<20 {
		t.Errorf("%d bytes of memory are left", left)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSaveAllocates nothing for each call.
func TestSaveAllocates(t *testing.T) {
	l, err := Open(Config{Dir: "/", FS: discard{newDisk()}})
	if err != nil {
		t.Fatal(err)
	}
	i := uint64(0)
	u := []pb.Update{updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 256))}
	n := testing.AllocsPerRun(200, func() {
		i++
		u[0].EntriesToSave[0].Index = i
		save(t, l, u...)
	})
	if n > 2 { // a chunk of the index now and then; the race detector empties pools
		t.Errorf("%v allocations", n)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// discard is a disk that keeps nothing.
type discard struct{ *disk }

func (d discard) Create(name string) (vfs.File, error) {
	if f, err := d.disk.Create(name); err != nil {
		return f, err
	}
	return discardFile{}, nil
}

func (d discard) ReuseForWrite(_, _ string) (vfs.File, error) { return discardFile{}, nil }

type discardFile struct{ vfs.File }

func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discardFile) Sync() error                            { return nil }
func (discardFile) Close() error                           { return nil }

func FuzzRecords(f *testing.F) {
	var b []byte
	k := key{1, 2}
	b = appendState(b, k, pb.State{Term: 1, Vote: 2, Commit: 3})
	b = appendEntries(b, k, entriesOf(4, 2, 1, 9))
	b = appendDocument(b, snapshotRecord, k, 4, 1, pb.MustMarshal(&pb.Snapshot{Index: 4, Term: 1}))
	b = appendCut(b, k, 4)
	f.Add(b)
	f.Add(appendRemoved(b, k))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &Log{index: index{replicas: make(map[key]*replica)}}
		_ = records(b, at(1, headerSize), l.apply)
		frame, sum := seal(append(make([]byte, frameHead), b...), at(3, 8192), at(3, 4096), 7, 1)
		got, ok := openFrame(append(make([]byte, 8192), frame...), 3, 8192)
		if !ok || got.sum != sum || !bytes.Equal(got.payload, b) || got.prev != 7 || got.first != 1 || got.synced != at(3, 4096) {
			t.Fatalf("%+v", got)
		}
		_, _ = parseHeader(b)
		_, _ = openFrame(b, 1, 0)
	})
}

func BenchmarkSave(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, err := Open(Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			i := uint64(1)
			for b.Loop() {
				save(b, l, updateOf(key{1, 1}, 1, entriesOf(i, n, 1, 256)))
				i += uint64(n)
			}
		})
	}
}
