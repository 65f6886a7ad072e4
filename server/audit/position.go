package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
)

// Position is a small file with the index of the last log entry that was written of, so that a
// restart, which applies entries again, does not write of them again. Its methods may not be called
// at the same time.
type Position struct {
	path  string
	index uint64
}

// OpenPosition reads the file; 0 when there is none.
func OpenPosition(path string) (*Position, error) {
	p := &Position{path: path}
	text, err := file.Read(path, maxNumberFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("place of the audit log: %w", err)
	}
	if p.index, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return nil, fmt.Errorf("%s does not hold a number; remove it, then events that are in the audit log already may be written again", path)
	}
	return p, nil
}

// Index is what was set last.
func (p *Position) Index() uint64 { return p.index }

// Set keeps an index, if it is another. It does not wait for the disk to have it: after a power
// failure an older one costs a few events that are there twice.
func (p *Position) Set(index uint64) error {
	if index == p.index {
		return nil
	}
	next := p.path + ".new"
	if err := file.CheckRegular(p.path); err != nil {
		return fmt.Errorf("place of the audit log: %w", err)
	}
	if err := os.WriteFile(next, []byte(strconv.FormatUint(index, 10)+"\n"), 0o600); err != nil {
		return fmt.Errorf("place of the audit log: %w", err)
	}
	if err := os.Rename(next, p.path); err != nil {
		return fmt.Errorf("place of the audit log: %w", err)
	}
	p.index = index
	return nil
}
