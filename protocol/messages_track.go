package protocol

import (
	"unicode/utf8"
)

// A track is a staged rollout: one (service, cluster) under a coordination node, named
// service/cluster. It hands out versions, numbers from 1 to 2^63-1, to the instances of ordered
// locations. Its bucket is Bucket(node, name), as a semaphore's is; a semaphore of the same name is
// another object. Times of a track are log time in ms: compare them with each other and with Clock,
// never with a client's clock.

// TrackConfig configures a rollout. A zero time or count is the default.
type TrackConfig struct {
	Source        TrackSource
	DelayFrom     DelayFrom
	Locations     []LocationConfig // in order, 1 to MaxTrackLocations
	ExplicitCodes []string         // reported codes that say the version itself is bad; none: TimestampOutOfRange
	// ms; SOURCE_ERROR re-elects strictly later than this after the version was first sent; 60,000
	ImplicitAfter    uint64
	ImplicitAttempts uint64 // and after strictly more attempts than this; 3
	// ms after which a location whose leaders have not all loaded the target is stalled; 600,000
	StallTimeout       uint64
	AutoDemote         bool   // leaders that stall without an error count as followers
	SkipEmptyAfter     uint64 // ms after which a location without instances is passed over; 0 never
	ReelectMinInterval uint64 // ms between two re-elections of a location; 1,000
	MinAdvanceInterval uint64 // ms between two advances of the first location; 0 none
	Retention          uint64 // ms of history; 3,600,000
	// instances of a removed location get its last target instead of UNKNOWN_LOCATION
	KeepRemoved bool
}

// Validate checks each field. What they mean together is for the track to check.
func (m *TrackConfig) Validate() error { f := checker(); m.fields(&f); return f.err() }

func (m *TrackConfig) fields(f *fields) {
	enum(f, "config.source", &m.Source, "source", SourceTSO, SourcePublished, "1 (tso), 2 (external) or 3 (published)")
	enum(f, "config.delay from", &m.DelayFrom, "delay from", FromSelected, FromConverged,
		"0 (selected) or 1 (converged)")
	if n := len(m.Locations); n == 0 || n > MaxTrackLocations {
		f.refuse("config has %d locations; it must have 1 to %d", n, MaxTrackLocations)
	}
	for l := list(f, "config.locations", 6, &m.Locations); l.next(f); {
		l.item().fields(f)
	}
	f.part = ""
	if n := len(m.ExplicitCodes); n > MaxTrackCodes {
		f.refuse("config has %d explicit codes; at most %d are allowed", n, MaxTrackCodes)
	}
	f.labels("config.explicit codes", &m.ExplicitCodes, "explicit code", MaxTrackName)
	f.millis("config.implicit after", &m.ImplicitAfter, "config: implicit after", MaxTrackDuration)
	f.uint("config.implicit attempts", &m.ImplicitAttempts)
	if m.ImplicitAttempts > MaxTrackDuration {
		f.refuse("config: implicit attempts is %d; at most 2^32 are allowed", m.ImplicitAttempts)
	}
	f.millis("config.stall timeout", &m.StallTimeout, "config: stall timeout", MaxTrackDuration)
	f.bool("config.auto demote", &m.AutoDemote)
	f.millis("config.skip empty after", &m.SkipEmptyAfter, "config: skip empty after", MaxTrackDuration)
	f.millis("config.reelect min interval", &m.ReelectMinInterval, "config: reelect interval", MaxTrackDuration)
	f.millis("config.min advance interval", &m.MinAdvanceInterval, "config: advance interval", MaxTrackDuration)
	f.millis("config.retention", &m.Retention, "config: retention", MaxTrackDuration)
	f.bool("config.keep removed", &m.KeepRemoved)
}

// LocationConfig is one location of the order.
type LocationConfig struct {
	Name  string
	Delay uint64 // ms behind its predecessor; not used by the first
	// ms that a version must have been converged here before it goes on to the next location; 0 no
	// condition
	Bake      uint64
	Share     uint8  // percent of the leaders that get a new target first; 0 or 100 all at once
	ShareBake uint64 // ms that the share must have had it before the others get it
	Gates     []GateConfig
}

func (m *LocationConfig) fields(f *fields) {
	f.label("locations.name", &m.Name, "location name", MaxTrackName)
	if f.pass == check {
		f.part = "location " + m.Name + ": "
	}
	f.millis("locations.delay", &m.Delay, "delay", MaxTrackDuration)
	f.millis("locations.bake", &m.Bake, "bake", MaxTrackDuration)
	small(f, "locations.share", &m.Share)
	if m.Share > 100 {
		f.refuse("%sshare is %d; it is in percent, 0 to 100", f.part, m.Share)
	}
	f.millis("locations.share bake", &m.ShareBake, "share bake", MaxTrackDuration)
	if n := len(m.Gates); n > MaxTrackGates {
		f.refuse("location %s has %d gates; at most %d are allowed", m.Name, n, MaxTrackGates)
	}
	for l := list(f, "locations.gates", 5, &m.Gates); l.next(f); {
		l.item().fields(f)
	}
}

// GateConfig is a check that must succeed before a location takes a version. Holders of a watch run
// it; the server does not.
type GateConfig struct {
	Name    string
	Kind    GateKind
	Spec    string // the command or the address
	Timeout uint64 // ms; a run without an outcome is inconclusive after this; 60,000
	Retry   uint64 // ms until an inconclusive gate is run again; 30,000
}

func (m *GateConfig) fields(f *fields) {
	f.label("gate.name", &m.Name, "gate name", MaxTrackName)
	if f.pass == check {
		f.part = "gate " + m.Name + ": "
	}
	enum(f, "gate.kind", &m.Kind, "kind", GateCommand, GateWebhook, "1 (command) or 2 (webhook)")
	f.str("gate.spec", &m.Spec)
	if f.checks() && (len(m.Spec) > MaxTrackGateSpec || !utf8.ValidString(m.Spec)) {
		f.refuse("%sits command or address is at most %d bytes of UTF-8", f.part, MaxTrackGateSpec)
	}
	f.millis("gate.timeout", &m.Timeout, "timeout", MaxTrackDuration)
	f.millis("gate.retry", &m.Retry, "retry", MaxTrackDuration)
}

// TrackSource is the source of the first location's versions.
type TrackSource uint8

const (
	SourceTSO       TrackSource = 1 // made by the server: wall time in ms << 18, strictly increasing
	SourceExternal  TrackSource = 2 // made by a generator outside
	SourcePublished TrackSource = 3 // given to TrackPublish
)

// DelayFrom is the moment from which a location's delay counts.
type DelayFrom uint8

const (
	FromSelected  DelayFrom = 0 // from when the predecessor's target was set
	FromConverged DelayFrom = 1 // from when all of the predecessor's leaders had it
)

// GateKind is how a gate is run.
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

func (m *TrackCreate) fields(f *fields) {
	f.message("track create")
	f.head(&m.Head)
	f.track(&m.Name)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
}

// TrackAlter replaces the config that has this revision. Reply: TrackRevision.
type TrackAlter struct {
	Head
	Name     []byte
	Revision uint64 // else PRECONDITION_FAILED
	Config   TrackConfig
}

func (m *TrackAlter) fields(f *fields) {
	f.message("track alter")
	f.head(&m.Head)
	f.track(&m.Name)
	f.uint("revision", &m.Revision)
	o := f.enter("config")
	m.Config.fields(f)
	f.leave(o)
}

// TrackRevision is the config's revision. A track that is created again begins above the former's.
type TrackRevision struct {
	Revision uint64
}

func (m *TrackRevision) fields(f *fields) {
	f.message("track revision")
	f.uint("revision", &m.Revision)
}

// TrackDelete removes a track; one that has instances only with Force. Reply: Empty.
type TrackDelete struct {
	Head
	Name  []byte
	Force bool
}

func (m *TrackDelete) fields(f *fields) {
	f.message("track delete")
	f.head(&m.Head)
	f.track(&m.Name)
	f.bool("force", &m.Force)
}

// TrackInstanceRole is an instance's role in its location. A follower does not hold anybody up.
type TrackInstanceRole uint8

const (
	InstanceFollower TrackInstanceRole = 1
	InstanceLeader   TrackInstanceRole = 2
)

// TrackRegister makes the session an instance of the track, until it ends. The same again by the
// same session gives the same incarnation. Reply: TrackRegisterReply. An id that another live
// session has is ALREADY_EXISTS, unless that session is detached or Takeover is set.
type TrackRegister struct {
	Head
	Name     []byte
	ID       string // of the instance, such as its host name
	Location string
	Role     TrackInstanceRole
	Meta     string // for people
	Takeover bool   // evict the other session; its later calls are refused
}

func (m *TrackRegister) fields(f *fields) {
	f.message("track register")
	f.head(&m.Head)
	f.track(&m.Name)
	f.label("id", &m.ID, "instance id", MaxTrackInstance)
	f.label("location", &m.Location, "location name", MaxTrackName)
	enum(f, "role", &m.Role, "role", InstanceFollower, InstanceLeader, "1 (follower) or 2 (leader)")
	f.printable("meta", &m.Meta, "meta", MaxTrackMeta)
	f.bool("takeover", &m.Takeover)
}

// TrackRegisterReply has the incarnation, which the instance's calls carry.
type TrackRegisterReply struct {
	Incarnation uint64
}

func (m *TrackRegisterReply) fields(f *fields) {
	f.message("track register reply")
	f.uint("incarnation", &m.Incarnation)
}

// TrackUnregister ends an instance at its own wish. Reply: Empty.
type TrackUnregister struct {
	Head
	Name        []byte
	ID          string
	Incarnation uint64
}

func (m *TrackUnregister) fields(f *fields) {
	f.message("track unregister")
	f.head(&m.Head)
	f.track(&m.Name)
	f.label("id", &m.ID, "instance id", MaxTrackInstance)
	f.incarnation(&m.Incarnation)
}

// TrackPoll asks which version to have, and reports. Targets move by polls alone. It has no number
// of its own: it may be sent again. Reply: TrackPollReply.
type TrackPoll struct {
	Session     uint64
	Name        []byte
	ID          string
	Incarnation uint64
	Report      UpdateReport // none with Seq 0; a stale one is dropped
	WithPayload bool
}

func (m *TrackPoll) fields(f *fields) {
	f.message("track poll")
	f.uint("session", &m.Session)
	f.track(&m.Name)
	f.label("id", &m.ID, "instance id", MaxTrackInstance)
	f.incarnation(&m.Incarnation)
	o := f.enter("report")
	m.Report.fields(f)
	f.leave(o)
	f.bool("with payload", &m.WithPayload)
}

// UpdateReport carries an instance's report about itself.
type UpdateReport struct {
	Seq      uint64 // not 0; rises within an incarnation with each report that says something new
	Current  uint64 // the version it serves, 0 none
	Target   uint64 // the version that Code and Attempts are about
	Code     string // OK, SOURCE_ERROR, empty for nothing yet, or one of its own
	Message  string
	Attempts uint64 // to load Target so far
}

// Validate checks each field.
func (m *UpdateReport) Validate() error { f := checker(); m.fields(&f); return f.err() }

func (m *UpdateReport) fields(f *fields) {
	f.uint("report.seq", &m.Seq)
	f.version("report.current", &m.Current)
	f.version("report.target", &m.Target)
	f.printable("report.code", &m.Code, "reported code", MaxTrackName)
	f.printable("report.message", &m.Message, "reported message", MaxTrackMessage)
	f.uint("report.attempts", &m.Attempts)
}

// TrackPollStatus is the reason for the answer to a poll.
type TrackPollStatus uint8

const (
	PollTarget            TrackPollStatus = 0 // load Version, or keep it
	PollNoTarget          TrackPollStatus = 1 // none yet: keep the present version, load nothing
	PollPaused            TrackPollStatus = 2 // Version stays until an operator resumes
	PollExcluded          TrackPollStatus = 3 // the location is excluded: Version stays
	PollRemoved           TrackPollStatus = 4 // the location left the order: Version was its last
	PollSourceWanted      TrackPollStatus = 5 // the generator outside is asked for a version
	PollSourceUnavailable TrackPollStatus = 6 // the same, but it failed last time
)

// TrackPollReply is the version that the instance should have.
type TrackPollReply struct {
	Version    uint64 // 0 none
	Status     TrackPollStatus
	State      TrackState // of the location
	Until      uint64     // log time at which asking again may give more, 0 unknown
	RetryAfter uint64     // the same in ms from now, 0 unknown
	// of the location's target: it rises with each new one, also where the version is the same again
	Generation uint64
	HasPayload bool // Payload is the version's
	Payload    []byte
}

func (m *TrackPollReply) fields(f *fields) {
	f.message("track poll reply")
	f.uint("version", &m.Version)
	small(f, "status", &m.Status)
	small(f, "state", &m.State)
	f.uint("until", &m.Until)
	f.uint("retry after", &m.RetryAfter)
	f.uint("generation", &m.Generation)
	f.bool("has payload", &m.HasPayload)
	f.bytes("payload", &m.Payload)
}

// TrackReport reports without asking. Reply: Empty. A stale one is PRECONDITION_FAILED.
type TrackReport struct {
	Session     uint64
	Name        []byte
	ID          string
	Incarnation uint64
	Report      UpdateReport
}

func (m *TrackReport) fields(f *fields) {
	f.message("track report")
	f.uint("session", &m.Session)
	f.track(&m.Name)
	f.label("id", &m.ID, "instance id", MaxTrackInstance)
	f.incarnation(&m.Incarnation)
	o := f.enter("report")
	m.Report.fields(f)
	f.leave(o)
	if m.Report.Seq == 0 {
		f.refuse("report number is 0; an incarnation's reports are numbered from 1")
	}
}

// TrackSetRole changes an instance's role. Reply: Empty.
type TrackSetRole struct {
	Head
	Name        []byte
	ID          string
	Incarnation uint64
	Role        TrackInstanceRole
}

func (m *TrackSetRole) fields(f *fields) {
	f.message("track set role")
	f.head(&m.Head)
	f.track(&m.Name)
	f.label("id", &m.ID, "instance id", MaxTrackInstance)
	f.incarnation(&m.Incarnation)
	enum(f, "role", &m.Role, "role", InstanceFollower, InstanceLeader, "1 (follower) or 2 (leader)")
}
