package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// MaxTracksPerSession bounds the tracks in which one session has instances in one shard. Beyond it
// a registration is OVERLOADED.
const MaxTracksPerSession = 10_000

func applyTrackCreate(m *Machine, c *rawCommand) {
	var body protocol.TrackCreate
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, body.Name) {
		return
	}
	if q.object != nil {
		q.refuse(m, protocol.StatusAlreadyExists, textTrackExists)
		return
	}
	bytes := objectBytes + uint64(len(q.name)) + rollout.ConfigBytes(&body.Config)
	if !q.requireName(m) || !q.requireBytes(m, bytes) {
		return
	}
	state, err := rollout.NewAfter(trackNow(m, q.bucket), q.bucket.orderCounter, body.Config, &m.batch.track)
	if err != nil {
		q.finish(m, Event{}, err)
		return
	}
	q.object = newObject(m, kindTrack, q.bucket, q.node, q.name, trackState{state})
	q.object.link(m)
	q.finish(m, Event{Result: state.Revision()}, nil)
}

func applyTrackAlter(m *Machine, c *rawCommand) {
	var body protocol.TrackAlter
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	t := q.object.track()
	before := t.Config()
	if !q.requireBytes(m, growth(rollout.ConfigBytes(&body.Config), rollout.ConfigBytes(&before))) {
		return
	}
	err := t.Configure(q.object.callTrack(m), body.Revision, body.Config, &m.batch.track)
	q.finish(m, Event{Result: t.Revision()}, err)
}

func applyTrackDelete(m *Machine, c *rawCommand) {
	var body protocol.TrackDelete
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	if q.object.track().NumInstances() > 0 && !body.Force {
		q.refuse(m, protocol.StatusPreconditionFailed, textTrackInUse)
		return
	}
	deleted := Event{Kind: EventTrackDeleted, Node: q.node.id, Name: q.object.name}
	q.object.delete(m)
	q.object = nil
	q.finish(m, Event{}, nil)
	m.batch.out.List = append(m.batch.out.List, deleted)
}

func applyTrackRegister(m *Machine, c *rawCommand) {
	var body protocol.TrackRegister
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	x, t := q.object, q.object.track()
	if !q.session.holds(kindTrack, q.name) && len(q.session.objects(kindTrack)) >= MaxTracksPerSession {
		q.refuse(m, protocol.StatusOverloaded, textTracksLimit)
		return
	}
	if !q.requireBytes(m, growth(rollout.InstanceBytes(len(body.ID), len(body.Meta)), t.BytesOf(body.ID))) {
		return
	}
	former := t.SessionOf(body.ID)
	takeover := body.Takeover
	if p := m.sessions.get(former); p != nil && m.detached(p) {
		takeover = true
	}
	incarnation, err := t.Register(x.callTrack(m), rollout.Registration{
		Session: q.session.id, ID: body.ID, Location: body.Location,
		Role: body.Role, Meta: body.Meta, Takeover: takeover,
	}, &m.batch.track)
	q.finish(m, Event{Result: incarnation}, err)
	x.syncSession(m, q.session.id)
	x.syncSession(m, former)
}

// caller is the instance that a request comes from.
func (o *objectRequest) caller(id string, incarnation uint64) rollout.Caller {
	return rollout.Caller{Session: o.session.id, ID: id, Incarnation: incarnation}
}

func applyTrackUnregister(m *Machine, c *rawCommand) {
	var body protocol.TrackUnregister
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	t, now := q.object.track(), q.object.callTrack(m)
	q.finish(m, Event{}, t.Unregister(now, q.caller(body.ID, body.Incarnation), &m.batch.track))
	q.object.syncSession(m, q.session.id)
}

func applyTrackPoll(m *Machine, c *rawCommand) {
	body := &m.batch.poll
	q := objectRequest{of: kindTrack}
	if !m.readBody(body, c) || !q.enterExisting(m, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	x, caller := q.object, q.caller(body.ID, body.Incarnation)
	reply, err := x.track().Poll(x.callTrack(m), caller, &body.Report, &m.batch.track)
	completePoll(x, body.WithPayload, &reply)
	q.finish(m, Event{Poll: &reply}, err)
}

// completePoll turns a track's answer into the reply: times become log time, where the track has
// those of its bucket.
func completePoll(x *hostedObject, payload bool, reply *protocol.TrackPollReply) {
	if reply.Until > 0 {
		reply.Until = x.bucket.logTimeAt(reply.Until)
	}
	if payload {
		reply.Payload, reply.HasPayload = x.track().Payload(reply.Version)
	}
}

func applyTrackReport(m *Machine, c *rawCommand) {
	var body protocol.TrackReport
	q := objectRequest{of: kindTrack}
	if m.readBody(&body, c) && q.enterExisting(m, c, &protocol.Head{Session: body.Session}, body.Name) {
		t, now := q.object.track(), q.object.callTrack(m)
		q.finish(m, Event{}, t.Report(now, q.caller(body.ID, body.Incarnation), body.Report, &m.batch.track))
	}
}

func applyTrackRole(m *Machine, c *rawCommand) {
	var body protocol.TrackSetRole
	q := objectRequest{of: kindTrack}
	if m.readBody(&body, c) && q.enterExisting(m, c, &body.Head, body.Name) {
		t, now := q.object.track(), q.object.callTrack(m)
		q.finish(m, Event{}, t.SetRole(now, q.caller(body.ID, body.Incarnation), body.Role, &m.batch.track))
	}
}

func applyTrackPublish(m *Machine, c *rawCommand) {
	var body protocol.TrackPublish
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	if q.requireBytes(m, q.object.track().PublishBytes(len(body.Payload))) {
		t, now := q.object.track(), q.object.callTrack(m)
		version, err := t.Publish(now, body.Version, body.Payload, &m.batch.track)
		q.finish(m, Event{Result: version}, err)
	}
}

func applyTrackWithdraw(m *Machine, c *rawCommand) {
	var body protocol.TrackWithdraw
	q := objectRequest{of: kindTrack}
	if m.readBody(&body, c) && q.enterExisting(m, c, &body.Head, body.Name) {
		q.finish(m, Event{}, q.object.track().Withdraw(q.object.callTrack(m), body.Version, &m.batch.track))
	}
}

// applyTrackAdvance takes the answer of an external generator. A version that does not increase is
// refused, and shows as the source's error.
func applyTrackAdvance(m *Machine, c *rawCommand) {
	var body protocol.TrackAdvance
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	t, now := q.object.track(), q.object.callTrack(m)
	if body.Version == 0 {
		q.finish(m, Event{}, t.SourceFailed(now, body.Expected, body.Text, &m.batch.track))
	} else {
		q.finish(m, Event{}, t.Advance(now, body.Expected, body.Version, &m.batch.track))
	}
}

func applyTrackGate(m *Machine, c *rawCommand) {
	var body protocol.TrackGateReport
	q := objectRequest{of: kindTrack}
	if m.readBody(&body, c) && q.enterExisting(m, c, &body.Head, body.Name) {
		t, now := q.object.track(), q.object.callTrack(m)
		err := t.ReportGate(now, body.Location, body.Version, body.Gate,
			body.Attempt, body.Outcome, body.Text, &m.batch.track)
		q.finish(m, Event{}, err)
	}
}

// applyTrackAdmin carries out an operator's command for all locations named, or for none.
func applyTrackAdmin(m *Machine, c *rawCommand) {
	var body protocol.TrackAdmin
	q := objectRequest{of: kindTrack}
	if !m.readBody(&body, c) || !q.enterExisting(m, c, &body.Head, body.Name) {
		return
	}
	x, t := q.object, q.object.track()
	dropped := t.SessionOf(body.ID)
	q.finish(m, Event{}, t.Operate(x.callTrack(m), &body, &m.batch.track))
	x.syncSession(m, dropped)
}
