package remotesession

// Fault is a rule that is left out.
type Fault uint8

const (
	None              Fault = iota
	ImportNotAsked          // sessions that came with a bucket count as subscribed
	StaleAnswer             // an answer counts for any record, not only for the one that asked
	NoImportEpoch           // an import is not compared with the epoch of what is there
	HomePushes              // shards do not ask: the home notifies the shard that its map names
	NonOwnerAnswers         // any shard that is asked looks into its table, and unknown means gone
	EarlyBarrier            // a barrier that began before the question arrived is good enough
	LookupFirst             // the session is looked up before the subscription is registered
	NoHomeResub             // nothing notices a new leader of the home
	NoRemoteResub           // a new leader takes its remote sessions for subscribed
	GoneNotFinal            // an "alive" takes back a "gone", and the id is not refused afterwards
	AttachNotSent           // answers and notices carry no attach epoch
	FrozenExpires           // a deadline fires in a frozen home
	FrozenGrants            // a frozen semaphore bucket grants
	NoEpochResub            // a leader subscribes again when the home's owner changes, not when its epoch does
	ReleaseOnce             // a release is proposed once
	Unsubscribe             // a remote session that holds nothing any more is unsubscribed
	NoActivateRelease       // an activated bucket keeps what an ACTIVE home here does not know
	NoDepart                // holdings whose home leaves the shard do not become a remote session's
	AbortNoEpoch            // an abort makes no new epoch, and the next move uses the aborted one's
	EarlyTicket             // a ticket is issued before the session's start is applied
	NoActivateEpoch         // an activation is not compared with the epoch of what is there
	PartialActivates        // an import that is not complete counts as one, and is activated
	numFaults
)

var faultNames = [numFaults]string{
	"none", "import-not-asked", "stale-answer", "no-import-epoch", "home-pushes", "non-owner-answers",
	"early-barrier", "lookup-first", "no-home-resub",
	"no-remote-resub", "gone-not-final", "attach-not-sent", "frozen-expires", "frozen-grants", "no-epoch-resub",
	"release-once", "unsubscribe",
	"no-activate-release", "no-depart", "abort-no-epoch", "early-ticket", "no-activate-epoch", "partial-activates",
}

func (f Fault) String() string { return faultNames[f] }
