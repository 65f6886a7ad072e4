package logstore

import (
	"bytes"
	"maps"
	"testing"
)

func TestMarksRoundTrip(t *testing.T) {
	in := map[key]mark{{1, 2}: {3, 4, 5}, {1, 1}: {6, 7, 8}, {9, 1}: {}}
	b := appendMarks(nil, 42, in)
	seq, out, err := parseMarks(b)
	if err != nil || seq != 42 || !maps.Equal(in, out) {
		t.Fatalf("%d %v %v", seq, out, err)
	}
	for i := range b { // every byte counts
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, _, err := parseMarks(c); err == nil {
			t.Fatalf("byte %d was changed, and nobody noticed", i)
		}
		if _, _, err := parseMarks(b[:i]); err == nil {
			t.Fatalf("cut after %d bytes, and nobody noticed", i)
		}
	}
}

func TestBehind(t *testing.T) {
	at := mark{term: 5, lastTerm: 4, lastIndex: 100}
	for _, c := range []struct {
		m    mark
		want bool
	}{
		{at, false},
		{mark{6, 4, 100}, false},
		{mark{5, 4, 101}, false},
		{mark{5, 5, 7}, false}, // cut by a later leader
		{mark{5, 4, 99}, true},
		{mark{5, 3, 500}, true},
		{mark{4, 4, 100}, true}, // a vote that is forgotten
	} {
		if got := c.m.behind(at); got != c.want {
			t.Errorf("%v behind %v: %v", c.m, at, got)
		}
	}
}

func FuzzMarks(f *testing.F) {
	f.Add(appendMarks(nil, 1, map[key]mark{{1, 1}: {1, 1, 1}}))
	f.Add([]byte("sigm"))
	f.Fuzz(func(t *testing.T, b []byte) {
		seq, marks, err := parseMarks(b)
		if err != nil {
			return
		}
		again, same, err := parseMarks(appendMarks(nil, seq, marks))
		if err != nil || again != seq || !maps.Equal(marks, same) {
			t.Fatalf("%v became %v: %v", marks, same, err)
		}
	})
}
