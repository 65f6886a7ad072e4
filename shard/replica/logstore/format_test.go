package logstore

import (
	"flag"
	"testing"

	"github.com/signalbox-dev/signalbox/shard/formattest"
)

var _ = flag.Bool("update", false, "rewrite the golden file of testdata")

// TestFormat compares the file of marks with testdata/format-N.golden.
func TestFormat(t *testing.T) {
	var g formattest.Golden
	g.Add("marks", "", appendMarks(nil, 7, map[key]mark{{2, 3}: {4, 5, 6}, {8, 9}: {10, 11, 12}}))
	g.Check(t, FileVersion)
}
