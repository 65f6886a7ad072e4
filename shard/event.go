package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/process"
)

// EventKind says what left the machine.
type EventKind uint8

const (
	// EventReply answers the command with index Command of the batch just applied: exactly one for
	// each command, the leader's own included. Status and Text are set. On OK it also has the
	// fields of the command's reply message: State and OrderID, Flag, AlreadyMember, Poll; Session,
	// Node, Epoch, Timeout and Grace; and Result.
	EventReply EventKind = 1
	// EventAcquireResult ends a queued acquire: Session, Seq, Status, State, OrderID, Epoch,
	// Node, Name, Text.
	EventAcquireResult EventKind = 2
	// EventLeaseLost: an owner lost its units while its session lives: Session, Seq (of its
	// acquire), Epoch, Node, Name, OrderID, Text, and Cause at a bound.
	EventLeaseLost EventKind = 3
	// EventSessionAttached: at the home, Session, Node, Epoch, Timeout, Text (the description), and
	// Command, the index of the start or attach. An older connection of the session, if any, is
	// taken over. It comes before the reply, so that the session is known where the client may go
	// on at once.
	EventSessionAttached EventKind = 4
	// EventSessionDetached: at the home, by a CmdDetach: Session, Node, Epoch, and Text is its
	// description. A take-over detaches everything without one for each.
	EventSessionDetached EventKind = 5
	// EventSessionEnded: at the home, Session, Node, Reason, Text, Ending. No event of this shard is
	// addressed to the session after it.
	EventSessionEnded EventKind = 6
	// EventRemoteHeld: Session is a remote session that holds or waits for something here, and did
	// not before: Session, Node, Epoch. The leader subscribes to its home.
	EventRemoteHeld EventKind = 7
	// EventRemoteIdle: it holds and waits for nothing any more (released, or gone): Session, Node,
	// Epoch.
	EventRemoteIdle EventKind = 8
	// EventTookOver: the batch's epoch is the shard's now. Epoch.
	EventTookOver EventKind = 10
	// EventNodeDropped: Node. Streams over it end.
	EventNodeDropped EventKind = 11
	// EventRefused: the whole batch was refused because its epoch is older than the shard's; its
	// commands changed nothing, and have no replies.
	EventRefused EventKind = 12
	// EventUnknownFormat: the batch has a format version this binary does not know, and was not
	// applied. The replica must stop: another binary would have applied it.
	EventUnknownFormat EventKind = 13
	// EventBucketsFrozen: the run First, Count serves nothing here from now on (Epoch is that of
	// the move). Its sessions are at home elsewhere soon: bindings to them end, and are not
	// renewed. Watches on its names end with a doubt. What its sessions hold in other buckets of
	// this shard is a remote session's now, without an EventRemoteHeld for each: RemoteSessions has
	// them.
	EventBucketsFrozen EventKind = 14
	// EventBucketsActive: the run serves, under Epoch: it was imported, or its move was aborted.
	// Its sessions start detached, without an event for each, and are no remote sessions any more.
	// What else is held in it may have made remote sessions: RemoteSessions has them.
	EventBucketsActive EventKind = 15
	// EventBucketsLeft: copies of the run are dropped; they served nothing since they were frozen
	// or imported.
	EventBucketsLeft EventKind = 16
	// EventProcess notifies a member or former member of a process of a round: Session,
	// Epoch, Node, Name, Process. It is for whatever connection of the session is known where it is
	// delivered, and may be lost: it is repeated when the member syncs.
	EventProcess EventKind = 17
	// EventTrackDeleted: Node, Name. Streams over the track end.
	EventTrackDeleted EventKind = 18
	// EventLimitDeleted: Node, Name. Streams over the rate limit end.
	EventLimitDeleted EventKind = 19
	// EventLeasePreempted: a waiter preempts an owner: Session, Seq (of its acquire), Epoch, Node,
	// Name, OrderID; Grant has Now, Until and Preemption; Result is the waiter's session. With Flag
	// nobody preempts it any more.
	EventLeasePreempted EventKind = 20
)

// Event is what leaves the machine: one flat struct, so that a slice of them is reused without
// allocation. Byte slices alias the machine's memory, which is never changed in place: they may be
// kept, and must not be written to.
//
// A reply has at most one number, Result, which a repeated request gets again:
//
//	update                     version of the data
//	release                    1 if it transferred, else 0
//	force release              leases that were released
//	process join               version of the topology
//	process leave              newest epoch that completed with the member
//	track create, alter        revision of the track
//	track register             incarnation of the instance
//	track publish              version that was published
//	limit create, alter        revision of the resource
type Event struct {
	Kind          EventKind
	Status        protocol.Status
	State         protocol.AcquireState
	Refusal       protocol.Refusal // EventReply: beside the status
	Reason        protocol.EndReason
	Cause         protocol.HoldEnd
	Flag          bool // released
	AlreadyMember bool // EventReply to a join: the session was a member already
	Command       int  // EventReply

	Session uint64
	Seq     uint64
	Epoch   uint64 // attach epoch of the session as this shard knows it; EventTookOver: leader epoch
	Timeout uint64
	Grace   uint64
	Node    uint64
	OrderID uint64
	// EventReply: the number of the reply, by the command's kind; of a start or attach the node's read
	// consistency
	Result uint64
	Name   []byte
	Text   string

	Ending  *protocol.Ending         // EventSessionEnded
	Grant   *protocol.Grant          // EventAcquireResult, and EventReply to an acquire: beyond plain units, and bounds
	Process *process.MemberEvent     // EventProcess
	Poll    *protocol.TrackPollReply // EventReply to a poll of a track

	First, Count, Total uint32 // buckets: a run of them, and how many the tier has
}

// SemaphoreChange is one change of a semaphore, for watches. Waiters never make one.
type SemaphoreChange struct {
	Node   uint64
	Bucket uint32
	Name   []byte
	Owners int // of the semaphore, behind the change
	protocol.SemaphoreChange
}

// ProcessChange is one change of a coordination process, for watches. Its revision is the index of
// the entry.
type ProcessChange struct {
	Node   uint64
	Bucket uint32
	Name   []byte
	protocol.ProcessChange
}

// TrackChange is one change of a track, for watches. Its revision is the index of the entry.
type TrackChange struct {
	Node   uint64
	Bucket uint32
	Name   []byte
	protocol.TrackEvent
}

// Events collects what leaves one Apply, in order. The zero value is ready; Reset keeps the memory.
type Events struct {
	List             []Event
	SemaphoreChanges []SemaphoreChange
	// ProcessChanges are the changes of coordination processes.
	ProcessChanges []ProcessChange
	// TrackChanges are the changes of tracks.
	TrackChanges []TrackChange

	// SlowWaits are for the log of the leader's instance. MoreSlowWaits were left out.
	SlowWaits     []SlowWait
	MoreSlowWaits int

	HandedOff HandedOff
}

// Reset forgets the events and the references they hold.
func (e *Events) Reset() {
	clear(e.List)
	e.List = e.List[:0]
	clear(e.SemaphoreChanges)
	e.SemaphoreChanges = e.SemaphoreChanges[:0]
	clear(e.ProcessChanges)
	e.ProcessChanges = e.ProcessChanges[:0]
	clear(e.TrackChanges)
	e.TrackChanges = e.TrackChanges[:0]
	clear(e.SlowWaits)
	e.SlowWaits, e.MoreSlowWaits = e.SlowWaits[:0], 0
	e.HandedOff = HandedOff{}
}
