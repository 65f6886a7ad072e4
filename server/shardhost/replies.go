package shardhost

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// replies makes the bodies of replies from the events of successful commands. It reuses its memory:
// a body is valid until the next call. The zero value is ready.
type replies struct {
	session       protocol.SessionReply
	update        protocol.UpdateReply
	acquire       protocol.AcquireReply
	release       protocol.ReleaseReply
	force         protocol.ForceReleaseReply
	joined        protocol.ProcessJoinReply
	left          protocol.ProcessLeaveReply
	trackRevision protocol.TrackRevision
	registered    protocol.TrackRegisterReply
	trackVersion  protocol.TrackVersion
	limitRevision protocol.LimitRevision
}

// sessionBody returns the body of the reply to a start or an attach of a session.
func (r *replies) sessionBody(shard uint64, e *shard.Event, ticket []byte) protocol.Message {
	r.session = protocol.SessionReply{Session: e.Session, Epoch: e.Epoch, Shard: shard, Timeout: e.Timeout,
		Grace: e.Grace, Ticket: ticket,
		Node: e.Node, ReadConsistency: protocol.Consistency(e.Result)}
	return &r.session
}

// body returns the body of the reply to a command of any other kind; nil for an empty one.
func (r *replies) body(kind protocol.Kind, e *shard.Event) protocol.Message {
	switch kind {
	case protocol.KindCreate, protocol.KindUpdate:
		r.update = protocol.UpdateReply{Version: e.Result}
		return &r.update
	case protocol.KindAcquire:
		r.acquire = protocol.AcquireReply{State: e.State, OrderID: e.OrderID, Grant: e.Grant}
		return &r.acquire
	case protocol.KindRelease:
		r.release = protocol.ReleaseReply{Released: e.Flag, Transferred: e.Result == 1}
		return &r.release
	case protocol.KindForceRelease:
		r.force = protocol.ForceReleaseReply{Released: e.Result}
		return &r.force
	case protocol.KindProcessJoin:
		r.joined = protocol.ProcessJoinReply{Order: e.OrderID, Topology: e.Result, Returned: e.Flag,
			AlreadyMember: e.AlreadyMember}
		return &r.joined
	case protocol.KindProcessLeave:
		r.left = protocol.ProcessLeaveReply{CompletedEpoch: e.Result}
		return &r.left
	case protocol.KindTrackCreate, protocol.KindTrackAlter:
		r.trackRevision = protocol.TrackRevision{Revision: e.Result}
		return &r.trackRevision
	case protocol.KindLimitCreate, protocol.KindLimitAlter:
		r.limitRevision = protocol.LimitRevision{Revision: e.Result}
		return &r.limitRevision
	case protocol.KindTrackRegister:
		r.registered = protocol.TrackRegisterReply{Incarnation: e.Result}
		return &r.registered
	case protocol.KindTrackPoll:
		return e.Poll
	case protocol.KindTrackPublish:
		r.trackVersion = protocol.TrackVersion{Version: e.Result}
		return &r.trackVersion
	}
	return nil
}
