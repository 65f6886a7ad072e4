package client

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

var update = flag.Bool("update", false, "rewrite the golden file of testdata")

// TestSavedFormat compares saved sessions of each version with testdata/session-N.golden, a line
// each, and reads them.
func TestSavedFormat(t *testing.T) {
	t.Parallel()
	var is bytes.Buffer
	for version := range SavedVersion + 1 {
		saved := Saved{Node: "/billing", Session: 84799834292231, Key: bytes.Repeat([]byte{7}, protocol.KeyLen),
			Generation: 3, Version: version}
		line, err := json.Marshal(saved)
		if err != nil {
			t.Fatal(err)
		}
		is.Write(append(line, '\n'))
	}
	file := fmt.Sprintf("testdata/session-%d.golden", SavedVersion)
	if *update {
		if err := os.WriteFile(file, is.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is.Bytes(), want) {
		t.Fatalf("%s: what is saved is\n%swant\n%sIf a release wrote this format, raise SavedVersion.", file,
			is.Bytes(), want)
	}
	version := 0
	for line := range bytes.Lines(want) {
		var saved Saved
		if err := json.Unmarshal(line, &saved); err != nil {
			t.Fatal(err)
		}
		if saved.Node != "/billing" || saved.Session != 84799834292231 || saved.Generation != 3 ||
			saved.Version != version ||
			!bytes.Equal(saved.Key, bytes.Repeat([]byte{7}, protocol.KeyLen)) {
			t.Errorf("line %d is read as %+v", version+1, saved)
		}
		version++
	}
}
