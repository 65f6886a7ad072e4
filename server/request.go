package server

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// requestBuffers is memory for decoding requests: one of each kind that is decoded at the listener.
type requestBuffers struct {
	present protocol.PresentTicket
	start   protocol.SessionStart
	attach  protocol.SessionAttach
	stop    protocol.SessionStop
	kill    protocol.SessionKill
	force   protocol.ForceRelease
	create  protocol.Create
	update  protocol.Update
	resize  protocol.Resize
	delete  protocol.Delete
	acquire protocol.Acquire
	release protocol.Release
	reads   readRequests
	watch   protocol.Watch
	unwatch protocol.Unwatch
	process processRequests
	track   trackRequests
}

// request is a message the listener decodes and checks before anything else happens with it.
type request interface {
	protocol.Message
	protocol.Validator
}

// decode reads and checks a request. False: it was answered.
func (p *readCycle) decode(c *conn, h protocol.Header, m request) bool {
	err := m.DecodeBody(h.Body)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		p.out.failError(c, h.Kind, h.ID, err)
		return false
	}
	return true
}

// request serves one request of a connection that said hello. Exactly one reply goes out for each, now or later, except for pings.
func (c *conn) request(p *readCycle, h protocol.Header) {
	if h.Kind == protocol.KindPing {
		c.ping(p, h)
		return
	}
	if n := c.unanswered.Add(1); int(n) > c.server.cfg.Limits.Window {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusOverloaded, c.server.windowFull)
		return
	}
	if c.server.draining.Load() {
		p.out.fail(c, h.Kind, h.ID, protocol.StatusUnavailable, "server is stopping; ask another instance, or this one when it is back")
		return
	}
	if full := c.server.memory.rejection(); full != nil && growsMemory(h.Kind) {
		c.server.metrics.memoryRefused.Inc()
		p.out.failError(c, h.Kind, h.ID, full)
		return
	}
	switch h.Kind {
	case protocol.KindPresentTicket:
		c.present(p, h)
	case protocol.KindMap:
		c.clusterMap(p, h)
	case protocol.KindNodeCreate, protocol.KindNodeAlter, protocol.KindNodeDescribe, protocol.KindNodeDrop, protocol.KindNodeList:
		c.nodeRequest(p, h)
	case protocol.KindCluster:
		c.clusterRequest(p, h)
	case protocol.KindSessionStart:
		c.sessionStart(p, h)
	case protocol.KindSessionAttach:
		c.sessionAttach(p, h)
	case protocol.KindSessionStop:
		c.sessionStop(p, h)
	case protocol.KindSessionKill:
		c.sessionKill(p, h)
	case protocol.KindForceRelease:
		c.forceRelease(p, h)
	case protocol.KindSessionDescribe, protocol.KindSessionList, protocol.KindDescribe, protocol.KindList:
		c.read(p, h)
	case protocol.KindCreate, protocol.KindUpdate, protocol.KindResize, protocol.KindDelete, protocol.KindAcquire, protocol.KindRelease:
		c.change(p, h)
	case protocol.KindWatch:
		c.watch(p, h)
	case protocol.KindUnwatch:
		c.unwatch(p, h)
	case protocol.KindProcessJoin, protocol.KindProcessLeave, protocol.KindProcessConfirm, protocol.KindProcessFail, protocol.KindProcessComplete,
		protocol.KindProcessSync, protocol.KindProcessRequest, protocol.KindProcessReply:
		c.member(p, h)
	case protocol.KindProcessForceRound, protocol.KindProcessEvict, protocol.KindProcessAlter:
		c.operateProcess(p, h)
	case protocol.KindProcessDescribe, protocol.KindProcessList:
		c.read(p, h)
	case protocol.KindProcessWatch:
		c.watchProcess(p, h)
	case protocol.KindTrackCreate, protocol.KindTrackAlter, protocol.KindTrackDelete, protocol.KindTrackRegister, protocol.KindTrackUnregister, protocol.KindTrackPoll,
		protocol.KindTrackReport, protocol.KindTrackSetRole, protocol.KindTrackPublish, protocol.KindTrackWithdraw, protocol.KindTrackAdmin, protocol.KindTrackGateReport,
		protocol.KindTrackAdvance:
		c.rollout(p, h)
	case protocol.KindTrackDescribe, protocol.KindTrackHistory, protocol.KindTrackList:
		c.read(p, h)
	case protocol.KindTrackWatch:
		c.watchTrack(p, h)
	default:
		p.out.fail(c, h.Kind, h.ID, protocol.StatusUnsupported, "this message is not served here")
	}
}

// statusText takes an error apart for a reply.
func statusText(err error) (protocol.Status, string) {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Status, e.Message
	}
	return protocol.StatusOf(err), err.Error()
}

// submitFailed is the sentence for a command that a shard did not take.
func submitFailed(d *shardHost, st protocol.Status) string {
	if st == protocol.StatusOverloaded {
		return fmt.Sprintf("shard %d takes no more now: its open batch is at its limit of %d bytes, or the disk of its log is behind; retry later",
			d.id, replica.DefaultMaxOpenBytes)
	}
	return fmt.Sprintf("shard %d has no leader here now; fetch the map and retry", d.id)
}
