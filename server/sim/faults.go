package sim

// Fault is something that may happen: a fault proper, or something a client or a mover does. Each seed switches some of them off.
type Fault uint8

// Faults is a set of them.
type Faults uint64

const (
	Elect            Fault = iota // another replica leads; the one before is not told
	Transfer                      // a leader hands over
	TransferFails                 // and leads on
	Pause                         // a replica stands still, its clock does not
	Isolate                       // a replica hears its clients, and nothing of other replicas
	Crash                         // a replica starts again from its last snapshot and the log
	CrashMidway                   // the same between two things that its leader wanted done
	Snapshot                      // a replica writes one
	Lag                           // a replica does not apply in this step
	LoseMessage                   // a message is lost
	DuplicateMessage              // it comes twice
	DelayMessage                  // it is late
	BarrierFails                  //
	NotProposed                   // a leader's command is refused by the engine
	LoseProposal                  // a proposal goes nowhere, undetermined
	DelayProposal                 // it enters the log up to seconds later, under any leader
	MoveBucket                    // a bucket moves
	AbortMove                     // a move is given up
	RepeatMoveStep                // a step of a move is sent again, at any later time
	ChangeGrace                   // the grace period changes
	Unreachable                   // a client reaches nobody
	ClientPause                   // a client stands still, its clock does not
	ClientDies                    // without a word
	ClientStops                   //
	ConnLost                      // a client's connection
	SameEpoch                     // an attach that was not answered is sent again under the same epoch
	Acquire                       //
	Exclusive                     // an acquire takes all there is
	Wait                          // an acquire queues
	Release                       //
	CancelWait                    // a waiter leaves the queue
	StaleMap                      // a client asks the shard that owned the bucket before
	Restore                       // a process takes over the session of one that died, by what that one saved
	RestoreTwice                  // two processes do, by the same saved state, or by an older one
	faultsCount
)

var faultNames = [faultsCount]string{
	"elect", "transfer", "transfer-fails", "pause", "apart", "crash", "crash-midway", "snapshot", "lag", "lose", "duplicate", "slow", "barrier-fails", "not-proposed", "lost", "late", "move",
	"abort", "step-again", "configure", "unreachable", "client-pause", "client-dies", "client-stops", "link-lost", "same-epoch", "acquire", "exclusive", "wait",
	"release", "withdraw", "old-map", "restore", "restore-twice",
}

func (f Fault) String() string { return faultNames[f] }
