package client

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// helloStart is the start of a session that goes out together with the hello of a client's first
// connection. The client has no map then, so the server finds the session's home. It is answered if
// that is served by the instance that was connected to; if not, the session starts as any other.
//
// Each connection that is tried has a start of its own. One that a lost connection has made is on
// none that is heard, holds nothing, and ends with its timeout.
type helloStart struct {
	s  *Session
	id createID

	at    time.Duration // when it was sent
	ahead time.Duration // wallAhead then
	on    *conn         // nil: the connection was not made
	call  *call
}

// newHelloStart is the session's start for a hello; nil: it needs the node first.
func newHelloStart(s *Session) *helloStart {
	if !s.mayStartByPath() {
		return nil
	}
	return &helloStart{s: s}
}

// append appends the start's frame to the hello, which is sent now.
func (h *helloStart) append(out []byte) []byte {
	h.id, h.on, h.call = newCreateID(), nil, nil
	req := h.s.startRequest(h.id)
	req.Path = h.s.node.path
	h.at, h.ahead = h.s.c.clock.now(), wallAhead(h.s.c.clock)
	return protocol.AppendFrame(out, protocol.KindSessionStart, helloStartID, protocol.HomeOfCreateID, req)
}

// expect has the connection wait for the answer. It is called before the connection is served, and
// after the map is waited for, which makes the connection busy.
func (h *helloStart) expect(cn *conn) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	h.on, h.call = cn, &call{done: make(chan struct{}, 1), alone: true}
	cn.calls.Put(helloStartID, h.call)
}

// outcome waits for the answer. elsewhere says that the start was not sent, or was refused because
// the home is served elsewhere. The other results are those of startByPath.
func (h *helloStart) outcome(ctx context.Context) (started, sent, elsewhere bool, err error) {
	if h.on == nil {
		return false, false, true, nil
	}
	h.s.epoch, h.s.startedAhead = 1, h.ahead
	if !h.awaitHome() {
		return false, true, false, nil
	}
	var reply protocol.SessionReply
	err = h.on.waitReply(ctx, h.call, helloStartID, &reply)
	if err != nil || reply.Node == 0 {
		elsewhere = answered(err) && (errors.Is(err, protocol.StatusWrongShard) || errors.Is(err, protocol.StatusUnavailable))
		return false, !answered(err), elsewhere, nil
	}
	return true, false, false, h.s.startedByPath(h.at, h.on, &reply)
}

// awaitHome notes which shard has to answer, so that the wait ends as that of any request when
// another instance leads the shard. False: that is so already, or the map does not say which shard
// it is, and there is no answer; then none is waited for.
func (h *helloStart) awaitHome() bool {
	r := h.s.c.routes.Load()
	var home *shardRoute
	if tier, t := r.onlyTier(); t != nil {
		home = r.forBucket(tier, protocol.HomeBucket(h.id, t.buckets))
	}
	h.on.mu.Lock()
	defer h.on.mu.Unlock()
	if h.on.calls.Find(helloStartID) != h.call {
		return true // it is answered, or the connection is lost
	}
	if home != nil {
		h.call.shard = home.shard // before the look at the master: leaderMoved does it the other way round
		if home.master.Load() == h.on.instance {
			return true
		}
	}
	h.on.calls.Abandon(helloStartID)
	return false
}
