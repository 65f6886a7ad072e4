package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderOfOthers: a data folder that others could write to or read is closed to them. What lies
// in it is looked at by package datafolder.
func TestFolderOfOthers(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o777, 0o770, 0o702, 0o755, 0o711, 0o700} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		s := &Server{cfg: Config{DataDir: dir}, log: slog.New(slog.DiscardHandler)}
		err := s.makeFolder(t.Context())
		if s.lock != nil {
			_ = s.lock.Close()
		}
		if fi, _ := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("mode %o: error %v, mode %v afterwards", mode, err, fi.Mode())
		}
	}
}
