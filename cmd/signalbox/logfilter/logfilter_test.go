package logfilter

import (
	"bytes"
	"log"
	"testing"
)

// TestFilter: what the library says of pressure metrics is dropped, and nothing else.
func TestFilter(t *testing.T) {
	var out bytes.Buffer
	l := log.New(filter{&out}, "", 0)
	l.Printf("INFO: metrics: disable exposing PSI metrics because of failed init: " +
		"open /sys/fs/cgroup/cpu.pressure: no such file or directory")
	l.Printf("something else")
	if got := out.String(); got != "something else\n" {
		t.Errorf("shown: %q", got)
	}
}
