package protocol

// Flags of ProcessDescribe.
const (
	WithProcessMembers uint8 = 1 << iota
	WithProcessHistory
)

// ProcessDescribe reads a process. Its members come in pages in order of joining, the history with
// the first page. Reply: ProcessStatus.
type ProcessDescribe struct {
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte
	Limit       uint32 // members in the page, 0 is the server's choice
}

func (m *ProcessDescribe) fields(f *fields) {
	f.message("process describe")
	f.uint("node", &m.Node)
	f.process(&m.Name)
	f.flags(&m.Flags, WithProcessMembers|WithProcessHistory, "describe")
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// ProcessPhase is the phase of a process.
type ProcessPhase uint8

const (
	PhaseIdle         ProcessPhase = 0 // no members
	PhaseWaiting      ProcessPhase = 1 // a round starts at a time
	PhasePreparing    ProcessPhase = 2
	PhaseCoordinating ProcessPhase = 3
	PhaseCompleting   ProcessPhase = 4 // decided complete; members confirm
	PhaseCompleted    ProcessPhase = 5
)

// ProcessStatus is the state of a process.
type ProcessStatus struct {
	Index       uint64 // log index of the shard it was read at
	Revision    uint64 // log index of the process's last change
	Name        []byte
	Clock       uint64 // log time of the read
	Phase       ProcessPhase
	Epoch       uint64 // of the present round, or the last
	Topology    uint64
	Coordinator uint64 // session
	Attempt     uint64 // how many rounds of this topology failed
	Started     uint64 // wall clock of the round's start
	Start       uint64 // log time at which a round is due, while one is
	NumMembers  uint64
	Options     ProcessOptions
	Counters    ProcessCounters
	Members     []ProcessMemberInfo
	History     []ProcessHistoryRound // the newest last
	Cursor      []byte
}

func (m *ProcessStatus) fields(f *fields) {
	f.message("process status")
	f.uint("index", &m.Index)
	f.uint("revision", &m.Revision)
	f.bytes("name", &m.Name)
	f.uint("clock", &m.Clock)
	small(f, "phase", &m.Phase)
	f.uint("epoch", &m.Epoch)
	f.uint("topology", &m.Topology)
	f.uint("coordinator", &m.Coordinator)
	f.uint("attempt", &m.Attempt)
	f.uint("started", &m.Started)
	f.uint("start", &m.Start)
	f.uint("num members", &m.NumMembers)
	o := f.enter("options")
	m.Options.fields(f)
	f.leave(o)
	o = f.enter("counters")
	m.Counters.fields(f)
	f.leave(o)
	for l := list(f, "members", 5, &m.Members); l.next(f); {
		l.item().fields(f)
	}
	for l := list(f, "history", 11, &m.History); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
}

// ProcessCounters counts since the process was made.
type ProcessCounters struct {
	Changes   uint64 // of the topology
	Started   uint64 // rounds
	Completed uint64
	Cancelled uint64
	Failed    uint64
	Returned  uint64 // members that came back without a round
	Stale     uint64 // calls refused because of their epoch
}

func (m *ProcessCounters) fields(f *fields) {
	f.uint("counters.changes", &m.Changes)
	f.uint("counters.started", &m.Started)
	f.uint("counters.completed", &m.Completed)
	f.uint("counters.cancelled", &m.Cancelled)
	f.uint("counters.failed", &m.Failed)
	f.uint("counters.returned", &m.Returned)
	f.uint("counters.stale", &m.Stale)
}

// ProcessMemberStatus is a member's state in the present round.
type ProcessMemberStatus uint8

const (
	MemberOutside    ProcessMemberStatus = 0 // it joined after the round started, or no round runs
	MemberPreparing  ProcessMemberStatus = 1 // notified to prepare
	MemberPrepared   ProcessMemberStatus = 2
	MemberCompleting ProcessMemberStatus = 3 // notified that the round is complete
	MemberCompleted  ProcessMemberStatus = 4
	MemberResuming   ProcessMemberStatus = 5 // it came back to a complete round and was notified of it
	MemberAbsent     ProcessMemberStatus = 6 // its session ended, and its key keeps its place
)

// ProcessMemberInfo is a member with where it stands.
type ProcessMemberInfo struct {
	Member ProcessMember
	Status ProcessMemberStatus
	Until  uint64 // log time up to which an absent one keeps its place
	Token  uint64
	Joined uint64 // wall clock
}

func (m *ProcessMemberInfo) fields(f *fields) {
	o := f.enter("members.member")
	m.Member.fields(f)
	f.leave(o)
	small(f, "members.status", &m.Status)
	f.uint("members.until", &m.Until)
	f.uint("members.token", &m.Token)
	f.uint("members.joined", &m.Joined)
}

// ProcessOutcome of a round.
type ProcessOutcome uint8

const (
	RoundCompleted ProcessOutcome = 1
	RoundCancelled ProcessOutcome = 2 // the topology changed, or an operator forced another
	RoundFailed    ProcessOutcome = 3 // a handler failed, or the round timeout passed; it was tried again
)

// ProcessHistoryRound is a round of the history.
type ProcessHistoryRound struct {
	Epoch       uint64
	Topology    uint64
	Coordinator uint64 // session
	Size        uint64 // members when it started
	Attempt     uint64
	Wall        uint64 // wall clock of the start
	Prepared    uint64 // ms from the start until all had prepared, 0 if they never did
	Decided     uint64 // ms from the start until it was decided complete, 0 if it never was
	Duration    uint64 // ms from the start until it was over
	Outcome     ProcessOutcome
	Text        string // why it was given up
}

func (m *ProcessHistoryRound) fields(f *fields) {
	f.uint("history.epoch", &m.Epoch)
	f.uint("history.topology", &m.Topology)
	f.uint("history.coordinator", &m.Coordinator)
	f.uint("history.size", &m.Size)
	f.uint("history.attempt", &m.Attempt)
	f.uint("history.wall", &m.Wall)
	f.uint("history.prepared", &m.Prepared)
	f.uint("history.decided", &m.Decided)
	f.uint("history.duration", &m.Duration)
	small(f, "history.outcome", &m.Outcome)
	f.str("history.text", &m.Text)
}

// ProcessList lists processes of a node in one shard, by name prefix, in order of name. Reply:
// ProcessListReply.
type ProcessList struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Cursor      []byte
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64
}

func (m *ProcessList) fields(f *fields) {
	f.message("process list")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.limited("prefix", &m.Prefix, "process name", MaxProcessName)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
}

// ProcessListReply is a page. An empty cursor is the end.
type ProcessListReply struct {
	Index     uint64
	Processes []ProcessItem
	Cursor    []byte
	Runs      []BucketRun // which buckets the page is about
}

func (m *ProcessListReply) fields(f *fields) {
	f.message("process list reply")
	f.uint("index", &m.Index)
	for l := list(f, "processes", 6, &m.Processes); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	bucketRuns(f, &m.Runs)
}

// ProcessItem is a process in a list.
type ProcessItem struct {
	Name        []byte
	Phase       ProcessPhase
	Epoch       uint64
	Topology    uint64
	Coordinator uint64
	NumMembers  uint64
}

func (m *ProcessItem) fields(f *fields) {
	f.bytes("processes.name", &m.Name)
	small(f, "processes.phase", &m.Phase)
	f.uint("processes.epoch", &m.Epoch)
	f.uint("processes.topology", &m.Topology)
	f.uint("processes.coordinator", &m.Coordinator)
	f.uint("processes.num members", &m.NumMembers)
}

// ProcessWatch opens a stream over one process. Reply: Empty; then ProcessState pages with the
// request's id as watch id, then ProcessChanges. Unwatch closes it.
type ProcessWatch struct {
	Node uint64
	Name []byte
}

func (m *ProcessWatch) fields(f *fields) {
	f.message("process watch")
	f.uint("node", &m.Node)
	f.process(&m.Name)
}

// ProcessState is a page of the state that a stream starts from, also again when the reader fell
// behind.
type ProcessState struct {
	First  bool
	Last   bool
	Exists bool // false: the process does not exist; changes follow once it does
	Status ProcessStatus
}

func (m *ProcessState) fields(f *fields) {
	f.message("process state")
	f.bool("first", &m.First)
	f.bool("last", &m.Last)
	f.bool("exists", &m.Exists)
	o := f.enter("status")
	m.Status.fields(f)
	f.leave(o)
}

// ProcessChanges lists the changes that one step of the log made to a process.
type ProcessChanges struct {
	Revision uint64 // log index
	Wall     uint64 // wall clock
	Changes  []ProcessChange
}

func (m *ProcessChanges) fields(f *fields) {
	f.message("process changes")
	f.uint("revision", &m.Revision)
	f.uint("wall", &m.Wall)
	for l := list(f, "changes", 7, &m.Changes); l.next(f); {
		l.item().fields(f)
	}
}

// ProcessChangeKind is the kind of a change.
type ProcessChangeKind uint8

const (
	ProcessJoined       ProcessChangeKind = 1 // Session, Text: its key
	ProcessLeft         ProcessChangeKind = 2 // Session, Text: why
	ProcessAbsent       ProcessChangeKind = 3 // Session: it ended, its key keeps the place
	ProcessReturned     ProcessChangeKind = 4 // Session: it took the place that its key kept
	ProcessStarted      ProcessChangeKind = 5 // Session: the coordinator's
	ProcessPhaseChanged ProcessChangeKind = 6 // Phase
	ProcessRoundEnded   ProcessChangeKind = 7 // Outcome, Text
	ProcessAltered      ProcessChangeKind = 8 // the options
	ProcessDeleted      ProcessChangeKind = 9 // it had no members for long, and is removed
)

// ProcessChange is one change.
type ProcessChange struct {
	Kind     ProcessChangeKind
	Phase    ProcessPhase
	Outcome  ProcessOutcome
	Epoch    uint64
	Topology uint64
	Session  uint64
	Text     string
}

func (m *ProcessChange) fields(f *fields) {
	small(f, "changes.kind", &m.Kind)
	small(f, "changes.phase", &m.Phase)
	small(f, "changes.outcome", &m.Outcome)
	f.uint("changes.epoch", &m.Epoch)
	f.uint("changes.topology", &m.Topology)
	f.uint("changes.session", &m.Session)
	f.str("changes.text", &m.Text)
}
