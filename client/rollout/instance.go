package rollout

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Registration describes an instance to Register.
type Registration struct {
	ID       string // such as the host's name; 1 to 255 bytes
	Location string
	Role     Role   // FollowerRole if 0: who has yet to load holds nobody up
	Meta     string // for people, at most 1 KiB
	Takeover bool   // evict another live session that has the id
}

// Report is an instance's report about itself. Seq is filled in.
type Report struct {
	Seq      uint64
	Current  uint64 // the version it serves, 0 none
	Target   uint64 // the version that Code and Attempts are about
	Code     string // CodeOK, CodeSourceError, empty for nothing yet, or one of its own
	Message  string
	Attempts uint64 // to load Target so far
}

// Why says why a Target is what it is.
type Why = protocol.TrackPollStatus

const (
	WhyTarget            = protocol.PollTarget            // load Version, or keep it
	WhyNoTarget          = protocol.PollNoTarget          // none yet: keep what is there, load nothing
	WhyPaused            = protocol.PollPaused            // Version stays until an operator resumes
	WhyExcluded          = protocol.PollExcluded          // the location is excluded: Version stays
	WhyRemoved           = protocol.PollRemoved           // the location left the order: Version was its last
	WhySourceWanted      = protocol.PollSourceWanted      // the generator outside is asked for a version
	WhySourceUnavailable = protocol.PollSourceUnavailable // the same, but it failed last time
)

// Target is the version that an instance is to have.
type Target struct {
	Version    uint64 // 0: none yet; keep what is there, and load nothing
	Why        Why
	State      State         // of the location
	RetryAfter time.Duration // when asking again may give more, 0 unknown
	// of the location's target: it rises with each new one, also where the version is the same again
	Generation uint64
	Payload    []byte // of a published version, if it was asked for
	HasPayload bool
}

// Instance is a session's registration in a track. It ends with the session. Most programs use a
// Follower, which is built on it. Any number of goroutines may use it.
type Instance struct {
	t           *Track
	id          string
	location    string
	incarnation uint64
	request     uint64 // number of the registration among the session's requests

	mu   sync.Mutex
	seq  uint64
	last Report // with Seq 0
}

// Register makes the session an instance. The same registration again returns the same one. Errors:
// ErrAlreadyRegistered, ErrUnknownLocation, ErrNotFound, ErrForbidden.
func (t *Track) Register(ctx context.Context, r Registration) (*Instance, error) {
	r.Role = cmp.Or(r.Role, FollowerRole)
	m := &protocol.TrackRegister{Name: t.name(), ID: r.ID, Location: r.Location, Role: r.Role,
		Meta: r.Meta, Takeover: r.Takeover}
	var reply protocol.TrackRegisterReply
	if err := t.change(ctx, protocol.KindTrackRegister, &m.Head, m, &reply); err != nil {
		return nil, err
	}
	return &Instance{t: t, id: r.ID, location: r.Location, incarnation: reply.Incarnation, request: m.Head.Seq}, nil
}

// reports counts the reports of this process that said something new.
var reports atomic.Uint64

// number gives a report its number: a new one if it says something new. It is above those of an
// Instance of the same registration that was made before, also in another process: requests of a
// restored session have far higher numbers.
func (i *Instance) number(r Report) protocol.UpdateReport {
	i.mu.Lock()
	defer i.mu.Unlock()
	r.Seq = 0
	if i.seq == 0 || r != i.last {
		i.seq = i.request + reports.Add(1)
		i.last = r
	}
	r.Seq = i.seq
	r.Code, r.Message = printable(r.Code, protocol.MaxTrackName), printable(r.Message, protocol.MaxTrackMessage)
	return protocol.UpdateReport(r)
}

// GetTargetState reads the version to have, and reports, unless report is nil. Only these calls
// move targets, so call it once per cycle of your own, or when WatchTarget yields. With payload
// set, a published version's payload comes with it. Errors: ErrFenced, ErrUnknownLocation,
// ErrNotFound when an operator dropped the instance.
func (i *Instance) GetTargetState(ctx context.Context, report *Report, payload bool) (Target, error) {
	m := &protocol.TrackPoll{Session: i.t.object.SessionID(), Name: i.t.name(), ID: i.id,
		Incarnation: i.incarnation, WithPayload: payload}
	if report != nil {
		m.Report = i.number(*report)
	}
	var reply protocol.TrackPollReply
	if err := i.t.object.Send(ctx, protocol.KindTrackPoll, m, &reply); err != nil {
		return Target{}, asRefusal(err)
	}
	return Target{
		Version: reply.Version, Why: reply.Status, State: reply.State,
		RetryAfter: millis.Duration(reply.RetryAfter), Generation: reply.Generation,
		Payload: bytes.Clone(reply.Payload), HasPayload: reply.HasPayload,
	}, nil
}

// Report reports without reading the target. Errors: those of GetTargetState, and ErrStaleReport.
func (i *Instance) Report(ctx context.Context, r Report) error {
	m := &protocol.TrackReport{Session: i.t.object.SessionID(), Name: i.t.name(), ID: i.id,
		Incarnation: i.incarnation, Report: i.number(r)}
	return asRefusal(i.t.object.Send(ctx, protocol.KindTrackReport, m, &protocol.Empty{}))
}

// SetRole makes the instance a leader, which its location waits for, or a follower.
func (i *Instance) SetRole(ctx context.Context, r Role) error {
	m := &protocol.TrackSetRole{Name: i.t.name(), ID: i.id, Incarnation: i.incarnation, Role: r}
	return i.t.change(ctx, protocol.KindTrackSetRole, &m.Head, m, &protocol.Empty{})
}

// Unregister ends the instance: its location no longer waits for it.
func (i *Instance) Unregister(ctx context.Context) error {
	m := &protocol.TrackUnregister{Name: i.t.name(), ID: i.id, Incarnation: i.incarnation}
	return i.t.change(ctx, protocol.KindTrackUnregister, &m.Head, m, &protocol.Empty{})
}

// WatchTarget reads the target, and reads it again whenever it may have changed, until ctx or the
// session ends. It yields when the version or its generation changes. The server does not announce
// a new reason, such as a pause, nor that an operator dropped the instance: GetTargetState tells.
// It does not report, so a leader's location waits until somebody does. The last pair carries the
// error that ended it.
func (i *Instance) WatchTarget(ctx context.Context) iter.Seq2[Target, error] {
	return func(yield func(Target, error) bool) {
		stopped := false
		err := i.t.whileSession(ctx, func(ctx context.Context) (err error) {
			stopped, err = i.watchTarget(ctx, func(t Target) bool { return yield(t, nil) })
			return err
		})
		if !stopped {
			yield(Target{}, err)
		}
	}
}

// watchTarget is WatchTarget. stopped says that the consumer wants no more.
func (i *Instance) watchTarget(ctx context.Context, yield func(Target) bool) (stopped bool, err error) {
	var yielded *Target
	for err := range i.signals(ctx) {
		if err != nil {
			return false, err
		}
		now, err := i.GetTargetState(ctx, nil, false)
		if err != nil {
			return false, err
		}
		if yielded == nil || yielded.Version != now.Version ||
			yielded.Generation != now.Generation || yielded.Why != now.Why {
			yielded = &now
			if !yield(now) {
				return true, nil
			}
		}
	}
	return false, ctx.Err()
}

// signals says, with nil, each time that asking for the target may give another answer.
func (i *Instance) signals(ctx context.Context) iter.Seq[error] {
	return func(yield func(error) bool) {
		for event, err := range i.t.watch(ctx, i.location, true) {
			if err != nil {
				yield(asRefusal(err))
				return
			}
			if (event.Status != nil || mayChangeTarget(event.Change.Events)) && !yield(nil) {
				return
			}
		}
	}
}

// mayChangeTarget reports whether an instance may be told another version after these events, or
// may move its location by asking.
func mayChangeTarget(list []protocol.TrackEvent) bool {
	for i := range list {
		switch e := &list[i]; e.Kind {
		case protocol.TrackEventTarget, protocol.TrackEventWiden:
			return true
		case protocol.TrackEventState:
			if e.State == protocol.StateReady {
				return true
			}
		}
	}
	return false
}
