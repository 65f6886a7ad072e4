package shard

import "github.com/signalbox-dev/signalbox/protocol"

// FormatVersion is the version of all bytes of a data shard that this binary reads and writes at
// most: batches, records, snapshots, chunks of moves. Apply reads exactly the commands and fields
// of the batch's own version.
//
// A field of a record that a later version adds comes last and is left out while it is zero. So a
// record's bytes follow from the state alone, and a state that no batch of that version has changed
// is written as the older binary writes it.
//
// Version history
//
//	1  first version
const (
	FormatVersion = 1
	firstFormat   = 1
)

// CommandKind is the kind of a command in a batch. Numbers are stable: they are in logs.
//
// Commands below 128 carry the body of the client's request of the same number (protocol.Kind) as
// it came. Commands from 128 up are made by the shard's leader or by the meta shard's coordinator;
// their bodies are below.
type CommandKind uint8

const (
	CmdSessionStart  = CommandKind(protocol.KindSessionStart)
	CmdSessionAttach = CommandKind(protocol.KindSessionAttach)
	CmdSessionStop   = CommandKind(protocol.KindSessionStop)
	CmdSessionKill   = CommandKind(protocol.KindSessionKill)
	CmdCreate        = CommandKind(protocol.KindCreate)
	CmdUpdate        = CommandKind(protocol.KindUpdate)
	CmdResize        = CommandKind(protocol.KindResize)
	CmdDelete        = CommandKind(protocol.KindDelete)
	CmdAcquire       = CommandKind(protocol.KindAcquire)
	CmdRelease       = CommandKind(protocol.KindRelease)
	CmdAlter         = CommandKind(protocol.KindAlter)        // needs a right that is checked by the server
	CmdForceRelease  = CommandKind(protocol.KindForceRelease) // an operator's: rights are checked by the server

	// Coordination processes. Force, evict and alter are operators': rights are checked by the
	// server.
	CmdProcessJoin     = CommandKind(protocol.KindProcessJoin)
	CmdProcessLeave    = CommandKind(protocol.KindProcessLeave)
	CmdProcessConfirm  = CommandKind(protocol.KindProcessConfirm)
	CmdProcessFail     = CommandKind(protocol.KindProcessFail)
	CmdProcessComplete = CommandKind(protocol.KindProcessComplete)
	CmdProcessForce    = CommandKind(protocol.KindProcessForceRound)
	CmdProcessEvict    = CommandKind(protocol.KindProcessEvict)
	CmdProcessAlter    = CommandKind(protocol.KindProcessAlter)

	// Tracks. Create, alter, delete, publish, withdraw and admin need rights that are checked by
	// the server.
	CmdTrackCreate     = CommandKind(protocol.KindTrackCreate)
	CmdTrackAlter      = CommandKind(protocol.KindTrackAlter)
	CmdTrackDelete     = CommandKind(protocol.KindTrackDelete)
	CmdTrackRegister   = CommandKind(protocol.KindTrackRegister)
	CmdTrackUnregister = CommandKind(protocol.KindTrackUnregister)
	CmdTrackPoll       = CommandKind(protocol.KindTrackPoll)
	CmdTrackReport     = CommandKind(protocol.KindTrackReport)
	CmdTrackRole       = CommandKind(protocol.KindTrackSetRole)
	CmdTrackPublish    = CommandKind(protocol.KindTrackPublish)
	CmdTrackWithdraw   = CommandKind(protocol.KindTrackWithdraw)
	CmdTrackAdmin      = CommandKind(protocol.KindTrackAdmin)
	CmdTrackGate       = CommandKind(protocol.KindTrackGateReport)
	CmdTrackAdvance    = CommandKind(protocol.KindTrackAdvance)

	// Rate limits. Create, alter and delete need rights that are checked by the server.
	CmdLimitCreate = CommandKind(protocol.KindLimitCreate)
	CmdLimitAlter  = CommandKind(protocol.KindLimitAlter)
	CmdLimitDelete = CommandKind(protocol.KindLimitDelete)
	CmdLimitJoin   = CommandKind(protocol.KindLimitJoin)
	CmdLimitLeave  = CommandKind(protocol.KindLimitLeave)

	CmdTakeOver     CommandKind = 128 // no body: the batch's epoch takes over; must be the batch's only command
	CmdDetach       CommandKind = 129
	CmdRemoteEnded  CommandKind = 130
	CmdRemoteUpdate CommandKind = 131
	CmdNodePut      CommandKind = 132
	CmdNodeDrop     CommandKind = 133
	CmdBuckets      CommandKind = 134

	// A run of buckets moves in these steps, each under the epoch of the move: freeze at the
	// source, imports at the target, activate at the target, drop at the source. An abort is an
	// activate at the source and a drop at the target, both under a newer epoch. DESIGN.md says
	// when each is refused.
	// BucketsBody: active copies serve nothing from here on, and can be exported.
	CmdFreeze CommandKind = 135
	// ImportBody.
	CmdImport CommandKind = 136
	// BucketsBody: whole imported copies, frozen ones (an abort) or active ones (an abort before
	// the freeze) are active.
	CmdActivate CommandKind = 137
	// BucketsBody: copies that moved away, or whose import was given up, go; the epoch stays.
	CmdDropBuckets CommandKind = 138

	// The leader gives its leadership to another one (body TransferBegins), or keeps it after all
	// (TransferCancelled). The detaches of the sessions without a recent message come before it.
	CmdTransfer CommandKind = 139
)

// Bodies of a CmdTransfer.
var (
	TransferBegins    = []byte{1}
	TransferCancelled = []byte{0}
)

// Header of a batch.
type Header struct {
	Format  uint8
	Epoch   uint64 // leader epoch: raft term << 16 | repeated take-over counter
	Seq     uint64 // number of the batch within the epoch, from 1
	LogTime uint64 // ms, the leader's stamp
	Wall    uint64 // ms since 1970, for display only
}

// Command is one entry of a batch as it is built or read. Body is not kept by the builder and
// aliases the entry when read.
//
// Node and Epoch are stamped by the server from what the connection has proved (an attach, a
// verified ticket): they are the session's node and the attach epoch the client acts under. Sender
// is how the server names who sent the command: the remote address with CmdSessionStart and
// CmdSessionAttach; the user that the connection has proved to be with CmdProcessJoin, which the
// others see as the member's identity, and with CmdForceRelease, for the owners to know. With a
// request on a semaphore it is the session's description, which the server adds now and then for
// shards that are not the session's home, or empty.
type Command struct {
	Kind   CommandKind
	Node   uint64
	Epoch  uint64
	Sender string
	Body   []byte
}

// DetachBody: these sessions' connection ended or fell silent. A session whose attach epoch is not
// the one given stays as it is.
type DetachBody struct {
	Sessions []DetachItem

	// Stood is for how long the leader stood still, in ms, and StoodAt until when by its log time. 0: it
	// did not since it said so last.
	Stood, StoodAt uint64
}

// DetachItem is one of them. LastContact is in the leader's log time.
type DetachItem struct {
	Session     uint64
	Epoch       uint64
	LastContact uint64
	Link        protocol.Link
}

// RemoteEndedBody: the homes of these sessions said that they are gone.
type RemoteEndedBody struct {
	Sessions []RemoteEnd
}

// RemoteEnd is one of them.
type RemoteEnd struct {
	Session uint64
	Ending  protocol.Ending
}

// RemoteUpdateBody: the home of a remote session said that it lives, under this attach epoch.
type RemoteUpdateBody struct {
	Session     uint64
	Epoch       uint64
	Description string
	Detached    bool // at its home
}

// NodePutBody makes a coordination node known to the shard, or changes its config. A lower or equal
// revision than the known one changes nothing.
type NodePutBody struct {
	Node     uint64
	Revision uint64
	Config   protocol.NodeConfig // effective, all fields
	// TokenFloor is what every order id of the node is above: those of deleted nodes are not, so that
	// the fencing tokens of a name at a path never go back. At most maxTokenFloor.
	TokenFloor uint64
}

// NodeDropBody ends the node's sessions, drops its semaphores, and refuses the node id for good.
type NodeDropBody struct {
	Node uint64
}

// BucketsBody names a run of buckets and an epoch. With CmdBuckets it activates those that this
// shard never knew, empty, as the cluster's bootstrap does; buckets that are known, or were once,
// stay as they are. With CmdFreeze, CmdActivate and CmdDropBuckets it is a step of a move.
//
// The answer to a step is OK when it was done, now or earlier; ABORTED when it is to be sent again,
// because work is left over that the step must wait for; PRECONDITION_FAILED when it never can be
// done: its epoch is outdated, or the copies are in another state.
type BucketsBody struct {
	Tier  uint8
	Total uint32 // buckets of the tier
	First uint32
	Count uint32
	Epoch uint64 // of the buckets' new copies; 0 is 1 with CmdBuckets, and refused with the others
}

// ImportBody is a chunk of a move's export, as [Buckets.Export] gave it. The run and the epoch are
// those of the move. Chunks are applied in order, each once: one that was applied already is OK
// again, one that does not follow is ABORTED, and [Buckets.Imported] says where to go on.
type ImportBody struct {
	BucketsBody
	Chunk []byte
}

// addition is a later format version's addition to a command: the whole command, fields
// at the end of its body or of a part of the body, or values of an enumeration or a set of flags.
type addition struct {
	format uint8
	// how much of the body the format before has, for [protocol.CutFields]; nil: nothing, the command
	// is new
	path []int

	// value reports whether a body has a value that the format before refuses; nil: the addition is
	// not one of values.
	value func(body []byte) bool
}

// additions lists them for each kind, by rising format. Kinds without a line are of format 1.
var additions = [256][]addition{}

// has reports whether a command uses the addition.
func (a *addition) has(body []byte) bool {
	switch {
	case a.value != nil:
		return a.value(body)
	case a.path == nil:
		return true
	}
	_, found := protocol.CutFields(body, a.path...)
	return found
}

// NeedsFormat returns the lowest format version that has the command, all fields of its body and
// their values.
func NeedsFormat(kind CommandKind, body []byte) uint8 {
	need := uint8(firstFormat)
	for _, a := range additions[kind] {
		if a.has(body) {
			need = a.format
		}
	}
	return need
}

// limitTo leaves of a command what a format version has, as a replica does whose binary knows no
// later one: it passes over fields, and refuses values. It returns false if the format lacks the
// command or a value.
func (c *rawCommand) limitTo(format uint8) bool {
	for _, a := range additions[c.kind] {
		switch {
		case a.format <= format:
		case a.value != nil || a.path == nil:
			if a.has(c.body) {
				return false
			}
		default:
			c.body, _ = protocol.CutFields(c.body, a.path...)
		}
	}
	return true
}
