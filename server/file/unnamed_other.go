//go:build !linux

package file

import "os"

// createNew makes a file with a temporary name.
func createNew(dir, name string) (f *os.File, giveName func() (string, error), err error) {
	f, err = createNamed(dir, name)
	return f, nil, err
}
