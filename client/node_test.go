package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestEnsureNodeWithoutAnswer: if a request was sent and not answered before the context ends, the
// node may have been created, and the error says so. A later refusal does not decide that.
func TestEnsureNodeWithoutAnswer(t *testing.T) {
	pending := func(fc *fakeConn, h protocol.Header) {
		fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusUnavailable),
			&protocol.Failure{Message: "the meta shard has no majority", Shard: 1})
	}
	overloaded := func(fc *fakeConn, h protocol.Header) { fc.fail(h, protocol.StatusOverloaded) }
	for name, x := range map[string]struct {
		first, later func(*fakeConn, protocol.Header)
		unknown      bool
	}{
		"lost, and refused for now": {func(fc *fakeConn, _ protocol.Header) {
			_ = fc.nc.Close()
			delete(fc.f.conns, fc)
		}, overloaded, true},
		"waits for a majority, and refused for now": {pending, overloaded, true},
		"always refused for now":                    {overloaded, overloaded, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						if h.Kind != protocol.KindNodeCreate {
							return false
						}
						x.first(fc, h)
						x.first = x.later
						return true
					}
				})
				ctx, cancel := brief()
				defer cancel()
				_, err := c.EnsureNode(ctx, "/a", NodeConfig{})
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) != x.unknown {
					t.Error(err)
				}
			})
		})
	}
}
