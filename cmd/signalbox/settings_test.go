package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLongServeFile: a file that cannot be a configuration is refused before it fills the memory.
func TestLongServeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for _, x := range []struct {
		extra int
		want  string // a part of the error; empty: fine
	}{{0, ""}, {1, "is longer than 1048576 bytes"}} {
		text := "shards: 3 # " + strings.Repeat("x", maxConfigFile)
		if err := os.WriteFile(path, []byte(text[:maxConfigFile+x.extra]), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := readServeFile(path)
		switch {
		case x.want == "" && (err != nil || v["shards"] != "3"):
			t.Errorf("a file of the greatest length: %v, %v", v, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("a longer one: %v", err)
		}
	}
}
