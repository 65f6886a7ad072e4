package client_test

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestReduceToNothing: a reduction to 0 is refused, and changes nothing.
func TestReduceToNothing(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	s := session(t, dial(t, node))
	must(t, s.Create(testContext(t), "sem", 3, nil))
	l := acquire(t, s, "sem", client.Count(2))
	if err := l.Reduce(testContext(t), 0); !errors.Is(err, client.ErrBadRequest) || l.Count() != 2 || !l.Held() {
		t.Errorf("%v; %d units are held", err, l.Count())
	}
	release(t, l)
}
