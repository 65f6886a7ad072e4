package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// TestLogFilesOfFullLengthAreReadBack copies a directory while its host runs, which is what is left
// when a process is killed: log files with zeros behind what was written.
func TestLogFilesOfFullLengthAreReadBack(t *testing.T) {
	dir, left := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "left")
	cfg := HostConfig{Dir: dir, RaftAddress: freeAddress(t)}
	h := openHost(t, cfg)
	s, r := startOne(t, h, nil)
	populate(t, s)
	files := newLogFiles(dir, logStoreBuffers().KVWriteBufferSize)
	if len(files.stores) != logStores {
		t.Fatalf("%d log stores found, but there are %d", len(files.stores), logStores)
	}
	files.extendNew()
	for _, st := range files.stores {
		info, err := os.Stat(filepath.Join(st.dir, st.newest))
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS == "linux" && info.Size() < files.length {
			t.Errorf("%s is %d bytes long, not %d", info.Name(), info.Size(), files.length)
		}
	}
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 20 {
		c.mustCreate(fmt.Sprint(i))
	}
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	closeHost(t, h)

	cfg.Dir = left
	h = openHost(t, cfg)
	again, r2 := startOne(t, h, nil)
	for i := range 20 {
		if !exists(t, again, fmt.Sprint(i)) {
			t.Errorf("semaphore %d is gone", i)
		}
	}
	sameHistory(t, r, r2)
}
