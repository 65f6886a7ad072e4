package protocol

// A track is a staged rollout: one (service, cluster) under a coordination node, named service/cluster. It hands out versions, numbers from 1 to 2^63-1, to the
// instances of ordered locations. Its bucket is Bucket(node, name), as a semaphore's is; a semaphore of the same name is another object. Times of a track are log
// time in ms: they are to be compared with each other and with Clock, never with a client's clock.

// TrackConfig is how a rollout goes. A zero time or count is the default.
type TrackConfig struct {
	Source             TrackSource
	DelayFrom          DelayFrom
	Locations          []LocationConfig // in order, 1 to MaxTrackLocations
	ExplicitCodes      []string         // reported codes that say the version itself is bad; none: TimestampOutOfRange
	ImplicitAfter      uint64           // ms; SOURCE_ERROR re-elects strictly later than this after the version was first sent; 60,000
	ImplicitAttempts   uint64           // and after strictly more attempts than this; 3
	StallTimeout       uint64           // ms after which a location whose leaders have not all loaded the target is stalled; 600,000
	AutoDemote         bool             // leaders that stall without an error count as followers
	SkipEmptyAfter     uint64           // ms after which a location without instances is passed over; 0 never
	ReelectMinInterval uint64           // ms between two re-elections of a location; 1,000
	MinAdvanceInterval uint64           // ms between two advances of the first location; 0 none
	Retention          uint64           // ms of history; 3,600,000
	KeepRemoved        bool             // instances of a removed location get its last target instead of UNKNOWN_LOCATION
}

// LocationConfig is one location of the order.
type LocationConfig struct {
	Name      string
	Delay     uint64 // ms behind its predecessor; not used by the first
	Bake      uint64 // ms that a version must have been converged here before it goes on to the next location; 0 no condition
	Share     uint8  // percent of the leaders that get a new target first; 0 or 100 all at once
	ShareBake uint64 // ms that the share must have had it before the others get it
	Gates     []GateConfig
}

// GateConfig is a check that must succeed before a location takes a version. Holders of a watch run it; the server does not.
type GateConfig struct {
	Name    string
	Kind    GateKind
	Spec    string // the command or the address
	Timeout uint64 // ms; a run without an outcome is inconclusive after this; 60,000
	Retry   uint64 // ms until an inconclusive gate is run again; 30,000
}

// TrackSource says where the first location's versions come from.
type TrackSource uint8

const (
	SourceTSO       TrackSource = 1 // made by the server: wall time in ms << 18, strictly increasing
	SourceExternal  TrackSource = 2 // made by a generator outside
	SourcePublished TrackSource = 3 // given to TrackPublish
)

// DelayFrom says what a location's delay counts from.
type DelayFrom uint8

const (
	FromSelected  DelayFrom = 0 // from when the predecessor's target was set
	FromConverged DelayFrom = 1 // from when all of the predecessor's leaders had it
)

// GateKind says how a gate is run.
type GateKind uint8

const (
	GateCommand GateKind = 1
	GateWebhook GateKind = 2
)

// TrackCreate makes a track. Reply: TrackRevision.
type TrackCreate struct {
	Head
	Name   []byte
	Config TrackConfig
}

// TrackAlter replaces the config that has this revision. Reply: TrackRevision.
type TrackAlter struct {
	Head
	Name     []byte
	Revision uint64 // else PRECONDITION_FAILED
	Config   TrackConfig
}

// TrackRevision is the config's revision, from 1.
type TrackRevision struct {
	Revision uint64
}

// TrackDelete removes a track; one that has instances only with Force. Reply: Empty.
type TrackDelete struct {
	Head
	Name  []byte
	Force bool
}

// TrackInstanceRole is what an instance is for its location. A follower does not hold anybody up.
type TrackInstanceRole uint8

const (
	InstanceFollower TrackInstanceRole = 1
	InstanceLeader   TrackInstanceRole = 2
)

// TrackRegister makes the session an instance of the track, until it ends. The same again by the same session gives the same incarnation. Reply:
// TrackRegisterReply. An id that another live session has is ALREADY_EXISTS, unless that session is detached or Takeover is set.
type TrackRegister struct {
	Head
	Name     []byte
	ID       string // of the instance, such as its host name
	Location string
	Role     TrackInstanceRole
	Meta     string // for people
	Takeover bool   // evict the other session; its later calls are refused
}

// TrackRegisterReply has the incarnation, which the instance's calls carry.
type TrackRegisterReply struct {
	Incarnation uint64
}

// TrackUnregister ends an instance at its own wish. Reply: Empty.
type TrackUnregister struct {
	Head
	Name        []byte
	ID          string
	Incarnation uint64
}

// TrackPoll asks which version to have, and reports. Targets move by polls alone. It has no number of its own: it may be sent again. Reply: TrackPollReply.
type TrackPoll struct {
	Session     uint64
	Name        []byte
	ID          string
	Incarnation uint64
	Report      UpdateReport // none with Seq 0; a stale one is dropped
	WithPayload bool
}

// UpdateReport is what an instance says of itself.
type UpdateReport struct {
	Seq      uint64 // rises within an incarnation, from 1
	Current  uint64 // the version it serves, 0 none
	Target   uint64 // the version that Code and Attempts are about
	Code     string // OK, SOURCE_ERROR, empty for nothing yet, or one of its own
	Message  string
	Attempts uint64 // to load Target so far
}

// TrackPollStatus says why the answer to a poll is what it is.
type TrackPollStatus uint8

const (
	PollTarget            TrackPollStatus = 0 // load Version, or keep it
	PollNoTarget          TrackPollStatus = 1 // none yet: keep what is there, load nothing
	PollPaused            TrackPollStatus = 2 // Version stays until an operator resumes
	PollExcluded          TrackPollStatus = 3 // the location is excluded: Version stays
	PollRemoved           TrackPollStatus = 4 // the location left the order: Version was its last
	PollSourceWanted      TrackPollStatus = 5 // the generator outside is asked for a version
	PollSourceUnavailable TrackPollStatus = 6 // the same, but it failed last time
)

// TrackPollReply says which version to have.
type TrackPollReply struct {
	Version    uint64 // 0 none
	Status     TrackPollStatus
	State      TrackState // of the location
	Until      uint64     // log time at which asking again may give more, 0 unknown
	RetryAfter uint64     // the same in ms from now, 0 unknown
	Generation uint64     // of the location's target: it rises with each new one, also where the version is the same again
	HasPayload bool       // Payload is the version's
	Payload    []byte
}

// TrackReport reports without asking. Reply: Empty. A stale one is PRECONDITION_FAILED.
type TrackReport struct {
	Session     uint64
	Name        []byte
	ID          string
	Incarnation uint64
	Report      UpdateReport
}

// TrackSetRole changes an instance's role. Reply: Empty.
type TrackSetRole struct {
	Head
	Name        []byte
	ID          string
	Incarnation uint64
	Role        TrackInstanceRole
}

// TrackPublish offers a version to the first location. Reply: TrackVersion.
type TrackPublish struct {
	Head
	Name    []byte
	Version uint64 // above all earlier; 0: one above the highest
	Payload []byte
}

// TrackVersion is a version.
type TrackVersion struct {
	Version uint64
}

// TrackWithdraw bars a published version: nobody chooses it any more. Reply: Empty.
type TrackWithdraw struct {
	Head
	Name    []byte
	Version uint64
}

// TrackAdvance is what a generator outside gives, for a track with the source external: a version, or why there is none. It is asked by the state of the first
// location that a TrackWatch tells: READY. Whoever comes second, or late, is PRECONDITION_FAILED. Reply: Empty.
type TrackAdvance struct {
	Head
	Name     []byte
	Expected uint64 // target of the first location when the generator was asked, 0 none; else PRECONDITION_FAILED
	Version  uint64 // above all earlier, else BAD_REQUEST and the source's error; 0: there is none
	Text     string // the source's error, with Version 0 alone
}

// TrackVerb is an operator's command.
type TrackVerb uint8

const (
	TrackPause    TrackVerb = 1 // Locations, or the track; Hard: not even a bad version is replaced
	TrackResume   TrackVerb = 2 // Locations, or the track
	TrackPromote  TrackVerb = 3 // Locations: take the newest version without delay and gates, once
	TrackRollback TrackVerb = 4 // Locations, Version
	TrackReelect  TrackVerb = 5 // Locations: give the target up
	TrackExclude  TrackVerb = 6 // Locations: their successors look past them
	TrackInclude  TrackVerb = 7 // Locations
	TrackDrop     TrackVerb = 8 // ID: remove an instance
)

// TrackAdmin carries out an operator's command: for all Locations named, or, if it is refused for one, for none. Reply: Empty.
type TrackAdmin struct {
	Head
	Name      []byte
	Verb      TrackVerb
	Locations []string
	Version   uint64
	ID        string
	Hard      bool
}

// GateOutcome is how a gate's run ended.
type GateOutcome uint8

const (
	GateSuccess      GateOutcome = 1
	GateFailure      GateOutcome = 2 // the version, and all before it, is never chosen by the location
	GateInconclusive GateOutcome = 3 // it is run again later
)

// TrackGateReport tells the outcome of a run that a TrackStatus or a TrackEvent named. One that is not under way any more is PRECONDITION_FAILED. Reply: Empty.
type TrackGateReport struct {
	Head
	Name     []byte
	Location string
	Version  uint64
	Gate     string
	Attempt  uint64
	Outcome  GateOutcome
	Text     string
}
