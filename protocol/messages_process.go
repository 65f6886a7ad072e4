package protocol

// ProcessOptions of a process. The join that makes the process sets them; later joins leave them as
// they are. A zero is the default. Times are ms of log time, at most MaxProcessDuration.
type ProcessOptions struct {
	Election     ProcessElection
	Debounce     uint64 // from a change of the topology to the next round; default 0: at once
	RoundTimeout uint64 // until a round must be decided; default 0: for ever
	BackoffMin   uint64 // before a failed round is tried again; default 50
	BackoffMax   uint64 // default 5,000
	Return       uint64 // how long a member with a key keeps its place without a session; default 0: it leaves at once
}

// Validate checks each field, and the two back-offs against each other.
func (m *ProcessOptions) Validate() error { f := checker(); m.fields(&f); return f.err() }

func (m *ProcessOptions) fields(f *fields) {
	enum(f, "options.election", &m.Election, "election", ElectOldest, ElectPreferred,
		"0 (oldest), 1 (lowest-id) or 2 (preferred)")
	f.millis("options.debounce", &m.Debounce, "debounce", MaxProcessDuration)
	f.millis("options.round timeout", &m.RoundTimeout, "round timeout", MaxProcessDuration)
	f.millis("options.backoff min", &m.BackoffMin, "least back-off", MaxProcessDuration)
	f.millis("options.backoff max", &m.BackoffMax, "greatest back-off", MaxProcessDuration)
	f.millis("options.return", &m.Return, "time to return", MaxProcessDuration)
	if m.BackoffMax > 0 && m.BackoffMin > m.BackoffMax {
		f.refuse("least back-off is %d ms, above the greatest, %d ms", m.BackoffMin, m.BackoffMax)
	}
}

// ProcessElection is the rule that elects a round's coordinator.
type ProcessElection uint8

const (
	ElectOldest    ProcessElection = 0 // the member that joined first
	ElectLowest    ProcessElection = 1 // the lowest session id
	ElectPreferred ProcessElection = 2 // the highest weight, then the present coordinator
)

// ProcessJoin makes the session a member of a process, which is made if it does not exist. Reply:
// ProcessJoinReply; rounds follow as ProcessRound events. A member that sends a new join knows of
// no round any more: a complete one is resumed, and any other gives way to a new one.
type ProcessJoin struct {
	Head
	Name    []byte
	Key     string // keeps the member's place over the end of its session; may be empty
	Data    []byte // that other members see
	Weight  uint32 // for ElectPreferred
	Options ProcessOptions
}

func (m *ProcessJoin) fields(f *fields) {
	f.message("process join")
	f.head(&m.Head)
	f.process(&m.Name)
	f.text("key", &m.Key, "member key", MaxProcessKey)
	f.limited("data", &m.Data, "member data", MaxProcessData)
	f.uint32("weight", &m.Weight)
	o := f.enter("options")
	m.Options.fields(f)
	f.leave(o)
}

// ProcessJoinReply answers a join.
type ProcessJoinReply struct {
	Order         uint64 // of joining
	Topology      uint64
	Returned      bool // it took the place that its key kept: no round is needed
	AlreadyMember bool // it was a member already
}

func (m *ProcessJoinReply) fields(f *fields) {
	f.message("process join reply")
	f.uint("order", &m.Order)
	f.uint("topology", &m.Topology)
	f.bool("returned", &m.Returned)
	f.bool("already member", &m.AlreadyMember)
}

// ProcessLeave ends a membership. Reply: ProcessLeaveReply.
type ProcessLeave struct {
	Head
	Name []byte
}

func (m *ProcessLeave) fields(f *fields) {
	f.message("process leave")
	f.head(&m.Head)
	f.process(&m.Name)
}

// ProcessLeaveReply reports how the member's open round ended: complete if its epoch is
// CompletedEpoch, else cancelled.
type ProcessLeaveReply struct {
	CompletedEpoch uint64 // the newest epoch that was decided complete with the session among its members
}

func (m *ProcessLeaveReply) fields(f *fields) {
	f.message("process leave reply")
	f.uint("completed epoch", &m.CompletedEpoch)
}

// ProcessStep is the step that a member confirms.
type ProcessStep uint8

const (
	StepPrepared  ProcessStep = 1
	StepCompleted ProcessStep = 2
)

// ProcessConfirm reports that the member prepared, or completed, the round. It has no number: it
// may be sent again. Reply: Empty; ABORTED: the round is over.
type ProcessConfirm struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Step    ProcessStep
}

func (m *ProcessConfirm) fields(f *fields) {
	f.message("process confirm")
	f.member(&m.Session)
	f.process(&m.Name)
	f.epoch(&m.Epoch)
	enum(f, "step", &m.Step, "step", StepPrepared, StepCompleted, "1 (prepared) or 2 (completed)")
}

// ProcessFail fails the round, which is tried again after a back-off: the member could not prepare,
// or the coordinator not coordinate. It has no number. Reply: Empty; ABORTED: the round is over;
// PRECONDITION_FAILED: it is decided complete.
type ProcessFail struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Text    string
}

func (m *ProcessFail) fields(f *fields) {
	f.message("process fail")
	f.member(&m.Session)
	f.process(&m.Name)
	f.epoch(&m.Epoch)
	f.text("text", &m.Text, "text", MaxDescriptionLen) // a longer one is cut to MaxProcessText
}

// ProcessComplete, by the coordinator, decides that the round is complete, and leaves a result with
// it. Reply: Empty.
type ProcessComplete struct {
	Head
	Name   []byte
	Epoch  uint64
	Result []byte
}

func (m *ProcessComplete) fields(f *fields) {
	f.message("process complete")
	f.head(&m.Head)
	f.process(&m.Name)
	f.epoch(&m.Epoch)
	f.limited("result", &m.Result, "result", MaxProcessResult)
}

// ProcessForceRound is an operator's: it starts a new round although nothing changed. Reply: Empty.
type ProcessForceRound struct {
	Node uint64
	Name []byte
	Text string // why
}

func (m *ProcessForceRound) fields(f *fields) {
	f.message("process force round")
	f.uint("node", &m.Node)
	f.process(&m.Name)
	f.text("text", &m.Text, "reason", MaxDescriptionLen)
}

// ProcessEvict is an operator's: it takes a member out, its key too. Reply: Empty.
type ProcessEvict struct {
	Node    uint64
	Name    []byte
	Session uint64
	Text    string // why
}

func (m *ProcessEvict) fields(f *fields) {
	f.message("process evict")
	f.uint("node", &m.Node)
	f.process(&m.Name)
	f.positive("session", &m.Session, "session is 0; name the member to evict")
	f.text("text", &m.Text, "reason", MaxDescriptionLen)
}

// ProcessAlter is an operator's: it replaces the options. Reply: Empty.
type ProcessAlter struct {
	Node    uint64
	Name    []byte
	Options ProcessOptions
}

func (m *ProcessAlter) fields(f *fields) {
	f.message("process alter")
	f.uint("node", &m.Node)
	f.process(&m.Name)
	o := f.enter("options")
	m.Options.fields(f)
	f.leave(o)
}

// ProcessSync asks for everything that the member has not confirmed, after its connection changed.
// Reply: Empty, and events follow; NOT_FOUND: the session is not a member.
type ProcessSync struct {
	Session uint64
	Name    []byte
	Epoch   uint64 // the highest the member knows
}

func (m *ProcessSync) fields(f *fields) {
	f.message("process sync")
	f.member(&m.Session)
	f.process(&m.Name)
	f.uint("epoch", &m.Epoch)
}

// ProcessRequest sends a message to other members of the round. It may be sent again under its
// number. Reply: Empty, which says that it is on its way; UNAVAILABLE and OVERLOADED: send it
// again; ABORTED: the round is over.
type ProcessRequest struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	Number  uint64 // from 1, rising as long as the session lives
	Low     uint64 // the lowest number that the member has not had all answers to, or has not given up
	To      []uint64
	Payload []byte
}

func (m *ProcessRequest) fields(f *fields) {
	f.message("process request")
	f.member(&m.Session)
	f.process(&m.Name)
	f.epoch(&m.Epoch)
	f.uint("number", &m.Number)
	f.uint("low", &m.Low)
	if m.Number == 0 || m.Low == 0 || m.Low > m.Number {
		f.refuse("number %d and low %d of the message do not fit; numbers start from 1, and low is not above", m.Number,
			m.Low)
	}
	f.uints("to", &m.To)
	if n := len(m.To); n == 0 || n > MaxProcessMembers {
		f.refuse("message has %d receivers; it must have 1 to %d", n, MaxProcessMembers)
	}
	f.limited("payload", &m.Payload, "message", MaxProcessPayload)
}

// ProcessReply answers a message. It may be sent again. Reply: Empty.
type ProcessReply struct {
	Session uint64
	Name    []byte
	Epoch   uint64
	To      uint64 // who sent the message
	Number  uint64 // of the message
	Refused bool   // the handler failed: send the message again
	Payload []byte
}

func (m *ProcessReply) fields(f *fields) {
	f.message("process reply")
	f.member(&m.Session)
	f.process(&m.Name)
	f.epoch(&m.Epoch)
	f.uint("to", &m.To)
	f.uint("number", &m.Number)
	if m.To == 0 || m.Number == 0 {
		f.refuse("sender %d and number %d name no message; give those of the message that is answered", m.To, m.Number)
	}
	f.bool("refused", &m.Refused)
	f.limited("payload", &m.Payload, "message", MaxProcessPayload)
}

// ProcessRoundKind is the kind of a ProcessRound.
type ProcessRoundKind uint8

const (
	RoundPrepare    ProcessRoundKind = 1 // a round started: Epoch, Topology, Coordinator, Attempt, Token, Members
	RoundCoordinate ProcessRoundKind = 2 // to the coordinator: all are prepared
	RoundCancel     ProcessRoundKind = 3 // the round is given up: Text
	RoundComplete   ProcessRoundKind = 4 // the round is complete, with Result; the coordinator is notified last
	RoundResume     ProcessRoundKind = 5 // the member took the place that its key kept: prepare and complete, with Members and Result
	RoundRemoved    ProcessRoundKind = 6 // the session is a member no longer: Removal, Text. It must not join again by itself
)

// ProcessRemoval is the reason why a live session is a member no longer.
type ProcessRemoval uint8

const (
	RemovedByReplacement ProcessRemoval = 1 // another session joined with its key
	RemovedByOperator    ProcessRemoval = 2
)

// ProcessRound notifies a member about a round. It may come again until it is confirmed. A round
// that is open at the member when it hears of a higher epoch, or that it was removed, is over:
// complete if its epoch is CompletedEpoch, else cancelled.
type ProcessRound struct {
	Session        uint64
	Name           []byte
	Kind           ProcessRoundKind
	Removal        ProcessRemoval
	Epoch          uint64
	Topology       uint64 // version of the list of members
	Coordinator    uint64 // session
	Attempt        uint64 // how many rounds of this topology failed before
	Token          uint64 // fencing token for the member's work outside in this round: the epoch, or higher
	CompletedEpoch uint64 // the newest epoch that was decided complete with the session among its members
	Result         []byte
	Text           string
	Members        []ProcessMember // in order of joining
}

func (m *ProcessRound) fields(f *fields) {
	m.ownFields(f)
	for l := list(f, "members", 6, &m.Members); l.next(f); {
		l.item().fields(f)
	}
}

// ownFields are those before the list of members.
func (m *ProcessRound) ownFields(f *fields) {
	f.message("process round")
	f.uint("session", &m.Session)
	f.bytes("name", &m.Name)
	small(f, "kind", &m.Kind)
	small(f, "removal", &m.Removal)
	f.uint("epoch", &m.Epoch)
	f.uint("topology", &m.Topology)
	f.uint("coordinator", &m.Coordinator)
	f.uint("attempt", &m.Attempt)
	f.uint("token", &m.Token)
	f.uint("completed epoch", &m.CompletedEpoch)
	f.bytes("result", &m.Result)
	f.str("text", &m.Text)
}

// AppendShared is AppendBody with a list of members that AppendProcessMembers encoded. A round is
// sent to all of its members with the same list.
func (m *ProcessRound) AppendShared(b, members []byte) []byte {
	f := encoder(b)
	m.ownFields(&f)
	f.out = append(f.out, members...)
	f.written++
	return f.body()
}

// AppendProcessMembers encodes a list of members as it stands in a ProcessRound.
func AppendProcessMembers(b []byte, members []ProcessMember) []byte {
	f := fields{pass: encode, out: b}
	for l := list(&f, "members", 6, &members); l.next(&f); {
		l.item().fields(&f)
	}
	return f.out
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

func (m *ProcessMember) fields(f *fields) {
	f.uint("member.session", &m.Session)
	f.uint("member.order", &m.Order)
	f.str("member.key", &m.Key)
	f.str("member.identity", &m.Identity)
	f.bytes("member.data", &m.Data)
	f.uint32("member.weight", &m.Weight)
}

// ProcessMessageKind is the kind of a ProcessMessage.
type ProcessMessageKind uint8

const (
	MessageRequest ProcessMessageKind = 1 // from another member: execute it, or give the reply that is remembered
	MessageReply   ProcessMessageKind = 2 // From answers the session's message
	MessageRefused ProcessMessageKind = 3 // From could not execute the session's message: send it again after a back-off
)

// ProcessMessage brings a message, or the answer to one.
type ProcessMessage struct {
	Session uint64 // the receiver
	Name    []byte
	Kind    ProcessMessageKind
	From    uint64
	Epoch   uint64
	Number  uint64
	Low     uint64 // of a request: no lower number of From comes again, and replies to them may be forgotten
	Payload []byte
}

func (m *ProcessMessage) fields(f *fields) {
	f.message("process message")
	f.uint("session", &m.Session)
	f.bytes("name", &m.Name)
	small(f, "kind", &m.Kind)
	f.uint("from", &m.From)
	f.uint("epoch", &m.Epoch)
	f.uint("number", &m.Number)
	f.uint("low", &m.Low)
	f.bytes("payload", &m.Payload)
}
