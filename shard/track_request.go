package shard

import (
	"bytes"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// MaxTracksPerSession bounds the tracks in which one session has instances in one shard. Beyond it
// a registration is OVERLOADED.
const MaxTracksPerSession = 10_000

// trackRequest is a request whose session is known and which is to be carried out.
type trackRequest struct {
	kind    CommandKind
	seq     uint64 // 0: it has no number, for it may be repeated
	name    []byte
	node    *node
	bucket  *bucket
	session *sessionRecord
	track   *trackRecord // nil if there is none with this name
}

// enterTrack does what all requests have in common, in this order: bucket, node, session and attach
// epoch, then the memory of requests. It reports false when the command is answered.
func (m *Machine) enterTrack(q *trackRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	q.kind, q.seq, q.name = c.kind, head.Seq, name
	if q.bucket = m.activeBucket(c.node, name); q.bucket == nil {
		m.reply(protocol.StatusWrongShard, textWrongShard)
		return false
	}
	if q.node = m.requireNode(c.node); q.node == nil {
		return false
	}
	if q.session = m.requireSession(head.Session, q.node, c.epoch, nil); q.session == nil {
		return false
	}
	q.track = m.track(q.bucket, c.node, name)
	if q.seq == 0 {
		return true
	}
	if a := q.session.findAnswer(head); a != nil {
		if a.kind != q.kind {
			m.reply(protocol.StatusBadRequest, textNumberReused)
			return false
		}
		m.batch.out.List = append(m.batch.out.List, Event{Kind: EventReply, Command: m.batch.command, Status: outcomeTable[a.outcome].status, Text: a.text(), Result: a.value})
		return false
	}
	_, member := q.session.tracks().find(q.name)
	return m.admitNew(q.session, q.seq, member && q.track != nil)
}

// enterExistingTrack is enterTrack for requests on a track that must be there.
func (m *Machine) enterExistingTrack(q *trackRequest, c *rawCommand, head *protocol.Head, name []byte) bool {
	if !m.enterTrack(q, c, head, name) {
		return false
	}
	if q.track == nil {
		m.finishTrack(q, Event{}, &protocol.Error{Status: protocol.StatusNotFound, Message: textNoTrack})
		return false
	}
	return true
}

// finishTrack answers a request, remembers the answer if it has a number, and then emits what it
// did to others.
func (m *Machine) finishTrack(q *trackRequest, ev Event, err error) {
	ev.Kind, ev.Command = EventReply, m.batch.command
	out := outOK
	if err != nil {
		ev = Event{Kind: EventReply, Command: m.batch.command, Status: protocol.StatusBadRequest, Text: textMalformed}
		if e, ok := err.(*protocol.Error); ok {
			ev.Status, ev.Text = e.Status, e.Message
		}
		out = trackOutcome(ev.Status)
	}
	if q.seq != 0 && ev.Status != protocol.StatusOverloaded {
		q.session.rememberAnswer(answer{seq: q.seq, kind: q.kind, bucket: q.bucket.number, outcome: out, value: ev.Result, sentence: q.session.keepSentence(ev.Text, out)})
	}
	m.batch.out.List = append(m.batch.out.List, ev)
	if q.track != nil {
		m.finishTrackCall(q.track)
	}
}

// trackOutcome is how a refusal is remembered: its status, with its sentence, see keepSentence.
func trackOutcome(status protocol.Status) outcome {
	switch status {
	case protocol.StatusNotFound:
		return outTrackNotFound
	case protocol.StatusAlreadyExists:
		return outTrackExists
	case protocol.StatusBadSession:
		return outTrackFenced
	case protocol.StatusPreconditionFailed:
		return outTrackRefused
	}
	return outTrackArgument
}

// requireTrackBytes says whether the node may have so many bytes more here; else the request is
// answered.
func (m *Machine) requireTrackBytes(q *trackRequest, more uint64) bool {
	if m.roomForBytes(q.node, more) {
		return true
	}
	m.finishTrack(q, Event{}, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textBytesQuota(q.node.config.MaxBytes)})
	return false
}

func (m *Machine) applyTrackCreate(c *rawCommand) {
	var body protocol.TrackCreate
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterTrack(&q, c, &body.Head, body.Name) {
		return
	}
	switch {
	case q.track != nil:
		m.finishTrack(&q, Event{}, &protocol.Error{Status: protocol.StatusAlreadyExists, Message: textTrackExists})
		return
	case !m.roomForName(q.node):
		m.finishTrack(&q, Event{}, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textQuota(q.node.config.MaxSemaphores)})
		return
	}
	if !m.requireTrackBytes(&q, objectBytes+uint64(len(q.name))+rollout.ConfigBytes(&body.Config)) {
		return
	}
	state, err := rollout.New(m.trackNow(q.bucket), body.Config, &m.batch.track)
	if err != nil {
		m.finishTrack(&q, Event{}, err)
		return
	}
	q.track = &trackRecord{bucket: q.bucket, node: q.node, name: bytes.Clone(q.name), state: state, revision: m.applied, snapMark: m.snapMark}
	m.linkTrack(q.track)
	m.finishTrack(&q, Event{Result: state.Revision()}, nil)
}

func (m *Machine) applyTrackAlter(c *rawCommand) {
	var body protocol.TrackAlter
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	before := q.track.state.Config()
	if !m.requireTrackBytes(&q, growth(rollout.ConfigBytes(&body.Config), rollout.ConfigBytes(&before))) {
		return
	}
	err := q.track.state.Configure(m.callTrack(q.track), body.Revision, body.Config, &m.batch.track)
	m.finishTrack(&q, Event{Result: q.track.state.Revision()}, err)
}

func (m *Machine) applyTrackDelete(c *rawCommand) {
	var body protocol.TrackDelete
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	if q.track.state.NumInstances() > 0 && !body.Force {
		m.finishTrack(&q, Event{}, &protocol.Error{Status: protocol.StatusPreconditionFailed, Message: textTrackInUse})
		return
	}
	gone := Event{Kind: EventTrackDeleted, Node: q.node.id, Name: q.track.name}
	m.unlinkTrack(q.track)
	q.track = nil
	m.finishTrack(&q, Event{}, nil)
	m.batch.out.List = append(m.batch.out.List, gone)
}

func (m *Machine) applyTrackRegister(c *rawCommand) {
	var body protocol.TrackRegister
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	x := q.track
	if _, there := q.session.tracks().find(q.name); !there && len(q.session.tracks()) >= MaxTracksPerSession {
		m.finishTrack(&q, Event{}, &protocol.Error{Status: protocol.StatusOverloaded, Message: textTracksLimit})
		return
	}
	if !m.requireTrackBytes(&q, growth(rollout.InstanceBytes(len(body.ID), len(body.Meta)), x.state.BytesOf(body.ID))) {
		return
	}
	former := x.state.SessionOf(body.ID)
	takeover := body.Takeover
	if p := m.sessions[former]; p != nil && m.detached(p) {
		takeover = true
	}
	incarnation, err := x.state.Register(m.callTrack(x), rollout.Registration{
		Session: q.session.id, ID: body.ID, Location: body.Location, Role: body.Role, Meta: body.Meta, Takeover: takeover,
	}, &m.batch.track)
	m.finishTrack(&q, Event{Result: incarnation}, err)
	m.syncTrackSession(q.session.id, x)
	m.syncTrackSession(former, x)
}

func (m *Machine) applyTrackUnregister(c *rawCommand) {
	var body protocol.TrackUnregister
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	err := q.track.state.Unregister(m.callTrack(q.track), rollout.Caller{Session: q.session.id, ID: body.ID, Incarnation: body.Incarnation}, &m.batch.track)
	m.finishTrack(&q, Event{}, err)
	m.syncTrackSession(q.session.id, q.track)
}

func (m *Machine) applyTrackPoll(c *rawCommand) {
	var body protocol.TrackPoll
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	x, caller := q.track, rollout.Caller{Session: q.session.id, ID: body.ID, Incarnation: body.Incarnation}
	a, err := x.state.Poll(m.callTrack(x), caller, &body.Report, &m.batch.track)
	var reply protocol.TrackPollReply
	x.answer(&a, body.WithPayload, &reply)
	m.finishTrack(&q, Event{Poll: &reply}, err)
}

// answer puts an answer in the form of its message. Times are in log time, where the track has
// those of its bucket.
func (x *trackRecord) answer(a *protocol.TrackPollReply, payload bool, out *protocol.TrackPollReply) {
	*out = *a
	if out.Until > 0 {
		out.Until = x.bucket.logTimeAt(out.Until)
	}
	if payload {
		out.Payload, out.HasPayload = x.state.Payload(a.Version)
	}
}

func (m *Machine) applyTrackReport(c *rawCommand) {
	var body protocol.TrackReport
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &protocol.Head{Session: body.Session}, body.Name) {
		return
	}
	m.finishTrack(&q, Event{}, q.track.state.Report(m.callTrack(q.track), rollout.Caller{Session: q.session.id, ID: body.ID, Incarnation: body.Incarnation}, body.Report, &m.batch.track))
}

func (m *Machine) applyTrackRole(c *rawCommand) {
	var body protocol.TrackSetRole
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	m.finishTrack(&q, Event{}, q.track.state.SetRole(m.callTrack(q.track), rollout.Caller{Session: q.session.id, ID: body.ID, Incarnation: body.Incarnation},
		body.Role, &m.batch.track))
}

func (m *Machine) applyTrackPublish(c *rawCommand) {
	var body protocol.TrackPublish
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	if !m.requireTrackBytes(&q, rollout.VersionBytes(len(body.Payload))) {
		return
	}
	version, err := q.track.state.Publish(m.callTrack(q.track), body.Version, body.Payload, &m.batch.track)
	m.finishTrack(&q, Event{Result: version}, err)
}

func (m *Machine) applyTrackWithdraw(c *rawCommand) {
	var body protocol.TrackWithdraw
	var q trackRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		m.finishTrack(&q, Event{}, q.track.state.Withdraw(m.callTrack(q.track), body.Version, &m.batch.track))
	}
}

// applyTrackAdvance takes what a generator outside gives. A version that does not increase is
// refused, and shows as the source's error.
func (m *Machine) applyTrackAdvance(c *rawCommand) {
	var body protocol.TrackAdvance
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	now := m.callTrack(q.track)
	if body.Version == 0 {
		m.finishTrack(&q, Event{}, q.track.state.SourceFailed(now, body.Text, &m.batch.track))
		return
	}
	m.finishTrack(&q, Event{}, q.track.state.Advance(now, body.Expected, body.Version, &m.batch.track))
}

func (m *Machine) applyTrackGate(c *rawCommand) {
	var body protocol.TrackGateReport
	var q trackRequest
	if m.decode(&body, c.body) && m.valid(&body) && m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		m.finishTrack(&q, Event{}, q.track.state.ReportGate(m.callTrack(q.track), body.Location, body.Version, body.Gate, body.Attempt, body.Outcome, body.Text,
			&m.batch.track))
	}
}

func (m *Machine) applyTrackAdmin(c *rawCommand) {
	var body protocol.TrackAdmin
	var q trackRequest
	if !m.decode(&body, c.body) || !m.valid(&body) || !m.enterExistingTrack(&q, c, &body.Head, body.Name) {
		return
	}
	x := q.track
	// For all locations named or for none: it is carried out on a copy, which takes the place of
	// the track when nothing was refused.
	state, err := rollout.Decode(x.state.Append(nil))
	dropped := x.state.SessionOf(body.ID)
	now := m.callTrack(x)
	if err == nil {
		err = applyTrackVerb(state, now, &body, &m.batch.track)
	}
	if err == nil {
		x.state = state
	} else {
		m.batch.track.Reset()
	}
	m.finishTrack(&q, Event{}, err)
	m.syncTrackSession(dropped, x)
}

// operate carries out an operator's command.
func applyTrackVerb(t *rollout.Track, now rollout.Now, x *protocol.TrackAdmin, out *rollout.Events) error {
	switch x.Verb {
	case protocol.TrackRollback:
		return t.Rollback(now, x.Locations, x.Version, out)
	case protocol.TrackDrop:
		return t.Drop(now, x.ID, out)
	}
	locations := x.Locations
	if len(locations) == 0 {
		locations = []string{""} // the track; only pause and resume come without a name
	}
	for _, l := range locations {
		var err error
		switch x.Verb {
		case protocol.TrackPause:
			err = t.Pause(now, l, x.Hard, out)
		case protocol.TrackResume:
			err = t.Resume(now, l, out)
		case protocol.TrackPromote:
			err = t.Promote(now, l, out)
		case protocol.TrackReelect:
			err = t.Reelect(now, l, out)
		case protocol.TrackExclude:
			err = t.Exclude(now, l, out)
		case protocol.TrackInclude:
			err = t.Include(now, l, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PeekTrack answers a poll that would change nothing, at the log time and wall time that the leader
// would stamp now. False: write the poll to the log, which answers refusals too. It changes
// nothing, and may run beside other reads; whether the leader may still answer is the caller's to
// know, by a read barrier.
func (m *Machine) PeekTrack(node, epoch uint64, req *protocol.TrackPoll, logTime, wall uint64, out *protocol.TrackPollReply) bool {
	p := m.sessions[req.Session]
	b := m.activeBucket(node, req.Name)
	if b == nil || p == nil || p.node.id != node || p.epoch != epoch || !m.alive(p) || req.Validate() != nil {
		return false
	}
	if m.atHome(p) {
		if attached, _ := m.attached(p.home); !attached {
			return false
		}
	} else if m.activeHomeBucket(req.Session) != nil {
		return false
	}
	var key [8 + protocol.MaxNameLen]byte
	x := b.tracks[string(appendSemaphoreKey(key[:0], node, req.Name))]
	if x == nil {
		return false
	}
	a, ok, err := x.state.Peek(rollout.Now{Log: b.timeAt(max(logTime, m.logTime)), Wall: wall},
		rollout.Caller{Session: req.Session, ID: req.ID, Incarnation: req.Incarnation}, &req.Report)
	if !ok || err != nil {
		return false
	}
	x.answer(&a, req.WithPayload, out)
	return true
}
