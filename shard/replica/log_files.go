package replica

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// logFiles gives the log store's files their full length before they are written.
//
// A sync of a file that grows by it has the file system commit the new length to its journal first; a sync of a file that only changes inside does not, and
// takes two thirds of the time. The log store uses its files again once it has several, and has the fast sync from then on. Until then, which is some megabytes in
// each store, new files grow. Their blocks are reserved by the store itself, without the length; what is added here is the length. What is not written yet
// reads as zeros, which the store takes for the end when it reads a log back, as it has to where files are used again or blocks were reserved.
//
// It is a matter of speed only: a file that it comes late for, or fails on, is as good as any. It is used by one goroutine.
type logFiles struct {
	length int64
	stores []logFolder
}

// logFolder is one folder of log files, which have rising numbers for names.
type logFolder struct {
	dir     string
	changed time.Time // when the folder last had
	newest  string
}

// newLogFiles looks for the engine's log stores in its directory.
func newLogFiles(dir string, writeBuffer uint64) *logFiles {
	f := &logFiles{length: int64(writeBuffer + writeBuffer/10)} // what the store reserves
	dirs, _ := filepath.Glob(filepath.Join(dir, "*", "*", "logdb-*"))
	for _, d := range dirs {
		f.stores = append(f.stores, logFolder{dir: d})
	}
	return f
}

// logIsMissing says that replicas lived in the directory and the engine's log store is not there: the engine would make a new one, and the replicas would have
// forgotten everything. Their folders for snapshots are made after the store.
func logIsMissing(dir string) bool {
	stores, _ := filepath.Glob(filepath.Join(dir, "*", "*", "logdb-*"))
	replicas, _ := filepath.Glob(filepath.Join(dir, "*", "*", "snapshot-part-*"))
	return len(stores) == 0 && len(replicas) > 0
}

// settled is how long a folder must have been left alone until its time of change says that nothing is new: file systems count in ticks of some milliseconds.
const minFolderAge = time.Second

// extendNew extends what is new. While nothing is, it costs one call of the system for each store.
func (f *logFiles) extendNew() {
	for i := range f.stores {
		s := &f.stores[i]
		info, err := os.Stat(s.dir)
		if err != nil || info.ModTime().Equal(s.changed) && time.Since(s.changed) > minFolderAge {
			continue
		}
		s.changed = info.ModTime()
		names, err := os.ReadDir(s.dir) // in order of name, which for these is the order of age
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
