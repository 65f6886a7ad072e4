package ratelimit

import (
	"fmt"
	"testing"
)

// TestSlowLimitsStarveNoOther: calls that wait for long at as many limits as a program may have open at the server do
// not keep a call of another limit from being asked for.
func TestSlowLimitsStarveNoOther(t *testing.T) {
	x := newWorkTest()
	x.held = map[uint64]*action{}
	for i := range mostHeld + 10 {
		l := x.m.open(x.now, x.p, fmt.Sprintf("api/%d", i))
		x.m.enqueue(x.now, &call{leaves: []*leaf{l}, amount: 1000})
		x.drive()
	}
	x.pass(500)
	l := x.m.open(x.now, x.p, "api/other")
	c := &call{leaves: []*leaf{l}, amount: 1000}
	x.m.enqueue(x.now, c)
	for range 2_000 {
		if x.pass(1); c.heard {
			break
		}
	}
	if !c.heard {
		t.Errorf("a call beside %d that wait at other limits is not asked for", len(x.held))
	}
	if len(x.held) > mostHeld {
		t.Errorf("%d acquires are held", len(x.held))
	}
}
