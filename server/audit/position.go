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

// Position stores the index of the last audited log entry in a small file: a restart applies
// entries again and must not audit them again. Its methods must not run at the same time.
type Position struct {
	path  string
	index uint64
}

// OpenPosition reads the file; index 0 if there is none.
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

// Index is the last index that was set.
func (p *Position) Index() uint64 { return p.index }

// Set stores an index if it has changed. It does not wait for the disk: after a power failure an
// older index costs a few duplicate events.
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
