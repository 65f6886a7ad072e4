package protocol

import "strconv"

// Status is the outcome of a request. Numbers are stable: they are never reused or renumbered.
type Status uint8

const (
	StatusOK                 Status = 0
	StatusBadRequest         Status = 1  // an argument is outside its allowed range; nothing was applied
	StatusNotFound           Status = 2  // no such node or semaphore
	StatusAlreadyExists      Status = 3  //
	StatusPreconditionFailed Status = 4  // the object is in a state that forbids it
	StatusBadSession         Status = 5  // attached elsewhere, wrong key, or not attached on this connection
	StatusSessionExpired     Status = 6  // the session is gone for good
	StatusAborted            Status = 7  // ended by another request or an operator
	StatusOverloaded         Status = 8  // a limit, named in the message, is reached; retry later
	StatusUnavailable        Status = 9  // no leader here now; nothing was applied; retry
	StatusWrongShard         Status = 10 // this instance or shard does not serve the bucket; fetch the map, retry
	StatusUnsupported        Status = 11 // unknown message or protocol version
	StatusUnauthenticated    Status = 12 // credentials missing or wrong
	StatusForbidden          Status = 13 // rights missing
	StatusInternal           Status = 14 // a defect of the server; the message says more
)

// Retryable reports whether the same request, with the same sequence number, may be sent again as
// it is.
func (s Status) Retryable() bool {
	return s == StatusOverloaded || s == StatusUnavailable || s == StatusWrongShard
}

// statusNames are the names used in texts and logs, by number.
var statusNames = [...]struct{ name, words string }{
	StatusOK:                 {"OK", "ok"},
	StatusBadRequest:         {"BAD_REQUEST", "bad request"},
	StatusNotFound:           {"NOT_FOUND", "not found"},
	StatusAlreadyExists:      {"ALREADY_EXISTS", "already exists"},
	StatusPreconditionFailed: {"PRECONDITION_FAILED", "precondition failed"},
	StatusBadSession:         {"BAD_SESSION", "bad session"},
	StatusSessionExpired:     {"SESSION_EXPIRED", "session expired"},
	StatusAborted:            {"ABORTED", "aborted"},
	StatusOverloaded:         {"OVERLOADED", "overloaded"},
	StatusUnavailable:        {"UNAVAILABLE", "unavailable"},
	StatusWrongShard:         {"WRONG_SHARD", "wrong shard"},
	StatusUnsupported:        {"UNSUPPORTED", "unsupported"},
	StatusUnauthenticated:    {"UNAUTHENTICATED", "unauthenticated"},
	StatusForbidden:          {"FORBIDDEN", "forbidden"},
	StatusInternal:           {"INTERNAL", "internal error"},
}

// String is the status's name as documents write it, such as BAD_REQUEST.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s].name
	}
	return "STATUS_" + strconv.Itoa(int(s))
}

// Error makes a status an error that errors.Is finds inside an *Error: the name in lower-case
// words.
func (s Status) Error() string {
	if int(s) < len(statusNames) {
		return statusNames[s].words
	}
	return "status " + strconv.Itoa(int(s))
}
