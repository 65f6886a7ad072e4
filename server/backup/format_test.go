package backup

import (
	"bytes"
	"flag"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/formattest"
)

var _ = flag.Bool("update", false, "rewrite the golden file of testdata")

// TestFormat compares each block of a backup with testdata/format-N.golden. The bytes of a shard
// have the formats of its snapshot, and golden files of their own.
func TestFormat(t *testing.T) {
	var (
		head    Head
		section Section
		file    bytes.Buffer
		g       formattest.Golden
		begin   int
	)
	formattest.Fill(&head)
	formattest.Fill(&section)
	section.Size = 8
	add := func(what string) {
		g.Add(what, "", file.Bytes()[begin:])
		begin = file.Len()
	}
	w, err := NewWriter(&file, head)
	if err != nil {
		t.Fatal(err)
	}
	add("magic and head")
	if err := w.Section(section); err != nil {
		t.Fatal(err)
	}
	add("section")
	if _, err := w.Write([]byte("snapshot")); err != nil {
		t.Fatal(err)
	}
	add("bytes")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	add("end")
	g.Check(t, Format)
}
