// Package binary gives tests the programs of this tree, built as `make build` builds them.
//
// A program is built by the first test that asks for it and kept in the user's folder for caches,
// where the tests of other packages, and later runs, find it up to date. Each test gets a link of
// its own: a build that another run needs in the meantime does not change what this test starts.
package binary

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Signalbox returns the path of the command line, cmd/signalbox. The file goes with the test.
func Signalbox(t testing.TB) (path string) {
	t.Helper()
	return Program(t, "cmd/signalbox")
}

// Program returns the path of the program that a folder of the repository has, which may be a
// module of its own. The file has the folder's name, and goes with the test.
func Program(t testing.TB, folder string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), filepath.Base(folder))
	if err := program(folder, path); err != nil {
		t.Fatalf("no program of %s: %v", folder, err)
	}
	return path
}

var (
	mu    sync.Mutex
	built = map[string]string{} // paths by folder
)

func program(folder, link string) error {
	mu.Lock()
	defer mu.Unlock()
	caches, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	caches = filepath.Join(caches, "signalbox", "tests")
	if err := os.MkdirAll(caches, 0o755); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(caches, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if built[folder] == "" {
		if built[folder], err = build(folder, caches); err != nil {
			return err
		}
	}
	if os.Link(built[folder], link) == nil {
		return nil
	}
	// Another file system. This process must not write it: a child that is forked meanwhile would
	// keep it open for writing, and the program could not be started.
	if out, err := exec.Command("cp", built[folder], link).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// lock waits for other processes that build or link a program.
func lock(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// build builds a program where it is kept, unless it is there and up to date.
func build(folder, caches string) (path string, err error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/signalbox-dev/signalbox").Output()
	if err != nil {
		return "", fmt.Errorf("the repository is not found: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(folder))
	sum := sha256.Sum256([]byte(source)) // each clone has its own
	path = filepath.Join(caches, fmt.Sprintf("%s-%x", filepath.Base(folder), sum[:6]))
	cmd := exec.Command("go", "build", "-C", source, "-trimpath", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}
