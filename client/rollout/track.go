package rollout

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Track is one rollout, of a service and a cluster, named service/cluster.
type Track struct {
	object *handle.Object
	reason string // of an operator's changes
}

// NewTrack is the track with this name on the session's node. It need not exist yet.
func NewTrack(s *client.Session, name string) *Track { return newTrack(access.Session(s), name) }

func newTrack(s handle.Session, name string) *Track {
	return &Track{object: handle.Track(s.Node, s.Session, name)}
}

// NewReader is the track with this name, for reading and watching only.
func NewReader(n *client.Node, name string) *Track {
	return &Track{object: handle.Track(access.Node(n), nil, name)}
}

// Info is a rollout in a list.
type Info struct {
	Track     string
	Last      uint64 // the highest version there is
	Locations uint64
	Instances uint64
	Paused    bool
	States    []State // of its locations, in order, as in a Status
}

// List lists the rollouts of the node whose name begins with prefix, in order of name. Of the
// options, After and MaxItems count. The sequence ends after its first error.
func List(ctx context.Context, n *client.Node, prefix string, opts ...client.ReadOption) iter.Seq2[Info, error] {
	return handle.Convert(handle.Tracks(ctx, access.Node(n), prefix, access.ListLimits(opts)),
		func(t protocol.TrackItem) Info {
			info := Info{
				Track: string(t.Name), Last: t.Last, Locations: t.NumLocations,
				Instances: t.NumInstances, Paused: t.Paused,
			}
			for _, s := range t.States {
				info.States = append(info.States, State(s))
			}
			return info
		})
}

// Name is the track's name.
func (t *Track) Name() string { return t.object.Name() }

func (t *Track) name() []byte { return []byte(t.object.Name()) }

// whileSession calls run with a context that also ends with the session that the track was opened
// on. If the session ended it, the error is the session's.
func (t *Track) whileSession(ctx context.Context, run func(context.Context) error) error {
	session := t.object.Context()
	both, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(session, func() { cancel(context.Cause(session)) })()
	err := run(both)
	if both.Err() != nil && ctx.Err() == nil {
		return context.Cause(session)
	}
	return err
}

func (t *Track) change(
	ctx context.Context, kind protocol.Kind, head *protocol.Head, m, reply protocol.Message,
) error {
	return asRefusal(t.object.Change(ctx, kind, head, m, reply))
}

// Create creates the track and returns the revision of its config. Errors: ErrAlreadyExists,
// ErrBadRequest, ErrForbidden.
func (t *Track) Create(ctx context.Context, c Config) (revision uint64, err error) {
	m := &protocol.TrackCreate{Name: t.name()}
	if m.Config, err = c.wire(); err != nil {
		return 0, fmt.Errorf("create rollout %q: %w", t.Name(), err)
	}
	var reply protocol.TrackRevision
	err = t.change(ctx, protocol.KindTrackCreate, &m.Head, m, &reply)
	return reply.Revision, err
}

// Alter replaces the config if it still has this revision; otherwise it fails with
// ErrPreconditionFailed. Locations keep their targets and histories by name.
func (t *Track) Alter(ctx context.Context, revision uint64, c Config) (now uint64, err error) {
	m := &protocol.TrackAlter{Name: t.name(), Revision: revision}
	if m.Config, err = c.wire(); err != nil {
		return 0, fmt.Errorf("alter rollout %q: %w", t.Name(), err)
	}
	var reply protocol.TrackRevision
	err = t.change(ctx, protocol.KindTrackAlter, &m.Head, m, &reply)
	return reply.Revision, err
}

// Delete removes the track. One that has instances needs force, else it fails with
// ErrPreconditionFailed.
func (t *Track) Delete(ctx context.Context, force bool) error {
	m := &protocol.TrackDelete{Name: t.name(), Force: force}
	return t.change(ctx, protocol.KindTrackDelete, &m.Head, m, &protocol.Empty{})
}

// Publish offers a version, with a payload of at most 64 KiB, to the first location, and returns
// its number. Version 0 stands for one above the highest. Errors: ErrBadRequest for a version that
// is not above all others, or that is more than half way from the highest to 2^63-1, so that
// numbers are left for later ones; ErrPreconditionFailed for a track with another source.
func (t *Track) Publish(ctx context.Context, version uint64, payload []byte) (uint64, error) {
	m := &protocol.TrackPublish{Name: t.name(), Version: version, Payload: payload}
	var reply protocol.TrackVersion
	err := t.change(ctx, protocol.KindTrackPublish, &m.Head, m, &reply)
	return reply.Version, err
}

// Withdraw bars a published version from being chosen. Instances that have it keep it. Errors:
// ErrNotFound.
func (t *Track) Withdraw(ctx context.Context, version uint64) error {
	m := &protocol.TrackWithdraw{Name: t.name(), Version: version}
	return t.change(ctx, protocol.KindTrackWithdraw, &m.Head, m, &protocol.Empty{})
}

func (t *Track) admin(ctx context.Context, m protocol.TrackAdmin) error {
	m.Name, m.Reason = t.name(), t.reason
	return t.change(ctx, protocol.KindTrackAdmin, &m.Head, &m, &protocol.Empty{})
}

// WithReason is the track with a reason for what operators do: Pause, Resume, Promote, Rollback,
// Reelect, Exclude, Include and Drop. The audit log has it, at most 1,024 bytes of UTF-8.
func (t *Track) WithReason(text string) *Track { return &Track{t.object, text} }

// Pause keeps the targets of locations, or of the whole track if none is named. A version that is
// reported bad is replaced all the same, unless hard is set.
func (t *Track) Pause(ctx context.Context, hard bool, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackPause, Hard: hard, Locations: locations})
}

// Resume ends a pause of locations, or of the track if none is named; each has its own.
func (t *Track) Resume(ctx context.Context, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackResume, Locations: locations})
}

// Promote lets locations take the newest version of the location before them without waiting for
// delay, bake time and gates, once all their leaders have the present one. A share's version is
// given to all. Errors: ErrPreconditionFailed if nothing newer waits.
func (t *Track) Promote(ctx context.Context, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackPromote, Locations: locations})
}

// Rollback sets locations back to an earlier version of their history, at once; other locations
// stay. The version that was rolled back is not chosen again: publish it under a new number if it
// was good.
func (t *Track) Rollback(ctx context.Context, version uint64, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackRollback, Version: version, Locations: locations})
}

// Reelect gives up the targets of locations: they are never passed on, and are replaced when there
// is a newer version.
func (t *Track) Reelect(ctx context.Context, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackReelect, Locations: locations})
}

// Exclude takes locations out of the order: later ones take versions from the location before them.
// Include reverses it.
func (t *Track) Exclude(ctx context.Context, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackExclude, Locations: locations})
}

// Include reverses Exclude.
func (t *Track) Include(ctx context.Context, locations ...string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackInclude, Locations: locations})
}

// Evict removes an instance: its later calls are rejected. One that is alive registers again.
func (t *Track) Evict(ctx context.Context, instance string) error {
	return t.admin(ctx, protocol.TrackAdmin{Verb: protocol.TrackEvict, ID: instance})
}

// DescribeOption is an option of Describe.
type DescribeOption func(*describeOptions)

type describeOptions struct {
	flags uint8
	most  int // instances; 0: all
}

// IncludeConfig includes the config.
func IncludeConfig() DescribeOption {
	return func(o *describeOptions) { o.flags |= protocol.WithTrackConfig }
}

// IncludeInstances includes the instances, by id. They are read in pages, which may be of different
// moments.
func IncludeInstances() DescribeOption {
	return func(o *describeOptions) { o.flags |= protocol.WithTrackInstances }
}

// MaxInstances includes at most about this many instances, the first by id.
func MaxInstances(n int) DescribeOption { return func(o *describeOptions) { o.most = n } }

// Describe reads the state of the track. It sees every change that was acknowledged before. Errors:
// ErrNotFound.
func (t *Track) Describe(ctx context.Context, opts ...DescribeOption) (*Status, error) {
	var o describeOptions
	for _, f := range opts {
		f(&o)
	}
	m := &protocol.TrackDescribe{Node: t.object.NodeID(), Name: t.name(), Flags: o.flags,
		Consistency: protocol.Strict, Limit: uint32(o.most)}
	var s *Status
	for {
		var reply protocol.TrackStatus
		if _, err := t.object.Request(ctx, protocol.KindTrackDescribe, m, &reply); err != nil {
			return nil, asRefusal(err)
		}
		if s == nil {
			s = statusOf(&reply)
		} else {
			s.addInstances(&reply)
		}
		if len(reply.Cursor) == 0 || o.most > 0 && len(s.Instances) >= o.most {
			return s, nil
		}
		m.Cursor = reply.Cursor
	}
}

// History lists the targets that a location had, oldest first. Errors: ErrNotFound,
// ErrUnknownLocation.
func (t *Track) History(ctx context.Context, location string) ([]HistoryEntry, error) {
	m := &protocol.TrackHistory{Node: t.object.NodeID(), Name: t.name(), Location: location,
		Consistency: protocol.Strict}
	var reply protocol.TrackHistoryReply
	if _, err := t.object.Request(ctx, protocol.KindTrackHistory, m, &reply); err != nil {
		return nil, asRefusal(err)
	}
	rows := make([]HistoryEntry, len(reply.Rows))
	for i := range reply.Rows {
		rows[i] = historyEntryOf(&reply.Rows[i], reply.Clock)
	}
	return rows, nil
}

// EventKind says what an event is about.
type EventKind = protocol.TrackEventKind

const (
	EventTarget    = protocol.TrackEventTarget    // Location has the new target Version in place of From; for its share only with Share
	EventWiden     = protocol.TrackEventWiden     // the share has Version, now all are to load it
	EventState     = protocol.TrackEventState     // Location is in State
	EventConverged = protocol.TrackEventConverged // all leaders have Version
	EventSkip      = protocol.TrackEventSkip      // Version is never passed on
	EventGate      = protocol.TrackEventGate      // Gate is to be run for Version
	EventGateDone  = protocol.TrackEventGateDone  // Gate has an outcome for Version
	EventJoined    = protocol.TrackEventJoined    // an instance registered
	EventLeft      = protocol.TrackEventLeft      // an instance is gone
	EventRole      = protocol.TrackEventRole      // an instance has another role
	EventAdmin     = protocol.TrackEventAdmin     // an operator changed something
	EventPublished = protocol.TrackEventPublished // Version was published
	EventAlert     = protocol.TrackEventAlert     // someone should look
)

// Event is one thing that happened, with its reason in words. Log is log time in ms, Wall ms since
// 1970, Until log time.
type Event = protocol.TrackEvent

// WatchEvent is a step of a watch: the status when the watch begins or resumes, then events.
type WatchEvent struct {
	Status *Status
	Event  *Event
}

// Watch yields the status and then every event, until ctx ends, of one location, or of all for an
// empty name. It resumes by itself, with a new status. The last pair carries the error that ended
// it: ctx's, ErrNotFound when there is no track, ErrForbidden.
func (t *Track) Watch(ctx context.Context, location string) iter.Seq2[WatchEvent, error] {
	return func(yield func(WatchEvent, error) bool) {
		for event, err := range t.watch(ctx, location, false) {
			switch {
			case err != nil:
				yield(WatchEvent{}, asRefusal(err))
				return
			case event.Status != nil:
				if !yield(WatchEvent{Status: statusOf(event.Status)}, nil) {
					return
				}
			default:
				for i := range event.Change.Events {
					if !yield(WatchEvent{Event: &event.Change.Events[i]}, nil) {
						return
					}
				}
			}
		}
	}
}

// watchStep is a step of a track's stream. One of the two is set.
type watchStep struct {
	Status *protocol.TrackStatus // replaces all steps before
	Change *protocol.TrackEvents
}

// watch is Watch in the protocol's words. With targets, only what may change an instance's target
// is sent.
func (t *Track) watch(ctx context.Context, location string, targets bool) iter.Seq2[watchStep, error] {
	req := &protocol.TrackWatch{Node: t.object.NodeID(), Name: t.name(), Location: location, Targets: targets}
	return handle.Watch(ctx, t.object, protocol.KindTrackWatch, req,
		func() func(protocol.Header) (watchStep, core.Step, error) { return readStep })
}

func readStep(h protocol.Header) (event watchStep, step core.Step, err error) {
	if h.Kind == protocol.KindTrackEvents {
		event.Change = new(protocol.TrackEvents)
		return event, core.Append, protocol.DecodeBody(event.Change, h.Body)
	}
	event.Status = new(protocol.TrackStatus)
	if err := protocol.DecodeBody(event.Status, h.Body); err != nil {
		return event, core.Replace, err
	}
	event.Status.Name, event.Status.Cursor = bytes.Clone(event.Status.Name), nil // the body is the reader's
	return event, core.Replace, nil
}
