package sim

// Fault is something that may happen: a fault proper, or an action of a client or of a bucket move.
// Each seed switches some of them off.
type Fault uint8

// Faults is a set of them.
type Faults uint64

const (
	Elect            Fault = iota // another replica leads; its predecessor is not notified
	Transfer                      // a leader transfers
	TransferFails                 // and leads on
	Pause                         // a replica pauses, its clock runs on
	Isolate                       // a replica receives from clients, but not from other replicas
	Crash                         // a replica restarts from its last snapshot and the log
	CrashMidway                   // the same between two actions of its leader
	Snapshot                      // a replica writes a snapshot
	Lag                           // a replica does not apply in this step
	LoseMessage                   // a message between instances is lost
	DuplicateMessage              // and is delivered twice
	DelayMessage                  // a message is late
	BarrierFails                  //
	NotProposed                   // the engine refuses a leader's command
	LoseProposal                  // a proposal is lost; its outcome is unknown
	DelayProposal                 // a proposal enters the log up to seconds later, under any leader
	MoveBucket                    // a bucket moves
	AbortMove                     // a move is aborted
	RepeatMoveStep                // a step of a move is repeated, at any later time
	ChangeGrace                   // the grace period changes
	Unreachable                   // a client reaches no replica
	ClientPause                   // a client pauses, its clock runs on
	ClientDies                    // without closing its connection
	ClientStops                   //
	ConnLost                      // a client's connection breaks
	ConnHangs                     // nothing comes over a connection for a while
	WallJumps                     // the time of day of a client jumps ahead
	Acquire                       //
	Exclusive                     // an acquire takes all units
	Wait                          // an acquire queues
	Release                       //
	CancelWait                    // a call is given up
	CancelStart                   // the start of a session is given up
	Reduce                        // a holder gives some of its units back
	Watch                         // a client watches
	Unwatch                       // a watch is closed, and another one begun
	CutStream                     // an instance ends a stream
	RestartStream                 // or begins it again
	MapLate                       // an instance learns a map late
	Restore                       // a process restores the sessions of one that died from its saved state
	RestoreTwice                  // two processes do so, from the same saved state or an older one
	RemoveShard                   // a shard is emptied and removed, and another one is made
	QueueOptions                  // a semaphore has options
	Demand                        // an acquire has a level and a key
	Alter                         // the options of a semaphore change
	LeaseTransfer                 // a release names a session
	Yield                         // a preempted owner gives its units back
	Extend                        // an owner asks for more time
	LosePreempted                 // an owner does not get the event that it is preempted, or not any more
	LatePreempted                 // or gets it again later, over another connection
	BesidePreempted               // at such a time its bucket moves, or the leader changes
	PlainClient                   // a client knows nothing of queues
	ShortPause                    // a client pauses for about its sessions' timeout, with answers in its sockets when it goes on
	ClockJumps                    // the clock of a client jumps ahead
	LosePackets                   // packets of a connection are lost for a while, and sent again late
	LateCaller                    // a caller runs late after it was woken
	faultsCount
)

var faultNames = [faultsCount]string{
	"elect", "transfer", "transfer-fails", "pause", "isolate", "crash", "crash-midway", "snapshot", "lag",
	"lose-message", "duplicate-message", "delay-message", "barrier-fails", "not-proposed", "lose-proposal", "delay-proposal", "move-bucket",
	"abort-move", "repeat-move-step", "change-grace", "unreachable", "client-pause", "client-dies",
	"client-stops", "conn-lost", "conn-hangs", "wall-jumps", "acquire", "exclusive", "wait",
	"release", "cancel-wait", "cancel-start", "reduce", "watch", "unwatch", "cut-stream", "restart-stream",
	"map-late", "restore", "restore-twice", "remove-shard", "options", "demand", "alter", "transfer", "yield", "extend",
	"lose-preempted", "late-preempted", "beside-preempted", "plain-client", "short-pause", "clock-jumps",
	"lose-packets", "late-caller",
}

func (f Fault) String() string { return faultNames[f] }
