package shard

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Sentences of replies and events. They say what to do, and hold no secrets: a session of another
// node gets the words of an unknown one.
const (
	textMalformed  = "command cannot be read; send it as the protocol describes it"
	textUnknown    = "command is not known in this format version; upgrade the cluster first"
	textWrongShard = "this shard does not serve the bucket; fetch the map and send it to the shard that does"
	textOtherTier  = "buckets belong to another tier, or the tier has another number of buckets; " +
		"a shard serves one tier, whose buckets are fixed"
	textNoNode       = "coordination node is not known; create it first, or resolve its path again"
	textNodeDropped  = protocol.NodeDropped
	textSessionEnded = "session has ended or never was; start a new one"
	textCreateEnded  = "session made with this create id has ended; start a new one with a new create id"
	textTakenOver    = "session was attached elsewhere with a higher epoch; attach it again with one that is higher still"
	textOtherHolder  = "another client attached this session with the same epoch first; " +
		"a saved session can be restored once: restore what that client saved"
	textNotAttached  = "session is not attached with this epoch; attach it first"
	textWrongKey     = "session key is wrong; give the key the session was started with"
	textExpired      = "session was not heard of for its timeout"
	textStopped      = "session was stopped by its client"
	textNodeEnd      = "its coordination node was deleted"
	textForced       = protocol.DeletedByForce
	textReplaced     = "a newer acquire of the same session took this one's place"
	textReleased     = "a release of the same session ended the wait"
	textWaitersLimit = "semaphore has as many waiters as the limit of 1048576 waiters per semaphore allows; retry later"
	textHeldLimit    = "session owns or waits for as many semaphores as the limit of 1048576 semaphores " +
		"per session and shard allows; release some"
	textAnswersLimit = "session has as many remembered answers as the limit of 16384 answers " +
		"per session and shard allows; raise low, then retry"
	textAnswersQuota = "session has 64 remembered answers or more, and its node as many bytes as its quota max_bytes allows; " +
		"raise low, then retry"
	textAnswered     = "request number was answered already, and its answer is forgotten; number requests upwards"
	textNumberReused = "request number belongs to a request of another kind; give each request its own"
	textStepRefused  = "step of a move has an outdated epoch, or the copies here are not what it needs; " +
		"look at the map, and take the move's next step"
	textBacklog          = "work of the past is left over in this shard, which a freeze waits for; send it again"
	textDropping         = "an older copy of the buckets is still being removed; send it again"
	textImportPartial    = "import of the buckets is not complete; send the chunks that are missing"
	textImportOrder      = "chunk does not follow the one that was imported last; ask where the import stands, and go on there"
	textImportNode       = "chunk belongs to a coordination node that is not known here yet; make the node known, then send it again"
	textNotFrozen        = "buckets are not frozen here for this move; freeze them first"
	textExportCursor     = "cursor was not made by an export of these buckets; start again without one"
	textMemberNoMore     = "session became a member by this request and is one no more; join again with a new one"
	textMembershipsLimit = "session is a member of as many processes as the limit of 10000 processes " +
		"per session and shard allows; leave some"
	textNoTrack     = "there is no such rollout"
	textTrackExists = "track exists already; alter it instead"
	textTrackInUse  = "track has instances; stop them first, or delete it with force"
	textTracksLimit = "session has instances in as many tracks as the limit of 10000 tracks " +
		"per session and shard allows; unregister some"
	textNoLimit     = "there is no such rate limit"
	textLimitsLimit = "session takes part in as many rate limits as the limit of 10000 rate limits " +
		"per session and shard allows; leave some"
	textNotMember     = "session is not a member of the process"
	textNoProcess     = "process does not exist; the first join makes it"
	textNoSemaphore   = "semaphore does not exist"
	textAcquiredSince = "what this request acquired was given back or taken away since; acquire again"
)

// outcome is the result of a request in one byte, as it is remembered. Numbers are in snapshots: they
// are never reused.
type outcome uint8

const (
	outcomeOK           outcome = 0
	outcomeNoSemaphore  outcome = 1
	outcomeExists       outcome = 2
	outcomeIsEphemeral  outcome = 3
	outcomeIsPersistent outcome = 4
	outcomeOverLimit    outcome = 5
	outcomeWantsMore    outcome = 6
	outcomeOtherVersion outcome = 7
	outcomeInUse        outcome = 8
	outcomeQuota        outcome = 9
	outcomeAborted      outcome = 10 // a waiter was replaced, withdrawn or forced out
	outcomeWaitersLimit outcome = 11
	outcomeHeldLimit    outcome = 12
	outcomeGivenBack    outcome = 13 // answered instead of outcomeOK when what was acquired is held no more; not stored
	outcomeUpdateFixed  outcome = 14
	outcomeWaiterMore   outcome = 15
	outcomeBytesQuota   outcome = 26
	outcomeWaitersQuota outcome = 27

	outcomeNoSlots      outcome = 40
	outcomeFewSlots     outcome = 41
	outcomeOtherSlots   outcome = 42
	outcomeLanesLimit   outcome = 43
	outcomeOptions      outcome = 44
	outcomeSlotsInUse   outcome = 45
	outcomeLongQueue    outcome = 46
	outcomeNoSlot       outcome = 47
	outcomeSlotsNamed   outcome = 48
	outcomeLimitTooHigh outcome = 49
	outcomeBound        outcome = 50
	outcomeLongHold     outcome = 51
	outcomeNoExtension  outcome = 52

	outcomeNotOwner  outcome = 53
	outcomeMustYield outcome = 54
	outcomeManyUnits outcome = 55

	outcomePriority outcome = 56

	outcomes = 57
)

// outcomeTable has an outcome's status, its refusal and its sentence. Those whose sentence has
// values in it are written by sentence.
var outcomeTable = [outcomes]struct {
	status  protocol.Status
	refusal protocol.Refusal
	text    string
}{
	outcomeOK:          {protocol.StatusOK, 0, ""},
	outcomeNoSemaphore: {protocol.StatusNotFound, protocol.RefusalNoSemaphore, textNoSemaphore},
	outcomeExists:      {protocol.StatusAlreadyExists, 0, "semaphore exists already; update or resize it instead"},
	outcomeIsEphemeral: {protocol.StatusPreconditionFailed, protocol.RefusalEphemeral,
		"semaphore is ephemeral: it lives while somebody owns or waits for it, and its limit is fixed"},
	outcomeIsPersistent: {protocol.StatusPreconditionFailed, protocol.RefusalPersistent,
		"semaphore is persistent; acquire it without the ephemeral flag"},
	outcomeOverLimit:    {protocol.StatusBadRequest, 0, ""},
	outcomeWantsMore:    {protocol.StatusBadRequest, 0, ""},
	outcomeOtherVersion: {protocol.StatusPreconditionFailed, protocol.RefusalOtherVersion, ""},
	outcomeInUse: {protocol.StatusPreconditionFailed, 0,
		"semaphore has owners or waiters; wait until they are gone, or delete it with force"},
	outcomeQuota: {protocol.StatusPreconditionFailed, 0, ""},
	outcomeAborted: {protocol.StatusAborted, 0,
		"another request of the session or an operator ended this acquire; acquire again"},
	outcomeWaitersLimit: {protocol.StatusOverloaded, 0, textWaitersLimit},
	outcomeHeldLimit:    {protocol.StatusOverloaded, 0, textHeldLimit},
	outcomeGivenBack:    {protocol.StatusAborted, 0, textAcquiredSince},
	outcomeUpdateFixed: {protocol.StatusPreconditionFailed, protocol.RefusalEphemeral,
		"semaphore is ephemeral: its limit is fixed"},
	outcomeBytesQuota:   {protocol.StatusPreconditionFailed, 0, ""},
	outcomeWaitersQuota: {protocol.StatusOverloaded, 0, ""},
	outcomeWaiterMore:   {protocol.StatusBadRequest, 0, ""},
	outcomeNoSlots: {protocol.StatusPreconditionFailed, 0,
		"semaphore has no slots; acquire it without labels and names, or alter it"},
	outcomeFewSlots: {protocol.StatusBadRequest, 0,
		"fewer slots than the count have these labels or names; ask for less, or for others"},
	outcomeOtherSlots: {protocol.StatusBadRequest, 0,
		"session owns slots that these labels or names leave out, or lacks one that is named; release first"},
	outcomeLanesLimit: {protocol.StatusOverloaded, 0,
		"semaphore has waiters of as many keys, levels and selectors as the limit of 1024 lanes allows; retry later"},
	outcomeOptions: {protocol.StatusBadRequest, 0,
		"options would not fit together: aging belongs to the policy priority, weights to fair with a limit of " +
			"at most 1048576, extend to a longest hold, preempt lower to priority, grace and min_hold to preempt, which needs " +
			"a limit of at most 4096, and a semaphore has at most 1024 slots, as many as its limit"},
	outcomeSlotsInUse: {protocol.StatusPreconditionFailed, 0,
		"semaphore has owners or waiters, so slots cannot be added or removed; wait until they are gone"},
	outcomeLongQueue: {protocol.StatusPreconditionFailed, 0,
		"semaphore has more than 10000 waiters, too many to order again; alter it when there are fewer"},
	outcomeNoSlot: {protocol.StatusNotFound, 0, "semaphore has no slot of a name that is given; describe it"},
	outcomeSlotsNamed: {protocol.StatusPreconditionFailed, 0,
		"limit is the number of the slots, which have names; alter their list instead"},
	outcomeLimitTooHigh: {protocol.StatusPreconditionFailed, 0,
		"limit is above what the semaphore's options allow: 1048576 under the policy fair, 4096 where owners may be " +
			"preempted, 1024 with slots"},
	outcomeNotOwner: {protocol.StatusBadRequest, 0,
		"session does not own units, so it knows of no preemption; leave known out"},
	outcomeMustYield: {protocol.StatusPreconditionFailed, 0,
		"a waiter preempts the hold, so it gets no more time; release, and acquire again"},
	outcomeManyUnits: {protocol.StatusPreconditionFailed, 0,
		"more than 4096 units are held, too many for owners to be preempted; alter the semaphore when there are fewer"},
	outcomePriority: {protocol.StatusBadRequest, 0, ""},
	outcomeBound: {protocol.StatusPreconditionFailed, protocol.RefusalBound,
		"hold would end by itself at a bound, which this client does not know; use a newer one, or alter the semaphore"},
	outcomeLongHold: {protocol.StatusBadRequest, 0,
		"hold is longer than the longest of the semaphore; ask for less"},
	outcomeNoExtension: {protocol.StatusPreconditionFailed, 0,
		"semaphore does not allow more time than its longest hold; alter it with extend, or release and acquire again"},
}

// Outcomes of requests on hosted objects are OK, or a refusal, which has its status, or else a
// status.
const (
	outcomeRefusal outcome = 0x80 // plus the protocol.Refusal
	outcomeStatus  outcome = 0xc0 // plus the protocol.Status
)

func hostedOutcome(status protocol.Status, refusal protocol.Refusal) outcome {
	if refusal != 0 {
		return outcomeRefusal + outcome(refusal)
	}
	return outcomeStatus + outcome(status)
}

// status is the status of an outcome, and which of its refusals it is.
func (o outcome) status() (protocol.Status, protocol.Refusal) {
	switch {
	case o >= outcomeStatus:
		return protocol.Status(o - outcomeStatus), 0
	case o >= outcomeRefusal:
		refusal := protocol.Refusal(o - outcomeRefusal)
		return refusal.Status(), refusal
	}
	return outcomeTable[o].status, outcomeTable[o].refusal
}

// known reports whether this version may have remembered the outcome.
func (o outcome) known() bool {
	if o == outcomeOK || o >= outcomes && o <= outcomeRefusal {
		return o == outcomeOK
	}
	status, _ := o.status()
	return status != protocol.StatusOK && status < protocol.StatusInternal
}

// outcomeValue is the value of the state that a refusal is about. It is remembered with the answer,
// so that a repeat has the same.
func (q *request) outcomeValue(out outcome) uint64 {
	switch out {
	case outcomeOverLimit:
		return q.semaphore.limit
	case outcomeWantsMore, outcomeWaiterMore:
		return q.entry.count
	case outcomeOtherVersion:
		return q.semaphore.version
	case outcomeQuota:
		return q.node.config.MaxSemaphores
	case outcomeBytesQuota:
		return q.node.config.MaxBytes
	case outcomeWaitersQuota:
		return q.node.config.MaxWaiters
	case outcomePriority:
		return uint64(q.node.config.MaxPriority)
	}
	return 0
}

// sentence is what an answer says to people. The request's own values are those of the command that
// is being applied, which is the one that is answered, or its repeat.
func (b *batch) sentence(a *answer) string {
	switch a.outcome {
	case outcomeOverLimit:
		return "acquire count is " + units(b.acquire.Count) + ", above the semaphore's limit of " +
			units(a.value) + "; ask for less, or resize it"
	case outcomeWantsMore:
		return "session owns " + units(a.value) + " units and cannot raise that to " +
			units(b.acquire.Count) + "; release first, then acquire more"
	case outcomeWaiterMore:
		return "session waits for " + units(a.value) + " units and cannot raise that to " +
			units(b.acquire.Count) + "; release first, then acquire more"
	case outcomePriority:
		return "priority " + decimal(uint64(b.acquire.Options.Level())) + " is above the node's max_priority of " +
			decimal(a.value) + "; ask for less, or raise it"
	case outcomeOtherVersion:
		expected := b.update.Expected
		switch a.kind {
		case CmdResize:
			expected = b.resize.Expected
		case CmdDelete:
			expected = b.delete.Expected
		}
		return "semaphore has version " + decimal(a.value) + ", not " + decimal(expected) +
			" as expected; describe it and try again"
	case outcomeQuota:
		return textQuota(a.value)
	case outcomeBytesQuota:
		return textBytesQuota(a.value)
	case outcomeWaitersQuota:
		return "node has as many waiting acquires as its quota max_waiters of " +
			decimal(a.value) + " allows; retry later, or raise the quota"
	case outcomeNoSemaphore:
		if a.kind == CmdAcquire {
			return textNoSemaphore + "; create it first, or acquire it as ephemeral"
		}
	}
	if a.outcome >= outcomes { // of an object: the bytes are damaged
		return "request was refused when it came first"
	}
	return outcomeTable[a.outcome].text
}

func textQuota(most uint64) string {
	return "node has as many semaphores, processes, rollouts and rate limits as its quota max_semaphores of " +
		decimal(most) + " allows; delete some, or raise the quota"
}

func textBytesQuota(most uint64) string {
	return "node has as many bytes of names, data and sessions as its quota max_bytes of " +
		decimal(most) + " allows; delete some, or raise the quota"
}

func textSessionQuota(most uint64) string {
	return "node has as many sessions as its quota max_sessions of " +
		decimal(most) + " allows; end some, or raise the quota"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// units is a count or a limit, the largest of which is called max.
func units(n uint64) string {
	if n == protocol.Forever {
		return "max"
	}
	return decimal(n)
}
