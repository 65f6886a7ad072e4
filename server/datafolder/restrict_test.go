//go:build unix

package datafolder

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestrict: folders of this process's user are closed, whatever their mode, unless others have
// put something into them.
func TestRestrict(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("files of other users are left out: the tests do not run as root")
	}
	for _, c := range []struct {
		name    string
		mode    fs.FileMode
		gid     int // -1: as it is
		foreign int // user of a file in it; -1: there is none
		bad     bool
	}{
		{"private", 0o700, -1, -1, false},
		{"others may look", 0o755, -1, -1, false},
		{"given to the own group", fs.ModeSetgid | 0o770, -1, -1, false},
		{"given to the own group, with a file of another user", fs.ModeSetgid | 0o770, -1, 54321, false},
		{"given to another group", 0o770, 54321, -1, false},
		{"given to another group, with a file of another user", 0o770, 54321, 54321, true},
		{"open to all", 0o777, -1, -1, false},
		{"open to all, with a file of another user", 0o777, -1, 54321, true},
		{"others may look, with a file of another user", 0o755, -1, 54321, false},
	} {
		if os.Geteuid() != 0 && (c.gid >= 0 || c.foreign >= 0) {
			continue
		}
		dir := filepath.Join(t.TempDir(), "data")
		inside := filepath.Join(dir, "raft", "log")
		if err := os.MkdirAll(filepath.Dir(inside), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(inside, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if c.foreign >= 0 {
			if err := os.Chown(inside, c.foreign, -1); err != nil {
				t.Fatal(err)
			}
		}
		if c.gid >= 0 {
			if err := os.Chown(dir, -1, c.gid); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		err := Restrict(dir, slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != c.bad || err != nil && !strings.Contains(err.Error(), inside) {
			t.Errorf("%s: %v", c.name, err)
		}
		fi, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		switch mode := fi.Mode().Perm(); {
		case c.bad && mode != c.mode.Perm():
			t.Errorf("%s: the mode of a folder that is refused is %04o", c.name, mode)
		case !c.bad && mode != 0o700:
			t.Errorf("%s: the mode is %04o", c.name, mode)
		case strings.Contains(log.String(), "closed to other users") != (!c.bad && c.mode.Perm() != 0o700):
			t.Errorf("%s: the log is %q", c.name, log.String())
		}
	}
}

// TestRestrictBesideUnreadable: a file system has a folder of root's, lost+found. It is no reason to
// refuse the folder that it is in.
func TestRestrictBesideUnreadable(t *testing.T) {
	dir := t.TempDir()
	closed := filepath.Join(dir, "lost+found")
	if err := os.Mkdir(closed, 0o000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(closed); err == nil {
		t.Skip("this process can read a folder of mode 0000: it runs as root")
	}
	if err := Restrict(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
}
