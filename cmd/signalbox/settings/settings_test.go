package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLongServeFile: a file that cannot be a configuration is refused before it fills the memory.
func TestLongServeFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	for _, x := range []struct {
		extra int
		want  string // a part of the error; empty: fine
	}{{0, ""}, {1, "is longer than 1048576 bytes"}} {
		text := "shards: 3 # " + strings.Repeat("x", MaxFile)
		if err := os.WriteFile(path, []byte(text[:MaxFile+x.extra]), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := ReadServeFile(path)
		switch {
		case x.want == "" && (err != nil || v["shards"] != "3"):
			t.Errorf("a file of the greatest length: %v, %v", v, err)
		case x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("a longer one: %v", err)
		}
	}
}

// TestLists: flags that are given several times, and what files may hold, come to one text.
func TestLists(t *testing.T) {
	l := new(listValue)
	for _, text := range []string{"a:1", " b:2 ,c:3", ""} {
		if err := l.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a:1", "b:2", "c:3"}, Split(l.String())); diff != "" {
		t.Error(diff)
	}
	if got := Split(" , ,"); got != nil {
		t.Errorf("nothing is %q", got)
	}
}
