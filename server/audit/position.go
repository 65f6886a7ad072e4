package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
)

// Position stores the index of the last audited log entry in a small file: a restart applies
// entries again and must not audit them again. Its methods must not run at the same time.
type Position struct {
	path  string
	index uint64
}

// OpenPosition reads the file. The index is 0 without a file, or if a power failure left it empty.
func OpenPosition(path string) (*Position, error) {
	index, err := readNumber(path, false,
		"remove it, then events that are in the audit log already may be written again")
	if err != nil {
		return nil, fmt.Errorf("position of the audit log: %w", err)
	}
	return &Position{path, index}, nil
}

// Index is the last index that was set.
func (p *Position) Index() uint64 { return p.index }

// Set stores an index if it has changed. It does not wait for the disk: after a power failure an
// older index, or none, costs duplicate events.
func (p *Position) Set(index uint64) error {
	if index == p.index {
		return nil
	}
	next := p.path + ".new"
	err := file.CheckRegular(p.path)
	if err == nil {
		err = os.WriteFile(next, []byte(strconv.FormatUint(index, 10)+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(next, p.path)
	}
	if err != nil {
		return fmt.Errorf("position of the audit log: %w", err)
	}
	p.index = index
	return nil
}

// maxNumberFile is the longest file with a number, in bytes.
const maxNumberFile = 64

// Generation counts the starts of an instance in a small file, from 1. It returns the count of this
// start once it is on disk.
func Generation(path string) (uint64, error) {
	n, err := readNumber(path, true,
		"write one into it that is higher than any before, or remove it if nobody reads the audit log")
	if err == nil {
		n++
		err = file.Write(path, []byte(strconv.FormatUint(n, 10)+"\n"))
	}
	if err != nil {
		return 0, fmt.Errorf("count of starts: %w", err)
	}
	return n, nil
}

// readNumber reads a small file with a number; 0 without a file. remedy is for a file with other
// contents. A file that was renamed before it was synced may have its name and no content, or
// zeros, after a power failure: that is 0 as well.
func readNumber(path string, synced bool, remedy string) (uint64, error) {
	text, err := file.Read(path, maxNumberFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	}
	if !synced && len(bytes.Trim(text, "\x00 \n")) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s does not hold a number; %s", path, remedy)
	}
	return n, nil
}
