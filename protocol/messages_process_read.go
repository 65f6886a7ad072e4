package protocol

// Flags of ProcessDescribe.
const (
	WithProcessMembers uint8 = 1 << iota
	WithProcessHistory
)

// ProcessDescribe reads a process. Its members come in pages in order of joining, the history with the first page. Reply: ProcessStatus.
type ProcessDescribe struct {
	Node        uint64
	Name        []byte
	Flags       uint8
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
	Cursor      []byte
	Limit       uint32 // members in the page, 0 is the server's choice
}

// ProcessPhase is where a process is.
type ProcessPhase uint8

const (
	PhaseIdle         ProcessPhase = 0 // no members
	PhaseWaiting      ProcessPhase = 1 // a round starts at a time
	PhasePreparing    ProcessPhase = 2
	PhaseCoordinating ProcessPhase = 3
	PhaseCompleting   ProcessPhase = 4 // decided complete; members confirm
	PhaseCompleted    ProcessPhase = 5
)

// ProcessStatus is how a process stands.
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

// ProcessMemberStatus is where a member is in the present round.
type ProcessMemberStatus uint8

const (
	MemberOutside    ProcessMemberStatus = 0 // it joined after the round started, or there is none
	MemberPreparing  ProcessMemberStatus = 1 // told to prepare
	MemberPrepared   ProcessMemberStatus = 2
	MemberCompleting ProcessMemberStatus = 3 // told that the round is complete
	MemberCompleted  ProcessMemberStatus = 4
	MemberResuming   ProcessMemberStatus = 5 // it came back to a complete round and was told of it
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

// ProcessList lists processes of a node in one shard, by name prefix, in order of name. Reply: ProcessListReply.
type ProcessList struct {
	Shard       uint64
	Node        uint64
	Prefix      []byte
	Cursor      []byte
	Limit       uint32
	Consistency Consistency
	MinIndex    uint64
}

// ProcessListReply is a page. An empty cursor is the end.
type ProcessListReply struct {
	Index     uint64
	Processes []ProcessItem
	Cursor    []byte
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

// ProcessWatch opens a stream over one process. Reply: Empty; then ProcessState pages with the request's id as watch id, then ProcessChanges. Unwatch closes it.
type ProcessWatch struct {
	Node uint64
	Name []byte
}

// ProcessState is a page of what a stream starts from, and starts again from when the reader fell behind.
type ProcessState struct {
	First  bool
	Last   bool
	Exists bool // false: there is no such process now; changes follow when there is
	Status ProcessStatus
}

// ProcessChanges is what one step of the log did to a process.
type ProcessChanges struct {
	Revision uint64 // log index
	Wall     uint64 // wall clock
	Changes  []ProcessChange
}

// ProcessChangeKind says what changed.
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
