package audit

import (
	"fmt"
	"os"
	"strconv"

	"github.com/signalbox-dev/signalbox/server/file"
)

// Position stores the index of the last audited log entry in a small file: a restart applies
// entries again and must not audit them again. Its methods must not run at the same time.
type Position struct {
	path  string
	index uint64
}

// OpenPosition reads the file; index 0 if there is none, or if a power failure has left it empty.
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
