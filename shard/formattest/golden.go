// Package formattest compares, for tests, the bytes of a format with the golden file of its number.
// testdata/format-N.golden has each command, record or message of format N once, in hexadecimal. A
// format that a release wrote never changes: what is added is the next number.
package formattest

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Golden gathers the lines of a file.
type Golden struct {
	bytes.Buffer
	Name  string // of the file instead of "format", where a folder has two formats
	kinds map[string]bool
}

// Add adds a line: what the bytes are, what is in them, and the bytes. kind is also what
// [Golden.Has] is asked about.
func (g *Golden) Add(kind, text string, b []byte) {
	if g.kinds == nil {
		g.kinds = map[string]bool{}
	}
	g.kinds[kind] = true
	if text != "" {
		kind += " " + text
	}
	fmt.Fprintf(g, "%s: %x\n", kind, b)
}

// Has reports whether a line is of this kind.
func (g *Golden) Has(kind string) bool { return g.kinds[kind] }

// Check compares with the golden file of the number. The flag -update writes it, and only it.
func (g *Golden) Check(t testing.TB, number int) {
	t.Helper()
	file := filepath.Join("testdata", fmt.Sprintf("%s-%d.golden", cmp.Or(g.Name, "format"), number))
	if f := flag.Lookup("update"); f != nil && f.Value.String() == "true" {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, g.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was, is := bytes.Split(want, []byte("\n")), bytes.Split(g.Bytes(), []byte("\n"))
	for i := range min(len(was), len(is)) {
		if !bytes.Equal(was[i], is[i]) {
			t.Fatalf("%s: line %d is\n%s\nwant\n%s\nIf a release wrote this format, raise its number.", file, i+1,
				is[i], was[i])
		}
	}
	if len(was) != len(is) {
		t.Fatalf("%s: %d lines, want %d. If a release wrote this format, raise its number.", file, len(is), len(was))
	}
}
