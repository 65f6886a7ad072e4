package process

import "github.com/signalbox-dev/signalbox/protocol"

// MemberEventKind is the request of an event to a member.
type MemberEventKind uint8

const (
	// EventPrepare: a round started. Epoch, Topology, Coordinator, Attempt, Members, Token. A round
	// the member still has open is over: completed if its epoch is CompletedEpoch, else cancelled.
	EventPrepare MemberEventKind = 1
	// EventCoordinate, to the coordinator: all members are prepared. Epoch.
	EventCoordinate MemberEventKind = 2
	// EventCancel: the round is given up. Epoch, Text.
	EventCancel MemberEventKind = 3
	// EventComplete: the round is complete, with Result. Epoch. The coordinator gets it last.
	EventComplete MemberEventKind = 4
	// EventResume: the member took the place that its key kept, in a round that is complete: it
	// prepares and completes it by itself, with Result, and confirms as after EventComplete. Epoch,
	// Topology, Coordinator, Members, Token.
	EventResume MemberEventKind = 5
	// EventRemoved: the session is no member any more, by Removal. It must not join again by
	// itself. CompletedEpoch as with EventPrepare.
	EventRemoved MemberEventKind = 6
)

// MemberEvent is addressed to the session. Resend may repeat it; receivers confirm it again and do
// not repeat the work.
type MemberEvent struct {
	Kind           MemberEventKind
	Removal        protocol.ProcessRemoval
	Session        uint64
	Epoch          uint64
	Topology       uint64 // version of the member list
	Coordinator    uint64 // session
	Attempt        uint64 // 0, or how many rounds of this topology failed before
	Token          uint64 // fencing token for the member's effects in this round
	CompletedEpoch uint64 // the newest epoch decided complete with the session among its members
	Members        []protocol.ProcessMember
	Result         []byte
	Text           string
}

// Out collects the output of a process, in order. The zero value is ready; Reset keeps the memory.
type Out struct {
	Events  []MemberEvent
	Changes []protocol.ProcessChange
}

// Reset forgets the events and changes, and the references they hold.
func (o *Out) Reset() {
	clear(o.Events)
	o.Events = o.Events[:0]
	clear(o.Changes)
	o.Changes = o.Changes[:0]
}
