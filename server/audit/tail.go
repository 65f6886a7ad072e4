package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// tailBytes is how much of the end of the file Tail reads. Lines are mostly of 200 to 500 bytes;
// those with long names and reasons may have several KiB, and then fewer fit.
const tailBytes = 256 << 10

// Errors of Tail.
var (
	ErrOff    = errors.New("this instance writes no audit log; start it with --audit")
	ErrNoFile = errors.New("this instance writes its audit log to standard error, or to a device; look where that is kept")
)

// Tail returns the last lines of the log's file, the newest last: at most most of them, from the
// last 256 KiB of the file. Lines that are not JSON objects are left out. Queued lines are not
// there yet. Errors: ErrOff, ErrNoFile.
func (l *Log) Tail(most int) (lines []string, err error) {
	switch {
	case l == nil:
		return nil, ErrOff
	case l.path == "":
		return nil, ErrNoFile
	}
	f, err := os.OpenFile(l.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNoFile
	}
	from := max(0, info.Size()-tailBytes)
	b := make([]byte, info.Size()-from)
	n, err := f.ReadAt(b, from)
	if n < len(b) { // it was cut short meanwhile
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if from > 0 { // in the middle of a line
		_, b, _ = bytes.Cut(b, []byte{'\n'})
	}
	for len(b) > 0 && len(lines) < most {
		b = bytes.TrimSuffix(b, []byte{'\n'})
		i := bytes.LastIndexByte(b, '\n')
		if line := b[i+1:]; len(line) > 0 && line[0] == '{' && json.Valid(line) {
			lines = append(lines, string(line))
		}
		b = b[:i+1]
	}
	slices.Reverse(lines)
	return lines, nil
}
