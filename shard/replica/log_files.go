package replica

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// logFiles gives the log store's files their full length before they are written.
//
// A sync of a file that grows makes the file system commit the new length to its journal first. A
// sync of a file of fixed length does not, and takes two thirds of the time. The log store reuses
// its files once it has several. Until then, for some megabytes in each store, new files grow. The
// store reserves their blocks without the length; logFiles adds the length. What is not written yet
// reads as zeros, which the store takes for the end when it reads a log back, as it does in reused
// files.
//
// This is only for speed: a file that is extended late, or not at all, works too. logFiles is not
// safe for concurrent use.
type logFiles struct {
	length int64
	stores []logFolder
}

// logFolder is a folder of log files, whose names are rising numbers.
type logFolder struct {
	dir     string
	changed time.Time // of the folder
	newest  string
}

// newLogFiles finds the engine's log stores in its directory.
func newLogFiles(dir string, writeBuffer uint64) *logFiles {
	f := &logFiles{length: int64(writeBuffer + writeBuffer/10)} // as the store reserves
	dirs, _ := filepath.Glob(filepath.Join(dir, "*", "*", "logdb-*"))
	for _, d := range dirs {
		f.stores = append(f.stores, logFolder{dir: d})
	}
	return f
}

// logIsMissing reports whether replicas lived in the directory and the engine's log store is gone.
// The engine would create an empty store, and the replicas would have forgotten everything. The
// folders for snapshots are created after the store.
func logIsMissing(dir string) bool {
	stores, _ := filepath.Glob(filepath.Join(dir, "*", "*", "logdb-*"))
	replicas, _ := filepath.Glob(filepath.Join(dir, "*", "*", "snapshot-part-*"))
	return len(stores) == 0 && len(replicas) > 0
}

// minFolderAge is how long a folder must be unchanged before its modification time proves that
// nothing is new: file systems count in ticks of some milliseconds.
const minFolderAge = time.Second

// extendNew extends new files. If there are none, it costs one system call per store.
func (f *logFiles) extendNew() {
	for i := range f.stores {
		s := &f.stores[i]
		info, err := os.Stat(s.dir)
		if err != nil || info.ModTime().Equal(s.changed) && time.Since(s.changed) > minFolderAge {
			continue
		}
		s.changed = info.ModTime()
		names, err := os.ReadDir(s.dir) // in order of name, so of age
		if err != nil {
			continue
		}
		for j := len(names) - 1; j >= 0; j-- {
			name := names[j].Name()
			if !strings.HasSuffix(name, ".log") {
				continue
			}
			if name != s.newest {
				s.newest = name
				_ = extendFile(filepath.Join(s.dir, name), f.length)
			}
			break
		}
	}
}
