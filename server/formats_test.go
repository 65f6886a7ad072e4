package server

import (
	"testing"

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
