package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// MaxLimitsPerSession bounds the rate limits that one session takes part in in one shard. Beyond it
// a join is OVERLOADED.
const MaxLimitsPerSession = 10_000

// limitThere reports whether there is a tree that is not deleted; else the request is answered.
func (o *objectRequest) limitThere(m *Machine) bool {
	if o.object == nil || limitOf(o.object).Deleted() {
		o.finish(m, Event{}, errNoLimit)
		return false
	}
	return true
}

func applyLimitCreate(m *Machine, c *rawCommand) {
	var body protocol.LimitCreate
	q := objectRequest{of: kindLimit}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, protocol.LimitRoot(body.Path)) {
		return
	}
	bytes := ratelimit.ResourceBytes(body.Path, &body.Config)
	if q.object == nil {
		bytes += objectBytes + uint64(len(q.name))
	}
	if q.object == nil && !q.requireName(m) || !q.requireBytes(m, bytes) {
		return
	}
	path, former := string(body.Path), q.bucket.orderCounter
	if q.object != nil {
		revision, err := limitOf(q.object).Create(callLimit(m, q.object), former, path, body.Config)
		q.finish(m, Event{Result: revision}, err)
		return
	}
	if len(q.name) != len(body.Path) {
		q.finish(m, Event{}, errNoLimit)
		return
	}
	tree, err := ratelimit.New(m.bucketTime(q.bucket), former, path, body.Config)
	if err != nil {
		q.finish(m, Event{}, err)
		return
	}
	q.object = newObject(m, kindLimit, q.bucket, q.node, q.name, limitState{tree})
	q.object.link(m)
	q.finish(m, Event{Result: tree.Revision()}, nil)
}

func applyLimitAlter(m *Machine, c *rawCommand) {
	var body protocol.LimitAlter
	q := objectRequest{of: kindLimit}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, protocol.LimitRoot(body.Path)) || !q.limitThere(m) {
		return
	}
	revision, err := limitOf(q.object).Alter(callLimit(m, q.object), string(body.Path), body.Revision, body.Config)
	q.finish(m, Event{Result: revision}, err)
}

func applyLimitDelete(m *Machine, c *rawCommand) {
	var body protocol.LimitDelete
	q := objectRequest{of: kindLimit}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, protocol.LimitRoot(body.Path)) || !q.limitThere(m) {
		return
	}
	x := q.object
	sessions := limitOf(x).Sessions()
	err := limitOf(x).Delete(callLimit(m, x), string(body.Path), body.Revision)
	q.finish(m, Event{}, err)
	if !limitOf(x).Deleted() {
		return
	}
	for _, id := range sessions {
		syncParticipant(m, x, id)
	}
	m.batch.out.List = append(m.batch.out.List, Event{Kind: EventLimitDeleted, Node: q.node.id, Name: x.name})
	x.state.wake(m, x)
}

func applyLimitJoin(m *Machine, c *rawCommand) {
	var body protocol.LimitJoin
	q := objectRequest{of: kindLimit}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, protocol.LimitRoot(body.Path)) || !q.limitThere(m) {
		return
	}
	if !q.session.holds(kindLimit, q.name) {
		if len(q.session.objects(kindLimit)) >= MaxLimitsPerSession {
			q.refuse(m, protocol.StatusOverloaded, textLimitsLimit)
			return
		}
		if !q.requireBytes(m, ratelimit.ParticipantBytes()) {
			return
		}
	}
	x := q.object
	q.finish(m, Event{}, limitOf(x).Join(callLimit(m, x), q.session.id, q.session.epoch, body.Again))
	syncParticipant(m, x, q.session.id)
}

func applyLimitLeave(m *Machine, c *rawCommand) {
	var body protocol.LimitLeave
	q := objectRequest{of: kindLimit}
	if !m.readBody(&body, c) || !q.enter(m, c, &body.Head, protocol.LimitRoot(body.Path)) || !q.limitThere(m) {
		return
	}
	x := q.object
	limitOf(x).Leave(callLimit(m, x), q.session.id)
	q.finish(m, Event{}, nil)
	syncParticipant(m, x, q.session.id)
}

// syncParticipant keeps the tree among the session's holdings exactly while the session takes part.
func syncParticipant(m *Machine, x *hostedObject, session uint64) {
	p := m.sessions.get(session)
	if p == nil {
		return
	}
	if _, ok := limitOf(x).Joined(session); ok {
		p.addHolding(m, x)
	} else if p.removeHolding(m, x) && !p.ended {
		p.remoteIdle(m)
	}
}
