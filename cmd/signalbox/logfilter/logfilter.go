// Package logfilter keeps a library's remarks to itself that are no business of people at a
// terminal. Importing it is enough.
//
// The library behind /metrics logs, when it is initialized, that it does not show pressure metrics
// if the kernel has none: each command line began with that. The raft engine's logger takes package
// log over when it is initialized. So this package is initialized between the two: behind the
// logger, which it imports, and before the library, whose other imports are ready later. A test runs
// a command where there are no pressure files.
//
// Of the packages whose imports are ready, Go initializes the one with the lowest import path
// first. This one imports log only; the metrics library imports net/http, which comes after log.
// The script version checks the order: if it fails after an update, that library has fewer imports,
// and this package comes too late.
package logfilter

import (
	"bytes"
	"io"
	"log"
	"os"

	_ "github.com/lni/dragonboat/v4/logger"
)

// pressureText is common to all these lines.
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
