package shard

import (
	"strconv"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Sentences of replies and events. They say what to do, and hold no secrets: a session of another
// node gets the words of an unknown one.
const (
	textMalformed        = "command cannot be read; send it as the protocol describes it"
	textUnknown          = "command is not known in this format version; upgrade the cluster first"
	textWrongShard       = "this shard does not serve the bucket; fetch the map and send it to the shard that does"
	textOtherTier        = "buckets belong to another tier, or the tier has another number of buckets; a shard serves one tier, whose buckets are fixed"
	textNoNode           = "coordination node is not known; create it first, or resolve its path again"
	textNodeDropped      = "coordination node was dropped; a node created under the same path is another one, with new sessions"
	textSessionEnded     = "session has ended or never was; start a new one"
	textCreateEnded      = "session made with this create id has ended; start a new one with a new create id"
	textTakenOver        = "session was attached elsewhere with a higher epoch; attach it again with one that is higher still"
	textOtherHolder      = "another client attached this session with the same epoch first; a saved session can be restored once: restore what that client saved"
	textNotAttached      = "session is not attached with this epoch; attach it first"
	textWrongKey         = "session key is wrong; give the key the session was started with"
	textExpired          = "session was not heard of for its timeout"
	textStopped          = "session was stopped by its client"
	textNodeEnd          = "node dropped"
	textForced           = "semaphore was deleted by force; create it again before the next acquire"
	textReplaced         = "a newer acquire of the same session took this one's place"
	textReleased         = "a release of the same session ended the wait"
	textWaitersLimit     = "semaphore has as many waiters as the limit of 1048576 waiters per semaphore allows; retry later"
	textHeldLimit        = "session owns or waits for as many semaphores as the limit of 1048576 semaphores per session and shard allows; release some"
	textAnswersLimit     = "session has as many remembered answers as the limit of 16384 answers per session and shard allows; raise low, then retry"
	textAnswersQuota     = "session has 64 remembered answers or more, and its node as many bytes as its quota max_bytes allows; raise low, then retry"
	textNotTerm          = "batch belongs to no leader that took over"
	textAnswered         = "request number was answered already, and its answer is forgotten; number requests upwards"
	textNumberReused     = "request number belongs to a request of another kind; give each request its own"
	textStepRefused      = "step of a move has an outdated epoch, or the copies here are not what it needs; look at the map, and take the move's next step"
	textBacklog          = "work of the past is left over in this shard, which a freeze waits for; send it again"
	textDropping         = "an older copy of the buckets is still being removed; send it again"
	textImportPartial    = "import of the buckets is not complete; send the chunks that are missing"
	textImportOrder      = "chunk does not follow the one that was imported last; ask where the import stands, and go on there"
	textImportNode       = "chunk belongs to a coordination node that is not known here yet; make the node known, then send it again"
	textNotFrozen        = "buckets are not frozen here for this move; freeze them first"
	textExportCursor     = "cursor was not made by an export of these buckets; start again without one"
	textMemberNoMore     = "session became a member by this request and is one no more; join again with a new one"
	textMembershipsLimit = "session is a member of as many processes as the limit of 10000 processes per session and shard allows; leave some"
	textNoTrack          = "track does not exist; create it first"
	textTrackExists      = "track exists already; alter it instead"
	textTrackInUse       = "track has instances; stop them first, or delete it with force"
	textTracksLimit      = "session has instances in as many tracks as the limit of 10000 tracks per session and shard allows; unregister some"
	textNotMember        = "session is not a member of the process"
	textNoProcess        = "process does not exist; the first join makes it"
	textNoSemaphore      = "semaphore does not exist"
	textAcquiredSince    = "what this request acquired was given back or taken away since; acquire again"
)

// outcome is the result of a semaphore request in one byte, as it is remembered. Numbers are in
// snapshots: they are never reused.
type outcome uint8

const (
	outOK              outcome = 0
	outNoSemaphore     outcome = 1
	outExists          outcome = 2
	outIsEphemeral     outcome = 3
	outIsPersistent    outcome = 4
	outOverLimit       outcome = 5
	outWantsMore       outcome = 6
	outOtherVersion    outcome = 7
	outInUse           outcome = 8
	outQuota           outcome = 9
	outAborted         outcome = 10 // a waiter was replaced, withdrawn or forced out
	outWaitersLimit    outcome = 11
	outHeldLimit       outcome = 12
	outGivenBack       outcome = 13 // answered instead of outOK when what was acquired is held no more; not stored
	outUpdateFixed     outcome = 14
	outWaiterMore      outcome = 15
	outNotMember       outcome = 16
	outMemberOther     outcome = 17
	outRoundOver       outcome = 18
	outRoundRefused    outcome = 19
	outProcessArgument outcome = 20
	outTrackNotFound   outcome = 21
	outTrackExists     outcome = 22
	outTrackFenced     outcome = 23
	outTrackRefused    outcome = 24
	outTrackArgument   outcome = 25
	outBytesQuota      outcome = 26
	outWaitersQuota    outcome = 27
	outcomes                   = 28
)

// outcomeTable has an outcome's status and sentence. Those whose sentence has values in it are
// written by sentence.
var outcomeTable = [outcomes]struct {
	status protocol.Status
	text   string
}{
	outOK:              {protocol.StatusOK, ""},
	outNoSemaphore:     {protocol.StatusNotFound, textNoSemaphore},
	outExists:          {protocol.StatusAlreadyExists, "semaphore exists already; update or resize it instead"},
	outIsEphemeral:     {protocol.StatusPreconditionFailed, "semaphore is ephemeral: it lives while somebody owns or waits for it, and its limit is fixed"},
	outIsPersistent:    {protocol.StatusPreconditionFailed, "semaphore is persistent; acquire it without the ephemeral flag"},
	outOverLimit:       {protocol.StatusBadRequest, ""},
	outWantsMore:       {protocol.StatusBadRequest, ""},
	outOtherVersion:    {protocol.StatusPreconditionFailed, ""},
	outInUse:           {protocol.StatusPreconditionFailed, "semaphore has owners or waiters; wait until they are gone, or delete it with force"},
	outQuota:           {protocol.StatusPreconditionFailed, ""},
	outAborted:         {protocol.StatusAborted, "another request of the session or an operator ended this acquire; acquire again"},
	outWaitersLimit:    {protocol.StatusOverloaded, textWaitersLimit},
	outHeldLimit:       {protocol.StatusOverloaded, textHeldLimit},
	outGivenBack:       {protocol.StatusAborted, textAcquiredSince},
	outUpdateFixed:     {protocol.StatusPreconditionFailed, "semaphore is ephemeral: its limit is fixed"},
	outNotMember:       {protocol.StatusNotFound, textNotMember},
	outMemberOther:     {protocol.StatusAlreadyExists, "session is a member already, with another key, data or weight; leave first"},
	outRoundOver:       {protocol.StatusAborted, "round is over for this member; wait for the next"},
	outRoundRefused:    {protocol.StatusPreconditionFailed, "round or quota did not allow the request when it came first; look at the process, and send a new one"},
	outProcessArgument: {protocol.StatusBadRequest, "arguments of the request were refused when it came first; mend them, and send a new one"},
	outTrackNotFound:   {protocol.StatusNotFound, "track, instance, location or version did not exist when the request came first; look at the track, and send a new one"},
	outTrackExists:     {protocol.StatusAlreadyExists, "track or instance was there when the request came first; look at the track, and send a new one"},
	outTrackFenced:     {protocol.StatusBadSession, "FENCED: a newer incarnation of this instance was registered; stop, or register again"},
	outTrackRefused:    {protocol.StatusPreconditionFailed, "track or quota did not allow the request when it came first; look at the track, and send a new one"},
	outTrackArgument:   {protocol.StatusBadRequest, "arguments of the request were refused when it came first; mend them, and send a new one"},
	outBytesQuota:      {protocol.StatusPreconditionFailed, ""},
	outWaitersQuota:    {protocol.StatusOverloaded, ""},
	outWaiterMore:      {protocol.StatusBadRequest, ""},
}

// outcomeValue is the value of the state that a refusal is about. It is remembered with the answer,
// so that a repeat has the same.
func (q *request) outcomeValue(out outcome) uint64 {
	switch out {
	case outOverLimit:
		return q.semaphore.limit
	case outWantsMore, outWaiterMore:
		return q.entry.count
	case outOtherVersion:
		return q.semaphore.version
	case outQuota:
		return q.node.config.MaxSemaphores
	case outBytesQuota:
		return q.node.config.MaxBytes
	case outWaitersQuota:
		return q.node.config.MaxWaiters
	}
	return 0
}

// sentence is what an answer says to people. The request's own values are those of the command that
// is being applied, which is the one that is answered, or its repeat.
func (m *Machine) sentence(a *answer) string {
	switch a.outcome {
	case outOverLimit:
		return "acquire count is " + units(m.batch.acquire.Count) + ", above the semaphore's limit of " + units(a.value) + "; ask for less, or resize it"
	case outWantsMore:
		return "session owns " + units(a.value) + " units and cannot raise that to " + units(m.batch.acquire.Count) + "; release first, then acquire more"
	case outWaiterMore:
		return "session waits for " + units(a.value) + " units and cannot raise that to " + units(m.batch.acquire.Count) + "; release first, then acquire more"
	case outOtherVersion:
		return "semaphore has version " + decimal(a.value) + ", not " + decimal(m.batch.update.Expected) + " as expected; describe it and try again"
	case outQuota:
		return textQuota(a.value)
	case outBytesQuota:
		return textBytesQuota(a.value)
	case outWaitersQuota:
		return "node has as many waiting acquires as its quota max_waiters of " + decimal(a.value) + " allows; retry later, or raise the quota"
	case outNoSemaphore:
		if a.kind == CmdAcquire {
			return textNoSemaphore + "; create it first, or acquire it as ephemeral"
		}
	}
	return outcomeTable[a.outcome].text
}

func textQuota(most uint64) string {
	return "node has as many semaphores, processes and rollouts as its quota max_semaphores of " + decimal(most) + " allows; delete some, or raise the quota"
}

func textBytesQuota(most uint64) string {
	return "node has as many bytes of names, data and sessions as its quota max_bytes of " + decimal(most) + " allows; delete some, or raise the quota"
}

func textSessionQuota(most uint64) string {
	return "node has as many sessions as its quota max_sessions of " + decimal(most) + " allows; end some, or raise the quota"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// units is a count or a limit, the largest of which is called max.
func units(n uint64) string {
	if n == protocol.Forever {
		return "max"
	}
	return decimal(n)
}
