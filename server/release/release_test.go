package release_test

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestTreeIsUnreleased: only a release's stamp takes the suffix away.
func TestTreeIsUnreleased(t *testing.T) {
	plain, ok := strings.CutSuffix(release.TreeVersion, "-dev")
	if v, err := meta.ParseVersion(plain); !ok || err != nil || v.String() != plain {
		t.Errorf("the tree calls itself %s; write it as 1.2.0-dev", release.TreeVersion)
	}
}
