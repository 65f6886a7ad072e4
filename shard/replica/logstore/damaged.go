package logstore

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/vfs"
)

// The engine's own store, in which release 0.1.0 kept the log, is a folder of tables (*.sst), logs
// (*.log) and lists of tables (MANIFEST-*). CURRENT names the current list.
const (
	currentFile = "CURRENT"
	tableSuffix = ".sst"
	tableMagic  = "\xf7\xcf\xf4\x85\xb7\x41\xe2\x88" // at the end of a table
)

// openStore opens the engine's store. An error or panic about a damaged or missing file becomes
// [ErrDamaged] with the file.
func openStore(
	fs vfs.FS, c config.NodeHostConfig, busy config.LogDBCallback, dirs, walDirs []string,
) (db raftio.ILogDB, err error) {
	for _, dir := range dirs {
		if err := checkCurrent(fs, dir); err != nil {
			return nil, err
		}
	}
	db, err = tryOpen(c, busy, dirs, walDirs)
	if err != nil {
		return nil, damaged(fs, dirs[0], err)
	}
	return db, nil
}

func tryOpen(
	c config.NodeHostConfig, busy config.LogDBCallback, dirs, walDirs []string,
) (db raftio.ILogDB, err error) {
	defer recoverPanic(&err)
	return openEngineStore(c, busy, dirs, walDirs)
}

// selfCheck has the engine's store look for entries of a former format of the engine: the engine
// looks only in a store that it has opened itself.
func selfCheck(db raftio.ILogDB) error {
	c, ok := db.(interface{ SelfCheckFailed() (bool, error) })
	if !ok {
		return nil
	}
	if failed, err := c.SelfCheckFailed(); err != nil || failed {
		return fmt.Errorf(
			"the log is of a format that this program does not read (%w); start the program that wrote it",
			errors.Join(err, errors.ErrUnsupported))
	}
	return nil
}

// recoverPanic turns a panic of the engine's store into an error.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = errors.New(firstLine(fmt.Sprint(r)))
	}
}

// firstLine is an error's sentence without the engine's stack.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// checkCurrent rejects a store without CURRENT: the engine takes it for a new one, and removes the
// unknown tables.
func checkCurrent(fs vfs.FS, dir string) error {
	for _, store := range list(fs, dir, formerFolder) {
		if len(list(fs, store, "*.log"))+len(list(fs, store, "*"+tableSuffix)) == 0 ||
			len(list(fs, store, currentFile)) > 0 {
			continue
		}
		return fmt.Errorf("%w: %q is missing", ErrDamaged, fs.PathJoin(store, currentFile))
	}
	return nil
}

func list(fs vfs.FS, dir, pattern string) (paths []string) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if ok, _ := filepath.Match(pattern, name); ok {
			paths = append(paths, fs.PathJoin(dir, name))
		}
	}
	return paths
}

var fileNumber = regexp.MustCompile(`\b\d{6,}\b`)

// damaged is [ErrDamaged] with a cause and its file, as far as that can be found.
func damaged(fs vfs.FS, dir string, cause error) error {
	text := firstLine(cause.Error())
	for _, store := range list(fs, dir, formerFolder) {
		for _, name := range fileNumber.FindAllString(text, -1) {
			for _, path := range list(fs, store, "*"+name+"*") {
				if strings.Contains(text, path) {
					return fmt.Errorf("%w: %s", ErrDamaged, text)
				}
				if strings.HasSuffix(path, tableSuffix) {
					return fmt.Errorf("%w: %q: %s", ErrDamaged, path, text)
				}
			}
		}
		for _, path := range list(fs, store, "*"+tableSuffix) {
			if !endsAsTable(fs, path) {
				return fmt.Errorf("%w: %q: %s", ErrDamaged, path, text)
			}
		}
	}
	return fmt.Errorf("%w: in %q: %s", ErrDamaged, dir, text)
}

func endsAsTable(fs vfs.FS, path string) bool {
	f, err := fs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < int64(len(tableMagic)) {
		return false
	}
	end := make([]byte, len(tableMagic))
	_, err = f.ReadAt(end, info.Size()-int64(len(end)))
	return err == nil && string(end) == tableMagic
}
