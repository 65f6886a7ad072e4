// Package reread reads files that are replaced while a program runs.
package reread

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
)

// File reads a file at each call, unless it is none that can be read again.
func File[T any](path string, parse func([]byte) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var once *T
	return func(context.Context) (value T, err error) {
		mu.Lock()
		defer mu.Unlock()
		if once != nil {
			return *once, nil
		}
		b, regular, err := Read(path)
		if err == nil {
			value, err = parse(b)
		}
		if err == nil && !regular {
			once = &value
		}
		return value, err
	}
}

// maxFileSize bounds a file of credentials, in bytes: a device given by mistake may have no end.
const maxFileSize = 4 << 20

// Read reads a file. regular reports whether it can be read again.
func Read(path string) (b []byte, regular bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil {
		regular = fi.Mode().IsRegular()
	}
	b, err = io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(b) > maxFileSize {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxFileSize)
	}
	return b, regular, err
}
