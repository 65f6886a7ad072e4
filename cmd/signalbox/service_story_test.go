package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestServiceStory runs the commands of SERVICE.md from top to bottom on real processes. In all that
// happens the caller never has a list without a member that answers.
func TestServiceStory(t *testing.T) {
	form.SkipUntil(t, form.Full, "a story of a dozen processes")
	t.Parallel()
	dir, _ := runPage(t, "SERVICE.md")
	history, err := os.ReadFile(filepath.Join(dir, "history"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(history), "\n"), "\n")
	for _, line := range lines {
		if len(strings.Fields(line)) < 2 {
			t.Errorf("the caller had the list %q", line)
		}
	}
	for _, want := range []string{
		"10.0.1.1:80 10.0.1.3:80",                         // the second one fails
		"10.0.1.1:80 10.0.1.2:80",                         // the third one drains
		"10.0.1.3:80 10.0.1.4:80 10.0.1.5:80 10.0.1.6:80", // most of the zone fails
		"10.0.1.4:80 10.0.1.5:80 10.0.1.6:80",             // it is gone
	} {
		at := slices.Index(lines, want)
		if at < 0 {
			t.Errorf("the caller never had %q", want)
			continue
		}
		lines = lines[at:] // in this order
	}
	if last := lines[len(lines)-1]; last != "10.0.2.1:80 10.0.2.2:80" {
		t.Errorf("the caller had %q in the end", last)
	}
}
