// Package leftover fails the tests of a package that leave processes or files behind.
package leftover

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Tests are those of a package, on a folder for temporary files of their own.
type Tests struct {
	m *testing.M
}

// Check returns the package's tests for its TestMain.
func Check(m *testing.M) *Tests { return &Tests{m} }

// Run runs the tests and returns the exit code. It is not 0 either if a process that they started,
// or a file in the folder for temporary ones, is left: the name of each says which test it is of.
func (x *Tests) Run() int {
	dir, err := os.MkdirTemp("", "signalbox-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	former, set := os.LookupEnv("TMPDIR")
	_ = os.Setenv("TMPDIR", dir)
	adopt()
	code := x.m.Run()
	if set {
		_ = os.Setenv("TMPDIR", former)
	} else {
		_ = os.Unsetenv("TMPDIR")
	}
	found := processes()
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range left {
		found = append(found, "the file "+file)
	}
	for _, what := range found {
		fmt.Printf("FAIL: the tests have left %s; end or remove it in a t.Cleanup of its test\n", what)
		code = max(code, 1)
	}
	return code
}
