package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
)

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

// readNumber reads a small file with a number; 0 if there is none. remedy is for a file that holds
// something else. A file that was renamed before it was synced may have its name and no content, or
// zeros, after a power failure: that is none as well.
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
