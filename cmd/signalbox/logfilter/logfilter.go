// Package logfilter keeps a library's remarks to itself that are no business of people at a
// terminal. Importing it is enough.
//
// The library behind /metrics logs, when it is initialized, that it does not show pressure metrics
// if the kernel has none: each command line began with that. This package is initialized before it,
// as its import path is the lower one of those whose imports are ready; a test holds that.
package logfilter

import (
	"bytes"
	"io"
	"log"
	"os"
)

// pressureText is what the lines have in common.
var pressureText = []byte("exposing PSI metrics")

var _ = install()

func install() bool {
	log.SetOutput(filter{os.Stderr})
	return true
}

// filter drops the lines about pressure metrics. A logger writes a line at a time.
type filter struct{ io.Writer }

func (f filter) Write(line []byte) (int, error) {
	if bytes.Contains(line, pressureText) {
		return len(line), nil
	}
	return f.Writer.Write(line)
}
