package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
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
