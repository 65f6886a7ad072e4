package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

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
	every := form.Of(7, 1)
	for name, n := range d.now {
		used := len(bytes.TrimRight(n.data, "\x00")) // zeros fill up the last block
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
			if i < used {
				harmless++
			}
		}
	}
	t.Logf("%d found, %d without harm", found, harmless)
	if found < 5*harmless {
		t.Error("too few were found")
	}
}

// TestClaim: once the maintenance has run, damage to the newest frame is found although the mark is
// an old one, as it may be after a loss of power.
func TestClaim(t *testing.T) {
	for _, direct := range []bool{true, false} {
		for _, work := range []bool{true, false} {
			d := newDisk()
			d.direct = direct
			l := openOn(t, d)
			var oldMark []byte
			for i := range uint64(5) {
				save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+i, 1, 1, 100)))
				if i == 0 {
					oldMark = bytes.Clone(d.now[markPath].data)
				}
			}
			end := l.end
			if work {
				if err := l.work(); err != nil {
					t.Fatal(err)
				}
				if l.unclaimed {
					t.Error("it would be claimed again and again")
				}
			}
			d.now[l.path(1)].data[end.offset()-20] ^= 1
			d.now[markPath].data = oldMark
			if _, err := open(testConfig(d)); errors.Is(err, ErrDamaged) != work {
				t.Errorf("direct %v, maintenance %v: %v", direct, work, err)
			}
		}
	}
}

// TestClaimOfDrop: the frame that says that an old segment is not needed is claimed too, so damage
// to it is found, and not taken for a segment that is missing.
func TestClaimOfDrop(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	for i := range uint64(60) {
		save(t, l, updateOf(key{1, 1}, 1, entriesOf(1+i, 1, 1, 300)))
	}
	if err := errors.Join(l.RemoveEntriesTo(1, 1, 50), l.work()); err != nil {
		t.Fatal(err)
	}
	drop := l.end - frameHead
	if err := l.work(); err != nil {
		t.Fatal(err)
	}
	if l.first == 1 || l.end-frameHead == drop {
		t.Fatal("nothing was dropped or claimed")
	}
	name := l.path(drop.segment())
	d.now[name].data[drop.offset()+4] ^= 1
	if _, err := open(testConfig(d)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), name) {
		t.Error(err)
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

// contentsOf has a line for each replica with its snapshot and the entries after it.
func contentsOf(t testing.TB, db raftio.ILogDB) (lines map[key]string) {
	t.Helper()
	lines = make(map[key]string)
	nodes, err := db.ListNodeInfo()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		snapshot, err := db.GetSnapshot(n.ShardID, n.ReplicaID)
		if err != nil {
			t.Fatal(err)
		}
		entries, _, err := db.IterateEntries(nil, 0, n.ShardID, n.ReplicaID, snapshot.Index+1, math.MaxUint64, math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d/%d", snapshot.Index, snapshot.Term)
		for _, e := range entries {
			line += fmt.Sprintf(" %d/%d:%x", e.Index, e.Term, e.Cmd)
		}
		lines[key{n.ShardID, n.ReplicaID}] = line
	}
	return lines
}

// TestAcceptLoss opens what is left of a damaged log. Damage in the newest segment leaves the log
// as it was after some call. Damage in an older one leaves of each replica a snapshot that it had,
// and entries that followed it after some call.
func TestAcceptLoss(t *testing.T) {
	h := newHistory(5)
	d := newDisk()
	l := openOn(t, d)
	var states []map[key]string
	for i := 0; i < 80 || len(l.segments) < 4; i++ {
		if err := h.next().run(l); err != nil {
			t.Fatal(err)
		}
		states = append(states, contentsOf(t, l))
	}
	had := func(k key, line string) bool {
		snapshot, entries, _ := strings.Cut(line, " ")
		hadSnapshot, hadEntries := false, entries == ""
		for _, s := range states {
			was, follow, _ := strings.Cut(s[k], " ")
			hadSnapshot = hadSnapshot || was == snapshot
			hadEntries = hadEntries || strings.Contains(" "+follow+" ", " "+entries+" ")
		}
		return hadSnapshot && hadEntries
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := copyOf(d)
		n := 1 + r.IntN(len(l.segments))
		name := l.path(uint32(n))
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
		got := contentsOf(t, half)
		for k, line := range got {
			if !had(k, line) {
				t.Fatalf("%s: the log of %v is\n%s", name, k, line)
			}
		}
		whole := slices.ContainsFunc(states, func(s map[key]string) bool { return maps.Equal(s, got) })
		if at >= headerSize && n == len(l.segments) && !whole && len(got) > 0 {
			t.Fatalf("%s: the log is\n%v", name, got)
		}
		if !errors.Is(half.Damage(), ErrDamaged) {
			t.Fatal(half.Damage())
		}
		if err := half.SaveBootstrapInfo(1, 1, pb.Bootstrap{}); !errors.Is(err, ErrDamaged) {
			t.Fatalf("it was written: %v", err)
		}
	}
}

// TestAcceptLossOfOlderSegment: a snapshot and all entries after it are in the newest segment, and
// the oldest one is damaged. Another log has nothing there, and a third one only a newer snapshot.
func TestAcceptLossOfOlderSegment(t *testing.T) {
	d := newDisk()
	l := openOn(t, d)
	busy, idle, stored := key{1, 1}, key{2, 1}, key{3, 1}
	for _, k := range []key{busy, idle, stored} {
		if err := l.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{}); err != nil {
			t.Fatal(err)
		}
		save(t, l, updateOf(k, 1, entriesOf(1, 4, 1, 10)))
	}
	from := l.end
	index := uint64(5)
	for ; len(l.segments) < 3; index++ {
		save(t, l, updateOf(busy, 1, entriesOf(index, 1, 1, 500)))
	}
	for k, at := range map[key]uint64{busy: index - 1, stored: 2} {
		s := pb.Snapshot{Index: at, Term: 1, ShardID: k.shard, Filepath: "file"}
		if err := l.SaveSnapshots([]pb.Update{{ShardID: k.shard, ReplicaID: k.replica, Snapshot: s}}); err != nil {
			t.Fatal(err)
		}
	}
	save(t, l, updateOf(busy, 1, entriesOf(index, 2, 1, 10)))
	want := contentsOf(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	end := d.now[l.path(1)].data
	last := int64(len(end)) - 1
	for end[last] == 0 {
		last--
	}
	for _, at := range []int64{from.offset() + frameHead, last} { // a frame behind it says so, or the next header
		c := copyOf(d)
		c.now[l.path(1)].data[at] ^= 1
		cfg := testConfig(c)
		if _, err := open(cfg); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		cfg.AcceptLoss = true
		half, err := open(cfg)
		if err != nil || !errors.Is(half.Damage(), ErrDamaged) {
			t.Fatal(err)
		}
		if got := contentsOf(t, half); !maps.Equal(got, want) {
			t.Errorf("with damage at byte %d the logs are\n%v\nwant\n%v", at, got, want)
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
	if _, err := open(testConfig(d)); !errors.Is(err, errors.ErrUnsupported) ||
		!strings.Contains(err.Error(), "start the program that wrote it") {
		t.Fatal(err)
	}
}
