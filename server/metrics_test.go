package server

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestEveryKindIsCounted: replies to each request are counted under its own name.
func TestEveryKindIsCounted(t *testing.T) {
	var n replyCounts
	for kind := range protocol.KindReply {
		if !kind.IsRequest() {
			continue
		}
		n.count(kind, protocol.StatusOK)
		if n.n[kind][protocol.StatusOK].Load() != 1 {
			t.Errorf("%v is counted as something else", kind)
		}
	}
	if n.n[0][protocol.StatusOK].Load() != 0 {
		t.Error("something was counted as nothing that is known")
	}
}
