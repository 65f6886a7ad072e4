package file_test

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/file"
)

// TestReplaceRefusesSpecialFiles: what is no regular file is refused with its kind, stays what it
// is, and leaves nothing beside it.
func TestReplaceRefusesSpecialFiles(t *testing.T) {
	for want, make := range map[string]func(t *testing.T, path string) error{
		"a folder":        func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) },
		"a named pipe":    func(_ *testing.T, path string) error { return syscall.Mkfifo(path, 0o600) },
		"a symbolic link": func(_ *testing.T, path string) error { return os.Symlink("elsewhere", path) },
		"a socket": func(t *testing.T, path string) error {
			l, err := net.Listen("unix", path)
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		},
	} {
		t.Run(want, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x")
			if err := make(t, path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := file.Write(path, []byte("text")); err == nil || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one that names %s and %s", err, path, want)
			}
			after, err := os.Lstat(path)
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("it is another file now (%v)", err)
			}
			if list, _ := os.ReadDir(dir); len(list) != 1 {
				t.Errorf("left in the folder: %v", list)
			}
		})
	}
	if err := file.CheckRegular("/dev/null"); err == nil || !strings.Contains(err.Error(), "a device") {
		t.Errorf("/dev/null: %v", err)
	}
}

// TestReplace: the file is there whole, or as it was.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	for _, text := range []string{"one", "two"} {
		if err := file.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if b, err := file.Read(path, 3); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	failed := errors.New("failed")
	if err := file.Replace(path, func(*os.File) error { return failed }, nil); !errors.Is(err, failed) {
		t.Errorf("error %v of a write", err)
	}
	if err := file.Replace(path, func(*os.File) error { return nil }, func(string) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v of a check", err)
	}
	if b, err := file.Read(path, 3); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left in the folder: %v", list)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// TestReplaceLeavesNoName: a file that is being written and checked has no name, so that a process that
// is killed leaves none.
func TestReplaceLeavesNoName(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system cannot write a file without a name")
	}
	dir := t.TempDir()
	nothing := func() {
		t.Helper()
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("in the folder: %v, %v", list, err)
		}
	}
	err := file.Replace(filepath.Join(dir, "x"), func(f *os.File) error {
		nothing()
		_, err := f.WriteString("text")
		return err
	}, func(open string) error {
		nothing()
		b, err := os.ReadFile(open)
		if string(b) != "text" {
			t.Errorf("%q is read in the check", b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(b) != "text" {
		t.Fatalf("%q, %v", b, err)
	}
}

// TestReadLimit: a device that never ends is an error, like any file that is too long.
func TestReadLimit(t *testing.T) {
	if _, err := file.Read("/dev/zero", 1000); err == nil || !strings.Contains(err.Error(), "/dev/zero is longer than 1000 bytes") {
		t.Errorf("error %v", err)
	}
	if _, err := file.Read(filepath.Join(t.TempDir(), "none"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
