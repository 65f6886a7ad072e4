package replica

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
)

// TestSuppressElections: a group of one whose host is told that it is one of several is not called
// to an election, as any other is.
func TestSuppressElections(t *testing.T) {
	n := &campaigner{Wakeup: wakeup.New()}
	(&Host{campaigner: n}).SuppressElections(1)
	n.checkSingle(1, 1)
	n.checkSingle(2, 1)
	if len(n.pending) != 1 || n.pending[0].shard != 2 || n.pending[0].next.After(time.Now()) {
		t.Errorf("calls are %+v, want one of shard 2 at once", n.pending)
	}
}
