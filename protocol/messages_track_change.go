package protocol

// TrackPublish offers a version to the first location. Reply: TrackVersion.
type TrackPublish struct {
	Head
	Name    []byte
	Version uint64 // above all earlier; 0: one above the highest
	Payload []byte
}

func (m *TrackPublish) fields(f *fields) {
	f.message("track publish")
	f.head(&m.Head)
	f.track(&m.Name)
	f.version("version", &m.Version)
	f.bytes("payload", &m.Payload)
	if n := len(m.Payload); n > MaxTrackPayload {
		f.refuse("payload is %d bytes long; at most %d are allowed: publish where to find it instead", n, MaxTrackPayload)
	}
}

// TrackVersion is a version.
type TrackVersion struct {
	Version uint64
}

func (m *TrackVersion) fields(f *fields) {
	f.message("track version")
	f.uint("version", &m.Version)
}

// TrackWithdraw bars a published version: it is not chosen any more. Reply: Empty.
type TrackWithdraw struct {
	Head
	Name    []byte
	Version uint64
}

func (m *TrackWithdraw) fields(f *fields) {
	f.message("track withdraw")
	f.head(&m.Head)
	f.track(&m.Name)
	f.version("version", &m.Version)
}

// TrackAdvance is the answer of an external generator, for a track with the source external: a
// version, or the reason why it has none. The request for it is the state READY of the first
// location, which a TrackWatch reports. A generator that comes second, or late, gets
// PRECONDITION_FAILED, for an error too. Reply: Empty.
type TrackAdvance struct {
	Head
	Name     []byte
	Expected uint64 // target of the first location when the generator was asked, 0 none; else PRECONDITION_FAILED
	Version  uint64 // above all earlier, else BAD_REQUEST and the source's error; 0: no version
	Text     string // the source's error, with Version 0 alone
}

func (m *TrackAdvance) fields(f *fields) {
	f.message("track advance")
	f.head(&m.Head)
	f.track(&m.Name)
	f.version("expected", &m.Expected)
	f.version("version", &m.Version)
	f.printable("text", &m.Text, "source error", MaxTrackMessage)
	if f.checks() && (m.Version == 0) != (m.Text != "") {
		f.refuse("version is %d with an error of %d bytes; give one of the two", m.Version, len(m.Text))
	}
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
	TrackEvict    TrackVerb = 8 // ID: remove an instance
)

// TrackAdmin carries out an operator's command: for all Locations named, or, if it is refused for
// one, for none. Reply: Empty.
type TrackAdmin struct {
	Head
	Name      []byte
	Verb      TrackVerb
	Locations []string
	Version   uint64
	ID        string
	Hard      bool
	Reason    string // for the audit log; may be empty
}

func (m *TrackAdmin) fields(f *fields) {
	f.message("track admin")
	f.head(&m.Head)
	f.track(&m.Name)
	small(f, "verb", &m.Verb)
	if m.Verb < TrackPause || m.Verb > TrackEvict {
		f.refuse("verb is %d; it must be 1 to %d", m.Verb, TrackEvict)
	}
	if n := len(m.Locations); n > MaxTrackLocations {
		f.refuse("%d locations are named; at most %d are allowed", n, MaxTrackLocations)
	}
	f.labels("locations", &m.Locations, "location name", MaxTrackName)
	if len(m.Locations) == 0 && m.Verb != TrackPause && m.Verb != TrackResume && m.Verb != TrackEvict {
		f.refuse("no location is named; name those that are meant")
	}
	if m.Verb == TrackEvict { // which has no version
		f.uint("version", &m.Version)
	} else {
		f.version("version", &m.Version)
	}
	f.str("id", &m.ID)
	if m.Verb == TrackEvict {
		f.checkLabel(m.ID, "instance id", MaxTrackInstance)
	}
	f.bool("hard", &m.Hard)
	f.text("reason", &m.Reason, "reason", MaxDescriptionLen)
}

// GateOutcome is the result of a gate's run.
type GateOutcome uint8

const (
	GateSuccess      GateOutcome = 1
	GateFailure      GateOutcome = 2 // the version, and all before it, is never chosen by the location
	GateInconclusive GateOutcome = 3 // it is run again later
)

// TrackGateReport reports the outcome of a run that a TrackStatus or a TrackEvent named. For one
// that is not under way any more the reply is PRECONDITION_FAILED. Reply: Empty.
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

func (m *TrackGateReport) fields(f *fields) {
	f.message("track gate report")
	f.head(&m.Head)
	f.track(&m.Name)
	f.label("location", &m.Location, "location name", MaxTrackName)
	f.version("version", &m.Version)
	f.label("gate", &m.Gate, "gate name", MaxTrackName)
	f.uint("attempt", &m.Attempt)
	enum(f, "outcome", &m.Outcome, "outcome", GateSuccess, GateInconclusive,
		"1 (success), 2 (failure) or 3 (inconclusive)")
	f.printable("text", &m.Text, "gate text", MaxTrackMessage)
}
