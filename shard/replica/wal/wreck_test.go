package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// wreck is a disk that was left by a process which was killed right after its last write: no
// maintenance has run since.
type wreck struct {
	*disk
	frames []position // where the last segment's frames begin, and where the last one ends
	older  *disk      // the same disk some writes before
}

// newWreck writes a log that needs segments 2 to 5.
func newWreck(t *testing.T, direct bool) (w wreck, was string) {
	t.Helper()
	w.disk = newDisk()
	w.direct = direct
	l := openOn(t, w.disk)
	k := key{1, 1}
	if err := l.SaveBootstrapInfo(k.shard, k.replica, pb.Bootstrap{}); err != nil {
		t.Fatal(err)
	}
	index := uint64(0)
	write := func() {
		index++
		save(t, l, updateOf(k, 1, entriesOf(index, 1, 1, 300)))
	}
	for len(l.segments) < 3 {
		write()
	}
	if err := errors.Join(l.RemoveEntriesTo(1, 1, 20), l.clean()); err != nil {
		t.Fatal(err)
	}
	for l.end.segment() < 5 {
		write()
	}
	w.older = copyOf(w.disk)
	w.frames = []position{l.end}
	for range 5 {
		write()
		w.frames = append(w.frames, l.end)
	}
	if l.first != 2 || l.end.segment() != 5 {
		t.Fatalf("the log needs segments %d to %d", l.first, l.end.segment())
	}
	return w, text(t, l)
}

const markPath = "/wal/" + markName

func (w wreck) copy() wreck { return wreck{copyOf(w.disk), w.frames, w.older} }

func (w wreck) file(number uint32) string { return path.Join("/wal", segmentName(number)) }

func (w wreck) mark() *inode { return w.now[markPath] }

// cut removes the last frames; with zeros the file keeps its length.
func (w wreck) cut(frames int, zeros bool) {
	n := w.now[w.file(5)]
	from := w.frames[len(w.frames)-1-frames].offset()
	if zeros {
		clear(n.data[from:])
	} else {
		n.data = n.data[:from]
	}
}

// become replaces a segment's file by a copy of another one's.
func (w wreck) become(number, of uint32) {
	w.now[w.file(number)] = &inode{data: bytes.Clone(w.now[w.file(of)].data)}
}

// frame is what a frame of the last segment is written in.
func (w wreck) frame(n int) []byte {
	return w.now[w.file(5)].data[w.frames[n].offset():w.frames[n+1].offset()]
}

// TestDamages: what each kind of damage to the files of a process that was just killed gives. A log
// that lacks something is refused; only without a mark it is for the watermark to find.
func TestDamages(t *testing.T) {
	const (
		whole   = "whole"   // the log has all that it had
		refused = "refused" // ErrDamaged
		shorter = "shorter" // the log lacks its end
	)
	type damage struct {
		name string
		do   func(w wreck)
		want string
	}
	table := []damage{
		{"none", func(w wreck) {}, whole},

		{"the last frame is torn", func(w wreck) {
			n := w.now[w.file(5)]
			n.data = n.data[:w.frames[5].offset()-100]
		}, refused},
		{"the last frame is flipped", func(w wreck) { w.frame(4)[40] ^= 1 }, refused},
		{"a frame before is flipped", func(w wreck) { w.frame(2)[40] ^= 1 }, refused},
		{"a frame is missing", func(w wreck) {
			n := w.now[w.file(5)]
			n.data = slices.Delete(n.data, int(w.frames[2].offset()), int(w.frames[3].offset()))
		}, refused},
		{"two frames are swapped", func(w wreck) {
			a := bytes.Clone(w.frame(2))
			copy(w.frame(2), w.frame(3))
			copy(w.frame(3), a)
		}, refused},
		{"the last frame is there twice", func(w wreck) {
			n := w.now[w.file(5)]
			n.data = append(n.data[:w.frames[5].offset()], w.frame(4)...)
		}, whole},
		{"bytes behind the end", func(w wreck) {
			n := w.now[w.file(5)]
			n.data = append(n.data[:w.frames[5].offset()], bytes.Repeat([]byte{1}, 100)...)
		}, whole},
		{"the last segment is an older copy", func(w wreck) { w.now[w.file(5)] = w.older.now[w.file(5)] }, refused},
		{"the last segment ends with its header", func(w wreck) {
			n := w.now[w.file(5)]
			n.data = n.data[:headerSize]
		}, refused},
		{"the last segment has no header", func(w wreck) { clear(w.now[w.file(5)].data[:headerLen]) }, refused},
		{"the last segment is empty", func(w wreck) { w.now[w.file(5)].data = nil }, refused},
		{"the last segment is missing", func(w wreck) { delete(w.now, w.file(5)) }, refused},
		{"the first segment is missing", func(w wreck) { delete(w.now, w.file(2)) }, refused},
		{"a segment between is missing", func(w wreck) { delete(w.now, w.file(3)) }, refused},
		{"a segment between is cut", func(w wreck) {
			n := w.now[w.file(3)]
			n.data = bytes.TrimRight(n.data, "\x00")
			n.data = n.data[:len(n.data)-50]
		}, refused},
		{"a segment between is empty", func(w wreck) { w.now[w.file(3)].data = nil }, refused},
		{"all segments are missing", func(w wreck) {
			for n := range uint32(6) {
				delete(w.now, w.file(n))
			}
		}, refused},
		{"all segments but the first are missing", func(w wreck) {
			for n := range uint32(6) {
				if n != 2 {
					delete(w.now, w.file(n))
				}
			}
		}, refused},
		{"the segments are of an older copy", func(w wreck) {
			for n := range uint32(6) {
				if w.older.now[w.file(n)] != nil {
					w.now[w.file(n)] = w.older.now[w.file(n)]
				}
			}
		}, refused},
		{"the segments are of another log", func(w wreck) {
			other, _ := newWreck(t, false)
			for n := range uint32(6) {
				if other.now[w.file(n)] != nil {
					w.now[w.file(n)] = other.now[w.file(n)]
				}
			}
		}, refused},
		{"the next segment is a copy of the first", func(w wreck) { w.become(6, 2) }, refused},
		{"the next segment is a copy of the last", func(w wreck) { w.become(6, 5) }, refused},
		{"a segment far behind is a copy of the first", func(w wreck) { w.become(99, 2) }, refused},
		{"the next segment is empty", func(w wreck) { w.now[w.file(6)] = new(inode) }, whole},
		{"the last segment is a copy of the first", func(w wreck) { w.become(5, 2) }, refused},
		{"the last segment is a copy of the one before", func(w wreck) { w.become(5, 4) }, refused},
		{"a segment between is a copy of the first", func(w wreck) { w.become(3, 2) }, refused},
		{"the first segment is a copy of the last", func(w wreck) { w.become(2, 5) }, refused},
		{"two segments are swapped", func(w wreck) {
			a, b := w.file(2), w.file(3)
			w.now[a], w.now[b] = w.now[b], w.now[a]
		}, refused},
		{"the last two segments are swapped", func(w wreck) {
			a, b := w.file(4), w.file(5)
			w.now[a], w.now[b] = w.now[b], w.now[a]
		}, refused},
		{"the last segment has the next one's name", func(w wreck) {
			w.become(6, 5)
			delete(w.now, w.file(5))
		}, refused},

		{"the mark is missing", func(w wreck) { delete(w.now, markPath) }, refused},
		{"the mark is of another log", func(w wreck) {
			other, _ := newWreck(t, false)
			w.mark().data = other.mark().data
		}, refused},
		{"the mark is torn", func(w wreck) { w.mark().data[17] ^= 1 }, whole},
		{"the mark is empty", func(w wreck) { w.mark().data = nil }, whole},
		{"the mark is old", func(w wreck) { w.mark().data = w.older.now[markPath].data }, whole},
		{"the mark is torn, and a frame is missing", func(w wreck) {
			w.mark().data[17] ^= 1
			w.cut(1, false)
		}, shorter},
		{"the folder is an older copy", func(w wreck) { w.now = w.older.now }, shorter},
	}
	for frames := 1; frames <= 5; frames++ {
		for _, zeros := range []bool{false, true} {
			name := fmt.Sprintf("cut by %d frames, zeros %v", frames, zeros)
			table = append(table, damage{name, func(w wreck) { w.cut(frames, zeros) }, refused})
		}
	}
	for _, direct := range []bool{true, false} {
		left, was := newWreck(t, direct)
		for _, c := range table {
			w := left.copy()
			w.older = copyOf(left.older)
			c.do(w)
			got := refused
			l, err := open(testConfig(w.disk))
			switch {
			case err == nil && text(t, l) == was:
				got = whole
			case err == nil:
				got = shorter
			case !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `"/wal/`):
				t.Errorf("%s: %v", c.name, err)
			}
			if got != c.want {
				t.Errorf("direct %v, %s: %s, want %s: %v", direct, c.name, got, c.want, err)
			}
			if got == whole { // and it can be continued, and is whole then
				save(t, l, updateOf(key{1, 1}, 1, entriesOf(1000, 1, 1, 300)))
				now := text(t, l)
				if again := text(t, openOn(t, w.disk)); again != now {
					t.Errorf("direct %v, %s: one more write leaves\n%s\nand was\n%s", direct, c.name, again, now)
				}
				continue
			}
			cfg := testConfig(w.disk)
			cfg.AcceptLoss = true
			if _, err := open(cfg); err != nil {
				t.Errorf("direct %v, %s: loss is accepted: %v", direct, c.name, err)
			}
		}
	}
}
