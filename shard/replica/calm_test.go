package replica

import (
	"testing"
	"time"
)

// TestCalm: a group of one whose host is told that it is one of several is not called to an election, as any other is.
func TestCalm(t *testing.T) {
	h := &Host{}
	h.Calm(1) // no nudger: nothing happens
	n := &nudger{h: h, wakeC: make(chan struct{}, 1)}
	h.nudger = n
	h.Calm(1)
	n.look(1, 1)
	n.look(2, 1)
	if len(n.list) != 1 || n.list[0].shard != 2 || n.list[0].next.After(time.Now()) {
		t.Errorf("calls are %+v, want one of shard 2 at once", n.list)
	}
}
