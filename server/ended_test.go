package server

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestManyEnded: however many sessions of a connection have ended, each is known to be gone, there and on any other connection; an id that was never given out is not.
func TestManyEnded(t *testing.T) {
	s := start(t, nil)
	c, other := connect(t, s), connect(t, s)
	node := c.node()
	var ids []uint64
	for n := range uint64(100) {
		r := c.session(node, n+1)
		c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(r.Session)), &protocol.SessionStop{Session: r.Session, Epoch: 1}, nil)
		ids = append(ids, r.Session)
	}
	for _, id := range ids {
		for _, on := range []*raw{c, other} {
			if _, err := on.lock(node, id, "a", 0); !errors.Is(err, protocol.StatusSessionExpired) {
				t.Fatalf("session %d: %v", id, err)
			}
		}
	}
	living := c.session(node, 1000)
	for _, id := range []uint64{living.Session, ids[0] + 1<<20, protocol.MakeSessionID(15, 0, 1)} {
		if _, err := other.lock(node, id, "a", 0); !errors.Is(err, protocol.StatusBadSession) {
			t.Fatalf("session %d: %v", id, err)
		}
	}
}
