package protocol

// Flags of TrackDescribe.
const (
	WithTrackConfig uint8 = 1 << iota
	WithTrackInstances
)

// TrackDescribe reads a track. Its instances come in pages in order of id, the rest with the first
// page. Reply: TrackStatus.
type TrackDescribe struct {
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte
	Limit       uint32 // instances in the page, 0 is the server's choice
}

func (m *TrackDescribe) fields(f *fields) {
	f.message("track describe")
	f.uint("node", &m.Node)
	f.track(&m.Name)
	f.flags(&m.Flags, WithTrackConfig|WithTrackInstances, "track describe")
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// TrackStatus is the state of a track.
type TrackStatus struct {
	Index          uint64 // log index of the shard it was read at
	Revision       uint64 // log index of the track's last change
	ConfigRevision uint64
	Name           []byte
	Clock          uint64 // log time of the read
	Last           uint64 // the highest version it knows
	Paused         bool
	SourceError    string
	NumInstances   uint64
	Config         TrackConfig // when it was asked for
	Locations      []TrackLocationStatus
	Gates          []GateRun // to be run now
	Instances      []TrackInstanceStatus
	Cursor         []byte
}

func (m *TrackStatus) fields(f *fields) {
	f.message("track status")
	f.uint("index", &m.Index)
	f.uint("revision", &m.Revision)
	f.uint("config revision", &m.ConfigRevision)
	f.bytes("name", &m.Name)
	f.uint("clock", &m.Clock)
	f.uint("last", &m.Last)
	f.bool("paused", &m.Paused)
	f.str("source error", &m.SourceError)
	f.uint("num instances", &m.NumInstances)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
	for l := list(f, "locations", 19, &m.Locations); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "gates", 5, &m.Gates); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "instances", 18, &m.Instances); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
}

// TrackState is the state of a location.
type TrackState uint8

const (
	StateUnset             TrackState = 1
	StateConverging        TrackState = 2
	StateConverged         TrackState = 3
	StateWaitingDelay      TrackState = 4
	StateWaitingGate       TrackState = 5
	StateWaitingShare      TrackState = 6
	StateReelectionPending TrackState = 7
	StateStalled           TrackState = 8
	StatePaused            TrackState = 9
	StateEmpty             TrackState = 10
	StateSkipped           TrackState = 11
	StateExcluded          TrackState = 12
	StateNoLeader          TrackState = 13
	StateReady             TrackState = 14 // the next poll by a leader (by anyone, when there is no target or it is bad) moves it
	StateRemoved           TrackState = 15
)

// TrackReason is why a target was chosen.
type TrackReason uint8

const (
	ReasonInitial  TrackReason = 1
	ReasonAdvance  TrackReason = 2
	ReasonExplicit TrackReason = 3 // re-elected: an instance reported an explicit code
	ReasonImplicit TrackReason = 4 // re-elected: an instance could not get it from the source
	ReasonOperator TrackReason = 5 // re-elected: an operator said so
	ReasonPromote  TrackReason = 6
	ReasonRollback TrackReason = 7
)

// TrackLocationStatus is the state of a location. Locations that left the order come last.
type TrackLocationStatus struct {
	Name         string
	State        TrackState
	Until        uint64 // log time at which it may go on by time alone, 0 unknown
	Target       uint64 // 0 none
	Stable       uint64 // the version of instances outside the share; 0: all get the target
	Since        uint64 // log time of the target
	Generation   uint64
	Reason       TrackReason
	Members      uint64
	Leaders      uint64
	Counted      uint64   // leaders that must have the target
	Reached      uint64   // of them, the number that have it
	BlockedBy    []string // the first of the others, in order
	BlockedSince uint64   // log time, 0 not blocked
	Paused       bool
	Excluded     bool
	Rollback     bool
	Gate         string // under way or waiting, before GateVersion
	GateVersion  uint64
}

func (m *TrackLocationStatus) fields(f *fields) {
	f.str("locations.name", &m.Name)
	small(f, "locations.state", &m.State)
	f.uint("locations.until", &m.Until)
	f.uint("locations.target", &m.Target)
	f.uint("locations.stable", &m.Stable)
	f.uint("locations.since", &m.Since)
	f.uint("locations.generation", &m.Generation)
	small(f, "locations.reason", &m.Reason)
	f.uint("locations.members", &m.Members)
	f.uint("locations.leaders", &m.Leaders)
	f.uint("locations.counted", &m.Counted)
	f.uint("locations.reached", &m.Reached)
	f.strs("locations.blocked by", &m.BlockedBy)
	f.uint("locations.blocked since", &m.BlockedSince)
	f.bool("locations.paused", &m.Paused)
	f.bool("locations.excluded", &m.Excluded)
	f.bool("locations.rollback", &m.Rollback)
	f.str("locations.gate", &m.Gate)
	f.uint("locations.gate version", &m.GateVersion)
}

// GateRun is a gate that the runner of the track's gates is to run now.
type GateRun struct {
	Location string
	Version  uint64
	Attempt  uint64
	Deadline uint64 // log time from which on it is inconclusive
	Gate     GateConfig
}

func (m *GateRun) fields(f *fields) {
	f.str("gates.location", &m.Location)
	f.uint("gates.version", &m.Version)
	f.uint("gates.attempt", &m.Attempt)
	f.uint("gates.deadline", &m.Deadline)
	o := f.enter("gates.gate")
	m.Gate.fields(f)
	f.leave(o)
}

// TrackInstanceStatus is the known state of an instance.
type TrackInstanceStatus struct {
	ID          string
	Location    string
	Meta        string
	Session     uint64
	Incarnation uint64
	Role        TrackInstanceRole
	Demoted     bool // it stalled, and counts as a follower
	InShare     bool
	Due         uint64 // the version it is to have
	Sent        uint64 // the version last sent to it
	SentAt      uint64
	Registered  uint64
	ReportAt    uint64
	Report      UpdateReport
	Reached     bool
	HoldsUp     bool // its location waits for it
	SaysBad     bool // its report asks for a re-election: the version is bad for everyone
	CannotLoad  bool // it asks for one by failing over and over
}

func (m *TrackInstanceStatus) fields(f *fields) {
	f.str("instances.id", &m.ID)
	f.str("instances.location", &m.Location)
	f.str("instances.meta", &m.Meta)
	f.uint("instances.session", &m.Session)
	f.uint("instances.incarnation", &m.Incarnation)
	small(f, "instances.role", &m.Role)
	f.bool("instances.demoted", &m.Demoted)
	f.bool("instances.in share", &m.InShare)
	f.uint("instances.due", &m.Due)
	f.uint("instances.sent", &m.Sent)
	f.uint("instances.sent at", &m.SentAt)
	f.uint("instances.registered", &m.Registered)
	f.uint("instances.report at", &m.ReportAt)
	o := f.enter("instances.report")
	m.Report.fields(f)
	f.leave(o)
	f.bool("instances.reached", &m.Reached)
	f.bool("instances.holds up", &m.HoldsUp)
	f.bool("instances.says bad", &m.SaysBad)
	f.bool("instances.cannot load", &m.CannotLoad)
}

// TrackHistory reads a location's history. Reply: TrackHistoryReply.
type TrackHistory struct {
	Node        uint64
	Name        []byte
	Location    string
	Consistency Consistency
	MinIndex    uint64
}

func (m *TrackHistory) fields(f *fields) {
	f.message("track history")
	f.uint("node", &m.Node)
	f.track(&m.Name)
	f.label("location", &m.Location, "location name", MaxTrackName)
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
}

// TrackHistoryReply has the rows, oldest first.
type TrackHistoryReply struct {
	Index uint64
	Clock uint64
	Rows  []TrackHistoryRow
}

func (m *TrackHistoryReply) fields(f *fields) {
	f.message("track history reply")
	f.uint("index", &m.Index)
	f.uint("clock", &m.Clock)
	for l := list(f, "rows", 6, &m.Rows); l.next(f); {
		l.item().fields(f)
	}
}

// TrackHistoryRow is a target that a location had.
type TrackHistoryRow struct {
	Version   uint64
	At        uint64 // log time when it was set
	Wall      uint64 // the same by the wall clock
	Converged uint64 // log time when all leaders had it, 0 not
	Reason    TrackReason
	Skip      bool // it is never passed on
}

func (m *TrackHistoryRow) fields(f *fields) {
	f.uint("rows.version", &m.Version)
	f.uint("rows.at", &m.At)
	f.uint("rows.wall", &m.Wall)
	f.uint("rows.converged", &m.Converged)
	small(f, "rows.reason", &m.Reason)
	f.bool("rows.skip", &m.Skip)
}

// TrackList lists tracks of a node in one shard by name prefix, in order of name. Reply:
// TrackListReply.
type TrackList struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Cursor      []byte
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64
}

func (m *TrackList) fields(f *fields) {
	f.message("track list")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.limited("prefix", &m.Prefix, "track prefix", MaxNameLen)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
}

// TrackListReply is a page. An empty cursor is the end.
type TrackListReply struct {
	Index  uint64
	Tracks []TrackItem
	Cursor []byte
	Runs   []BucketRun // which buckets the page is about
}

func (m *TrackListReply) fields(f *fields) {
	f.message("track list reply")
	f.uint("index", &m.Index)
	for l := list(f, "tracks", 5, &m.Tracks); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	bucketRuns(f, &m.Runs)
}

// TrackItem is a track in a list.
type TrackItem struct {
	Name         []byte
	Last         uint64
	NumLocations uint64
	NumInstances uint64
	Paused       bool
	States       []byte // a TrackState for each location, in order
}

func (m *TrackItem) fields(f *fields) {
	f.bytes("tracks.name", &m.Name)
	f.uint("tracks.last", &m.Last)
	f.uint("tracks.num locations", &m.NumLocations)
	f.uint("tracks.num instances", &m.NumInstances)
	f.bool("tracks.paused", &m.Paused)
	f.bytes("tracks.states", &m.States)
}

// TrackWatch opens a stream over one track. Reply: Empty; then a TrackStatus without instances, as
// an event of kind track_status, and the track_events events behind it. A later TrackStatus
// replaces all that was known: the connection had fallen behind. Unwatch closes the stream,
// StreamCut ends it.
type TrackWatch struct {
	Node     uint64
	Name     []byte
	Location string // only this one's changes, and those of the whole track; empty: all
	Targets  bool   // only events that an instance needs: new targets, shares that widen, the state READY
}

func (m *TrackWatch) fields(f *fields) {
	f.message("track watch")
	f.uint("node", &m.Node)
	f.track(&m.Name)
	f.printable("location", &m.Location, "location name", MaxTrackName)
	f.bool("targets", &m.Targets)
}

// TrackEvents is the events of one step of the log for a track.
type TrackEvents struct {
	Revision uint64 // log index
	Events   []TrackEvent
}

func (m *TrackEvents) fields(f *fields) {
	f.message("track change")
	f.uint("revision", &m.Revision)
	for l := list(f, "events", 15, &m.Events); l.next(f); {
		l.item().fields(f)
	}
}

// TrackEventKind is the kind of an event.
type TrackEventKind uint8

const (
	TrackEventTarget    TrackEventKind = 1 // Location has the new target Version in place of From; for its share only with Share
	TrackEventWiden     TrackEventKind = 2 // the share has Version, now all are to load it
	TrackEventState     TrackEventKind = 3 // Location is in State, until Until if by time alone
	TrackEventConverged TrackEventKind = 4 // all leaders have Version
	TrackEventSkip      TrackEventKind = 5 // Version is never passed on
	TrackEventGate      TrackEventKind = 6 // run Gate for Version, as run Attempt
	TrackEventGateDone  TrackEventKind = 7
	TrackEventJoined    TrackEventKind = 8
	TrackEventLeft      TrackEventKind = 9
	TrackEventRole      TrackEventKind = 10
	TrackEventAdmin     TrackEventKind = 11
	TrackEventPublished TrackEventKind = 12
	TrackEventAlert     TrackEventKind = 13 // someone should look
)

// TrackEvent is one thing that happened, with its reason in words.
type TrackEvent struct {
	Kind       TrackEventKind
	Reason     TrackReason
	State      TrackState
	Share      bool
	Location   string
	Instance   string
	Gate       string
	Version    uint64
	From       uint64
	Generation uint64
	Until      uint64
	Attempt    uint64
	Log        uint64 // log time
	Wall       uint64
	Text       string
}

func (m *TrackEvent) fields(f *fields) {
	small(f, "events.kind", &m.Kind)
	small(f, "events.reason", &m.Reason)
	small(f, "events.state", &m.State)
	f.bool("events.share", &m.Share)
	f.str("events.location", &m.Location)
	f.str("events.instance", &m.Instance)
	f.str("events.gate", &m.Gate)
	f.uint("events.version", &m.Version)
	f.uint("events.from", &m.From)
	f.uint("events.generation", &m.Generation)
	f.uint("events.until", &m.Until)
	f.uint("events.attempt", &m.Attempt)
	f.uint("events.log", &m.Log)
	f.uint("events.wall", &m.Wall)
	f.str("events.text", &m.Text)
}
