package client

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestChangeWithoutMajority: the server says that a change waits for a shard without a majority.
// Callers learn that at once, and that the change may still happen. EnsureNode, which may be
// repeated, goes on.
func TestChangeWithoutMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		pending := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindCluster && h.Kind != protocol.KindNodeCreate || pending == 0 {
					return false
				}
				pending--
				fc.send(h.Kind|protocol.KindReply, h.ID, uint64(protocol.StatusUnavailable),
					&protocol.Failure{Message: "the meta shard has no majority", Shard: 1})
				return true
			}
		})
		for _, change := range []func() error{
			func() error { return callCluster(bg, c, protocol.MethodDrain, nil, nil) },
			func() error { _, err := c.CreateNode(bg, "/a", NodeConfig{}); return err },
		} {
			pending = 3
			if err := change(); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, Unavailable) || pending != 2 {
				t.Errorf("%v, after %d answers", err, 3-pending)
			}
		}
		pending = 3
		if _, err := c.EnsureNode(bg, "/a", NodeConfig{}); err != nil || pending != 0 {
			t.Errorf("%v, after %d answers", err, 3-pending)
		}
	})
}

// TestAuthChangedWithoutAnswer: who turns auth on, gets no answer and is refused when the client
// asks again, may have turned it on: the secret must be kept. So may have a change of rights.
func TestAuthChangedWithoutAnswer(t *testing.T) {
	for _, method := range []string{protocol.MethodAuthSwitch, protocol.MethodGrant, protocol.MethodRevoke} {
		t.Run(method, func(t *testing.T) { changeAuthWithoutAnswer(t, method, protocol.StatusForbidden) })
	}
	t.Run(protocol.MethodTokenRevoke, func(t *testing.T) {
		changeAuthWithoutAnswer(t, protocol.MethodTokenRevoke, protocol.StatusUnauthenticated)
	})
}

// TestRevokedWithoutAnswer: what is not there any more when the client asks again, the first
// sending has removed.
func TestRevokedWithoutAnswer(t *testing.T) {
	for method, want := range map[string]error{
		protocol.MethodTokenRevoke: nil, protocol.MethodRevoke: nil, protocol.MethodDrain: NotFound,
	} {
		synctest.Test(t, func(t *testing.T) {
			answers := answersAfterALoss(t, method, protocol.StatusNotFound)
			if !errors.Is(answers[0], want) || !errors.Is(answers[1], NotFound) {
				t.Errorf("%s: %v, and with nothing lost %v", method, answers[0], answers[1])
			}
		})
	}
}

// answersAfterALoss are the answers to two calls. The connection of the first one is lost, and each
// request after it is answered with the status.
func answersAfterALoss(t *testing.T, method string, status protocol.Status) (errs [2]error) {
	f := newFake(t)
	c := f.open(t)
	lost := false
	f.set(func() {
		f.on = func(fc *fakeConn, h protocol.Header) bool {
			switch {
			case h.Kind != protocol.KindCluster:
				return false
			case !lost:
				lost = true
				_ = fc.nc.Close()
			default:
				fc.fail(h, status)
			}
			return true
		}
	})
	for i := range errs {
		errs[i] = callCluster(bg, c, method, nil, nil)
	}
	return errs
}

func changeAuthWithoutAnswer(t *testing.T, method string, refusal protocol.Status) {
	synctest.Test(t, func(t *testing.T) {
		for i, err := range answersAfterALoss(t, method, refusal) {
			if unknown := i == 0; !errors.Is(err, refusal) || errors.Is(err, ErrOutcomeUnknown) != unknown {
				t.Errorf("%v; the outcome is unknown: %v", err, unknown)
			}
		}
	})
}
