package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestTreeWritesItsFormats: a cluster of this tree's version writes this tree's formats, and one of
// the first version writes the first ones.
func TestTreeWritesItsFormats(t *testing.T) {
	v, err := meta.ParseVersion(release.TreeVersion)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := meta.FormatsOf(v), (meta.Formats{Shard: shard.FormatVersion, Meta: meta.FormatVersion}); got != want {
		t.Errorf("version %s of the cluster allows the formats %v, this tree has %v: the table in shard/meta/formats.go lacks a line",
			v, got, want)
	}
	if got, want := meta.FormatsOf(meta.Version{}), (meta.Formats{Shard: 1, Meta: 1}); got != want {
		t.Errorf("a cluster without a version allows the formats %v", got)
	}
}

// goldenFiles has the golden file of each format, by its number. Frames of clients and of instances
// may get more fields under one number, so tests of theirs read the bytes that a release kept:
// TestKeptVectors of protocol, and TestKeptMessages of server/cluster.
var goldenFiles = map[string]string{
	"shard": "../shard/testdata/format-%d.golden", "meta": "../shard/meta/testdata/format-%d.golden",
	"log": "../shard/replica/wal/testdata/format-%d.golden", "watermark": "../shard/replica/logstore/testdata/format-%d.golden",
	"identity": "cluster/testdata/identity-%d.golden", "backup": "backup/testdata/format-%d.golden",
	"session":  "../client/testdata/session-%d.golden",
	"protocol": "", "peer": "",
}

// keptFormat is a format in the formats.json of a kept release.
type keptFormat struct {
	Number int    `json:"number"`
	SHA256 string `json:"sha256,omitempty"` // of its golden file
}

func presentFormats(t *testing.T) map[string]keptFormat {
	t.Helper()
	present := map[string]keptFormat{}
	for _, f := range append(Formats(), Format{"session", client.SavedVersion}) {
		if _, ok := goldenFiles[f.Name]; !ok {
			t.Fatalf("the format %s has no golden file in this test; add it", f.Name)
		}
		present[f.Name] = keptFormat{f.Number, goldenSum(t, f.Name, f.Number)}
	}
	return present
}

// goldenSum returns the SHA-256 of a format's golden file, empty where it has none.
func goldenSum(t *testing.T, name string, number int) string {
	t.Helper()
	if goldenFiles[name] == "" {
		return ""
	}
	content, err := os.ReadFile(fmt.Sprintf(goldenFiles[name], number))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

var keep = flag.String("keep", "", "the folder of a release that is being kept: make keep writes formats.json there")

// TestKeptFormats compares the golden files with those of the releases: the bytes of a number that
// a release wrote never change.
func TestKeptFormats(t *testing.T) {
	if *keep != "" {
		text, err := json.MarshalIndent(presentFormats(t), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*keep, "formats.json"), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/releases/*/formats.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no release is kept yet")
	}
	present := presentFormats(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kept map[string]keptFormat
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		for name, f := range kept {
			for _, problem := range formatProblems(name, f, present[name], goldenSum(t, name, f.Number)) {
				t.Errorf("%s: %s", file, problem)
			}
		}
	}
}

// formatProblems lists the faults of a format that a release wrote. sum is that of the golden
// file that the tree has for the release's number.
func formatProblems(name string, kept, present keptFormat, sum string) []string {
	switch {
	case present.Number < kept.Number:
		return []string{fmt.Sprintf("the release writes %s %d, and this tree knows %d", name, kept.Number,
			present.Number)}
	case sum != kept.SHA256:
		return []string{fmt.Sprintf("the bytes of %s %d have changed: leave its golden file as it was, and give what is new "+
			"the number %d (before the release is out: make keep)", name, kept.Number, max(present.Number,
			kept.Number+1))}
	}
	return nil
}

// TestChangedFormats: a format that changes without a number, or is gone, is found.
func TestChangedFormats(t *testing.T) {
	one, two := keptFormat{1, "aa"}, keptFormat{2, "bb"}
	for _, x := range []struct {
		kept, present keptFormat
		sum           string
		found         bool
	}{
		{one, one, "aa", false}, {one, two, "aa", false}, // the next number
		{one, one, "bb", true}, {one, two, "bb", true}, // other bytes under the number
		{two, one, "bb", true}, // back
	} {
		if found := formatProblems("shard", x.kept, x.present, x.sum); (len(found) > 0) != x.found {
			t.Errorf("%+v against %+v and %s: %s", x.present, x.kept, x.sum, slices.Concat(found))
		}
	}
}
