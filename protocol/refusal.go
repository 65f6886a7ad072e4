package protocol

import "strconv"

// Refusal distinguishes refusals with one status where a program may need to. Numbers are stable:
// they are never reused or renumbered. A client takes one that it does not know for RefusalNone.
type Refusal uint8

const (
	RefusalNone              Refusal = 0  // the status says it all
	RefusalNoNode            Refusal = 1  // the coordination node does not exist, or was dropped
	RefusalNoSemaphore       Refusal = 2  //
	RefusalNoProcess         Refusal = 3  //
	RefusalNotMember         Refusal = 4  // the session is not a member of the process
	RefusalNoTrack           Refusal = 5  //
	RefusalUnknownLocation   Refusal = 6  // the track's config has no such location
	RefusalUnknownVersion    Refusal = 7  // the track keeps no such version
	RefusalNoLimit           Refusal = 8  // the rate limit, or the resource of it, does not exist
	RefusalEphemeral         Refusal = 9  // the semaphore is ephemeral
	RefusalPersistent        Refusal = 10 // the semaphore is persistent
	RefusalBound             Refusal = 11 // the hold would have a bound: ask again with KnowsBounds, under a new number
	RefusalOtherVersion      Refusal = 12 // the object has another version or revision than the request names
	RefusalAlreadyRegistered Refusal = 13 // another live session has the id of the instance
	RefusalFenced            Refusal = 14 // another registration has the id; the session is not refused
	RefusalStaleReport       Refusal = 15 // a later report is known
	RefusalNotInHistory      Refusal = 16 // the location's history has no such version to go back to
	RefusalHasChildren       Refusal = 17 // the resource has children

	refusals = 18
)

// refusalTable has each refusal's status and its name in documents.
var refusalTable = [refusals]struct {
	status Status
	name   string
}{
	RefusalNone:              {StatusOK, "NONE"},
	RefusalNoNode:            {StatusNotFound, "NO_NODE"},
	RefusalNoSemaphore:       {StatusNotFound, "NO_SEMAPHORE"},
	RefusalNoProcess:         {StatusNotFound, "NO_PROCESS"},
	RefusalNotMember:         {StatusNotFound, "NOT_MEMBER"},
	RefusalNoTrack:           {StatusNotFound, "NO_TRACK"},
	RefusalUnknownLocation:   {StatusNotFound, "UNKNOWN_LOCATION"},
	RefusalUnknownVersion:    {StatusNotFound, "UNKNOWN_VERSION"},
	RefusalNoLimit:           {StatusNotFound, "NO_LIMIT"},
	RefusalEphemeral:         {StatusPreconditionFailed, "EPHEMERAL"},
	RefusalPersistent:        {StatusPreconditionFailed, "PERSISTENT"},
	RefusalBound:             {StatusPreconditionFailed, "BOUND"},
	RefusalOtherVersion:      {StatusPreconditionFailed, "OTHER_VERSION"},
	RefusalAlreadyRegistered: {StatusAlreadyExists, "ALREADY_REGISTERED"},
	RefusalFenced:            {StatusBadSession, "FENCED"},
	RefusalStaleReport:       {StatusPreconditionFailed, "STALE_REPORT"},
	RefusalNotInHistory:      {StatusPreconditionFailed, "NOT_IN_HISTORY"},
	RefusalHasChildren:       {StatusPreconditionFailed, "HAS_CHILDREN"},
}

// Status is the status of answers with this refusal.
func (r Refusal) Status() Status {
	if r < refusals {
		return refusalTable[r].status
	}
	return StatusInternal
}

// String is the refusal's name as documents write it, such as NO_NODE.
func (r Refusal) String() string {
	if r < refusals {
		return refusalTable[r].name
	}
	return "REFUSAL_" + strconv.Itoa(int(r))
}

// Refuse makes the Error of a refusal, with its status. The message is a lower-case sentence that
// names the remedy.
func Refuse(r Refusal, format string, args ...any) *Error {
	e := Errorf(r.Status(), format, args...)
	e.Refusal = r
	return e
}
