package protocol

// Flags of TrackDescribe.
const (
	WithTrackConfig uint8 = 1 << iota
	WithTrackInstances
)

// TrackDescribe reads a track. Its instances come in pages in order of id, the rest with the first page. Reply: TrackStatus.
type TrackDescribe struct {
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte
	Limit       uint32 // instances in the page, 0 is the server's choice
}

// TrackStatus is how a track stands.
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

// TrackReason says why a target was chosen.
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

// TrackLocationStatus is how a location stands. Locations that left the order come last.
type TrackLocationStatus struct {
	Name         string
	State        TrackState
	Until        uint64 // log time at which it may go on by time alone, 0 unknown
	Target       uint64 // 0 none
	Stable       uint64 // what instances outside the share have; 0: all get the target
	Since        uint64 // log time of the target
	Generation   uint64
	Reason       TrackReason
	Members      uint64
	Leaders      uint64
	Counted      uint64   // leaders that must have the target
	Reached      uint64   // of them, those that have it
	BlockedBy    []string // the first of the others, in order
	BlockedSince uint64   // log time, 0 not blocked
	Paused       bool
	Excluded     bool
	Rollback     bool
	Gate         string // under way or waiting, before GateVersion
	GateVersion  uint64
}

// GateRun is a gate that is to be run now, by whoever runs the track's gates.
type GateRun struct {
	Location string
	Version  uint64
	Attempt  uint64
	Deadline uint64 // log time from which on it is inconclusive
	Gate     GateConfig
}

// TrackInstanceStatus is what is known of an instance.
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
	Sent        uint64 // the version it was told last
	SentAt      uint64
	Registered  uint64
	ReportAt    uint64
	Report      UpdateReport
	Reached     bool
	HoldsUp     bool // its location waits for it
	SaysBad     bool // its report asks for a re-election: the version is bad for everyone
	CannotLoad  bool // it asks for one by failing over and over
}

// TrackHistory reads a location's history. Reply: TrackHistoryReply.
type TrackHistory struct {
	Node        uint64
	Name        []byte
	Location    string
	Consistency Consistency
	MinIndex    uint64
}

// TrackHistoryReply has the rows, oldest first.
type TrackHistoryReply struct {
	Index uint64
	Clock uint64
	Rows  []TrackHistoryRow
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

// TrackList lists tracks of a node in one shard by name prefix, in order of name. Reply: TrackListReply.
type TrackList struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Cursor      []byte
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64
}

// TrackListReply is a page. An empty cursor is the end.
type TrackListReply struct {
	Index  uint64
	Tracks []TrackItem
	Cursor []byte
}

// TrackItem is a track in a list.
type TrackItem struct {
	Name         []byte
	Last         uint64
	NumLocations uint64
	NumInstances uint64
	Paused       bool
}

// TrackWatch opens a stream over one track. Reply: Empty; then a TrackStatus without instances, as an event of kind track_status, and the track_events events
// behind it. A later TrackStatus replaces all that was known: the connection had fallen behind. Unwatch closes the stream, StreamCut ends it.
type TrackWatch struct {
	Node     uint64
	Name     []byte
	Location string // only this one's changes, and those of the whole track; empty: all
	Targets  bool   // only what an instance needs: new targets, shares that widen, the state READY
}

// TrackEvents is what one step of the log did to a track.
type TrackEvents struct {
	Revision uint64 // log index
	Events   []TrackEvent
}

// TrackEventKind says what an event is about.
type TrackEventKind uint8

const (
	TrackEventTarget    TrackEventKind = 1 // Location has the new target Version in place of From; for its share only with Share
	TrackEventWiden     TrackEventKind = 2 // the share has Version, now all are to load it
	TrackEventState     TrackEventKind = 3 // Location is in State, until Until if by time alone
	TrackEventConverged TrackEventKind = 4 // all leaders have Version
	TrackEventSkip      TrackEventKind = 5 // Version is never passed on
	TrackEventGate      TrackEventKind = 6 // Gate is to be run for Version, as run Attempt
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
