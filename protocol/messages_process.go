package protocol

// ProcessOptions of a process. The join that makes the process sets them; later joins leave them as they are. A zero is the default. Times are ms of log time,
// at most MaxProcessDuration.
type ProcessOptions struct {
	Election     ProcessElection
	Debounce     uint64 // from a change of the topology to the next round; default 0: at once
	RoundTimeout uint64 // until a round must be decided; default 0: for ever
	BackoffMin   uint64 // before a failed round is tried again; default 50
	BackoffMax   uint64 // default 5,000
	Return       uint64 // how long a member with a key keeps its place without a session; default 0: it leaves at once
}

// ProcessElection says who coordinates a round.
type ProcessElection uint8

const (
	ElectOldest    ProcessElection = 0 // the member that joined first
	ElectLowest    ProcessElection = 1 // the lowest session id
	ElectPreferred ProcessElection = 2 // the highest weight, then the present coordinator
)

// ProcessJoin makes the session a member of a process, which is made if it does not exist. Reply: ProcessJoinReply; rounds follow as ProcessRound events.
type ProcessJoin struct {
	Head
	Name    []byte
	Key     string // keeps the member's place over the end of its session; may be empty
	Data    []byte // what it shows the others
	Weight  uint32 // for ElectPreferred
	Options ProcessOptions
}

// ProcessJoinReply answers a join.
type ProcessJoinReply struct {
	Order         uint64 // of joining
	Topology      uint64
	Returned      bool // it took the place that its key kept: no round is needed
	AlreadyMember bool // it was a member already
}

// ProcessLeave ends a membership. Reply: ProcessLeaveReply.
type ProcessLeave struct {
	Head
	Name []byte
}

// ProcessLeaveReply says how the member's open round ended: complete if its epoch is CompletedEpoch, else cancelled.
type ProcessLeaveReply struct {
	CompletedEpoch uint64 // the newest epoch that was decided complete with the session among its members
}

// ProcessStep is what a member confirms.
type ProcessStep uint8

const (
	StepPrepared  ProcessStep = 1
	StepCompleted ProcessStep = 2
)

// ProcessConfirm says that the member prepared, or completed, the round. It has no number: it may be sent again. Reply: Empty; ABORTED: the round is over.
type ProcessConfirm struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Step    ProcessStep
}

// ProcessFail fails the round, which is tried again after a back-off: the member could not prepare, or the coordinator not coordinate. It has no number.
// Reply: Empty; ABORTED: the round is over; PRECONDITION_FAILED: it is decided complete.
type ProcessFail struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Text    string
}

// ProcessComplete, by the coordinator, decides that the round is complete, and leaves a result with it. Reply: Empty.
type ProcessComplete struct {
	Head
	Name   []byte
	Epoch  uint64
	Result []byte
}

// ProcessForceRound is an operator's: it starts a new round although nothing changed. Reply: Empty.
type ProcessForceRound struct {
	Node uint64
	Name []byte
	Text string // why
}

// ProcessEvict is an operator's: it takes a member out, its key too. Reply: Empty.
type ProcessEvict struct {
	Node    uint64
	Name    []byte
	Session uint64
	Text    string // why
}

// ProcessAlter is an operator's: it replaces the options. Reply: Empty.
type ProcessAlter struct {
	Node    uint64
	Name    []byte
	Options ProcessOptions
}

// ProcessSync asks for everything that the member has not confirmed, after its connection changed. Reply: Empty, and events follow; NOT_FOUND: the session is no
// member.
type ProcessSync struct {
	Session uint64
	Name    []byte
	Epoch   uint64 // the highest the member knows
}

// ProcessRequest sends a message to other members of the round. It may be sent again under its number. Reply: Empty, which says that it is on its way;
// UNAVAILABLE and OVERLOADED: send it again; ABORTED: the round is over.
type ProcessRequest struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Number  uint64 // from 1, rising as long as the session lives
	Low     uint64 // the lowest number that the member has not had all answers to, or has not given up
	To      []uint64
	Payload []byte
}

// ProcessReply answers a message. It may be sent again. Reply: Empty.
type ProcessReply struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	To      uint64 // who sent the message
	Number  uint64 // of the message
	Refused bool   // the handler failed: the message is to be sent again
	Payload []byte
}

// ProcessRoundKind says what a member is told.
type ProcessRoundKind uint8

const (
	RoundPrepare    ProcessRoundKind = 1 // a round started: Epoch, Topology, Coordinator, Attempt, Token, Members
	RoundCoordinate ProcessRoundKind = 2 // to the coordinator: all are prepared
	RoundCancel     ProcessRoundKind = 3 // the round is given up: Text
	RoundComplete   ProcessRoundKind = 4 // the round is complete, with Result; the coordinator is told last
	RoundResume     ProcessRoundKind = 5 // the member took the place that its key kept: prepare and complete, with Members and Result
	RoundRemoved    ProcessRoundKind = 6 // the session is no member any more: Removal, Text. It must not join again by itself
)

// ProcessRemoval is why a session that lives is no member any more.
type ProcessRemoval uint8

const (
	RemovedByReplacement ProcessRemoval = 1 // another session joined with its key
	RemovedByOperator    ProcessRemoval = 2
)

// ProcessRound tells a member about a round. It may come again until it is confirmed. A round that is open at the member when it hears of a higher epoch, or that it
// was removed, is over: complete if its epoch is CompletedEpoch, else cancelled.
type ProcessRound struct {
	Session        uint64
	Name           []byte
	Kind           ProcessRoundKind
	Removal        ProcessRemoval
	Epoch          uint64
	Topology       uint64 // version of the list of members
	Coordinator    uint64 // session
	Attempt        uint64 // how many rounds of this topology failed before
	Token          uint64 // fencing token for what the member does outside in this round: the epoch, or higher
	CompletedEpoch uint64 // the newest epoch that was decided complete with the session among its members
	Result         []byte
	Text           string
	Members        []ProcessMember // in order of joining
}

// ProcessMember is a member as the others see it.
type ProcessMember struct {
	Session  uint64
	Order    uint64 // of joining
	Key      string
	Identity string // who the session belongs to
	Data     []byte
	Weight   uint32
}

// ProcessMessageKind says what a ProcessMessage is.
type ProcessMessageKind uint8

const (
	MessageRequest ProcessMessageKind = 1 // from another member: execute it, or give the reply that is remembered
	MessageReply   ProcessMessageKind = 2 // From answers the session's message
	MessageRefused ProcessMessageKind = 3 // From could not execute the session's message: send it again after a back-off
)

// ProcessMessage brings a message, or the answer to one.
type ProcessMessage struct {
	Session uint64 // to whom
	Name    []byte
	Kind    ProcessMessageKind
	From    uint64
	Epoch   uint64
	Number  uint64
	Low     uint64 // of a request: no lower number of From comes again, and replies to them may be forgotten
	Payload []byte
}
