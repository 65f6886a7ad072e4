// Package file replaces files as a whole, and reads small ones.
//
// A file that is replaced by a rename keeps neither its type nor its links. A rename onto /dev/null
// removes the device for all processes of the machine. A rename onto a symbolic link leaves the
// linked file unchanged. So Replace and CheckRegular refuse files that are not regular. A file that
// is read whole has a size limit: a device may have no end.
//
// The check is made twice, before the work and before the rename. Between the second check and the
// rename there is a gap; the folder's owner can do in it what it could do at any other time. Files
// that grow, such as logs, and those that must not exist yet are not the business of this package.
package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckRegular returns an error unless path is a regular file or does not exist. Call it before
// work that ends in Replace.
func CheckRegular(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case fi.Mode().IsRegular():
		return nil
	}
	return fmt.Errorf("%s is %s, not a regular file, and is left as it is; give the name of a regular file or of a new one",
		path, typeName(fi.Mode()))
}

// typeName names a type of file that is not regular.
func typeName(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a folder"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	}
	return "a device"
}

// Replace writes a file beside path, calls check with a name by which it can be opened unless check
// is nil, and gives it the name path. When it returns nil, the file and its name are on disk.
// Otherwise path is unchanged. The mode is 0600. Of concurrent calls for one path, one wins.
//
// Where the system and its file system can, the file has no name until it is complete, so that a
// process that is killed leaves nothing.
func Replace(path string, write func(*os.File) error, check func(temporary string) error) (err error) {
	if err := CheckRegular(path); err != nil {
		return err
	}
	dir, name := filepath.Split(filepath.Clean(path))
	if dir == "" {
		dir = "."
	}
	f, giveName, err := createNew(dir, name)
	var failed *os.PathError // of a name that nobody has given
	if errors.As(err, &failed) {
		return &os.PathError{Op: "create a file in", Path: dir, Err: failed.Err}
	}
	if err != nil {
		return err
	}
	temporary := "" // in the folder
	defer func() {
		_ = f.Close()
		if temporary != "" && err != nil {
			_ = os.Remove(temporary)
		}
	}()
	readable := f.Name()
	if giveName == nil {
		temporary = readable
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if check != nil {
		if err := check(readable); err != nil {
			return err
		}
	}
	if giveName != nil {
		if temporary, err = giveName(); err != nil {
			return err
		}
	}
	if err := CheckRegular(path); err != nil { // made meanwhile
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// createNamed makes a file with a temporary name.
func createNamed(dir, name string) (*os.File, error) { return os.CreateTemp(dir, "."+name+".*.part") }

// Write replaces a file with these bytes.
func Write(path string, b []byte) error {
	return Replace(path, func(f *os.File) error {
		_, err := f.Write(b)
		return err
	}, nil)
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read reads a file up to a limit in bytes. A longer one is an error. The file may be a pipe, as
// from <(command) in a shell.
func Read(path string, limit int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path, limit)
}

// ReadAll is Read from an open reader.
func ReadAll(r io.Reader, name string, limit int) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return b, nil
}
