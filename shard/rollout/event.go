package rollout

// ChangeKind says what a change is about.
type ChangeKind uint8

const (
	// ChangeTarget: Location has a new target Version, in place of From. Whoever watches it loads Version and reports; while Share is set only the location's
	// share does.
	ChangeTarget ChangeKind = 1
	// ChangeWiden: the share has loaded Version, now all instances of Location are to.
	ChangeWiden ChangeKind = 2
	// ChangeState: Location is in another State, which may change by time alone at Until. READY: a poll by a leader moves it.
	ChangeState ChangeKind = 3
	// ChangeConverged: all leaders of Location have Version.
	ChangeConverged ChangeKind = 4
	// ChangeSkip: Version of Location is never passed on.
	ChangeSkip ChangeKind = 5
	// ChangeGate: the gate Gate of Location is to be run for Version, as run Attempt; Spec and kind are in the config.
	ChangeGate ChangeKind = 6
	// ChangeGateDone: it has an outcome, or ran out of time.
	ChangeGateDone ChangeKind = 7
	// ChangeJoined, ChangeLeft: Instance of Location.
	ChangeJoined ChangeKind = 8
	ChangeLeft   ChangeKind = 9
	// ChangeRole: Instance is leader or follower now, or counts as one (Text).
	ChangeRole ChangeKind = 10
	// ChangeAdmin: an operator's command took effect; Location is empty when it is for the track.
	ChangeAdmin ChangeKind = 11
	// ChangePublished: Version can be chosen by the first location.
	ChangePublished ChangeKind = 12
	// ChangeAlert: someone should look: a location is EMPTY or STALLED, a source fails or gives versions that do not increase.
	ChangeAlert ChangeKind = 13
)

var changeNames = [...]string{"", "target", "widen", "state", "converged", "skip", "gate", "gate-done", "joined", "left", "role", "admin", "published", "alert"}

func (k ChangeKind) String() string {
	if int(k) < len(changeNames) {
		return changeNames[k]
	}
	return "unknown"
}

// Reason says why a target was chosen. It is kept in the history.
type Reason uint8

const (
	ReasonInitial  Reason = 1
	ReasonAdvance  Reason = 2
	ReasonExplicit Reason = 3 // re-elected: an instance reported an explicit code
	ReasonImplicit Reason = 4 // re-elected: an instance could not get it from the source for long enough
	ReasonOperator Reason = 5 // re-elected: an operator said so
	ReasonPromote  Reason = 6
	ReasonRollback Reason = 7
)

var reasonNames = [...]string{"", "initial", "advance", "reelect-explicit", "reelect-implicit", "reelect-operator", "promote", "rollback"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

func (r Reason) reelection() bool { return r >= ReasonExplicit && r <= ReasonOperator }

// Change is what leaves a track: for watches, for the audit and for metrics. Log and Wall say when.
type Change struct {
	Kind       ChangeKind
	Reason     Reason
	State      State
	Share      bool
	Location   string
	Instance   string
	Gate       string
	Version    uint64
	From       uint64
	Generation uint64 // of the location's target: it rises with every ChangeTarget
	Until      uint64
	Attempt    uint64
	Log, Wall  uint64
	Text       string // the reason in words
}

// Events collects what leaves one call, in order. The zero value is ready; Reset keeps the memory.
type Events struct {
	List []Change
}

// Reset forgets the changes and the references they hold.
func (c *Events) Reset() {
	clear(c.List)
	c.List = c.List[:0]
}

func (t *Track) emit(now Now, out *Events, c Change) {
	if out != nil {
		c.Log, c.Wall = t.clock, now.Wall
		out.List = append(out.List, c)
	}
}
