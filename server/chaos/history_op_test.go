package chaos

import (
	"math"
	"time"
)

// The files history_*_test.go check what clients of a cluster saw. They compare calls (what was
// asked, what was answered and when) with models of a semaphore, a configuration and a coordination
// node. They start nothing and read no clock; clients record the calls.
//
// To check another kind of call, add its kind here and its effect to the model that it belongs to,
// and stories to history_stories_test.go, of which the model must refuse at least one.
//
// The operations of one name are linearizable; across names nothing is promised, and a session's
// end reaches each name at its own moment. A wait that ended without a report of its beginning may
// never have been in the queue: the answer may be the remembered one of a request that was sent
// again. The search is exponential in calls that overlap and in calls without an outcome, so a name
// is for some hundred calls. A client whose connection breaks repeats the drop of a node, and takes
// the drop for its own when the node is gone.

// callKind is what a call does. The kinds of one model share names; a name belongs to one model.
type callKind string

// Calls on semaphores.
const (
	callCreate   callKind = "create"
	callDelete   callKind = "delete"
	callResize   callKind = "resize"
	callAcquire  callKind = "acquire"
	callReduce   callKind = "lower"
	callRelease  callKind = "release"
	callDescribe callKind = "describe" // strict, with owners and waiters
	callEnded    callKind = "ended"    // the session's end here: Call is when it last lived for certain, Return when it was first seen gone
)

// Calls on configurations, which are the data of semaphores that nobody acquires.
const (
	callSet        callKind = "set"  // unless Guarded, whatever the version is
	callGet        callKind = "get"  // strict
	callRelaxedGet callKind = "peek" // relaxed
)

// Calls on coordination nodes.
const (
	callCreateNode callKind = "make-node"
	callDropNode   callKind = "drop-node"
)

// Not calls, but checked together with them.
const (
	callBelieved callKind = "believed" // a lease was relied on, at least from Call to Return
	callFenced   callKind = "fenced"   // a write with a token to a store that refuses lower ones; Seen is the highest before
)

// callResult is how a call came out.
type callResult string

const (
	resultOK          callResult = "ok"
	resultNotAcquired callResult = "not acquired"
	resultExists      callResult = "exists"
	resultNotFound    callResult = "not found"
	resultRefused     callResult = "refused" // a precondition did not hold, or a store refused a token
	resultUnknown     callResult = "unknown" // it may have taken effect, may do so yet, or never
)

// neverReturned is the Return of a call whose outcome is unknown.
const neverReturned = int64(math.MaxInt64)

// historyEntry is a session at a semaphore.
type historyEntry struct {
	Session uint64 `json:"s"`
	Count   uint64 `json:"n"`
	Order   uint64 `json:"o"` // its order id, which is its fencing token as an owner; 0: not known
}

// historyOp is a call of a client.
//
// Invariants: Call <= Return. Return is neverReturned exactly when Result is resultUnknown, except for callEnded. The
// calls of a lane do not overlap, except those whose outcome is unknown.
type historyOp struct {
	Kind    callKind   `json:"k"`
	Name    string     `json:"name"`
	Lane    int        `json:"lane"`             // the caller
	Process int        `json:"proc,omitempty"`   // the client it belongs to, for what is promised to a client
	Session uint64     `json:"s,omitempty"`      // the caller's session
	Call    int64      `json:"from"`             // ns of a clock that all callers share
	Return  int64      `json:"to"`               // on the same clock
	Result  callResult `json:"r,omitempty"`      // empty while the call is in progress
	Why     string     `json:"why,omitempty"`    // the error's text, for people
	Count   uint64     `json:"n,omitempty"`      // units that are asked for, or left
	Limit   uint64     `json:"limit,omitempty"`  // of Create and Resize
	Token   uint64     `json:"token,omitempty"`  // the order id granted, released, reduced, relied on or written with; of a node its id
	Queued  int64      `json:"queued,omitempty"` // Acquire: when the caller learned that it is in the queue; 0: it did not
	Order   uint64     `json:"order,omitempty"`  // Acquire: its order id, as reported then
	Seen    uint64     `json:"seen,omitempty"`   // Fenced: the highest token before it
	Version uint64     `json:"v,omitempty"`      // the version that was written or read
	Want    uint64     `json:"want,omitempty"`   // Set: the version that must be there; 0: none
	Data    string     `json:"data,omitempty"`

	Try       bool           `json:"try,omitempty"`       // Acquire: now or not at all
	Ephemeral bool           `json:"ephemeral,omitempty"` // Acquire: the semaphore exists as long as it has owners or waiters
	Guarded   bool           `json:"guarded,omitempty"`   // Set: Want counts
	Owners    []historyEntry `json:"owners,omitempty"`    // Describe, by order id
	Waiters   []historyEntry `json:"waiters,omitempty"`   // Describe, in queue order
}

// took is how long it took, 0 if that is not known.
func (o *historyOp) took() time.Duration {
	if o.Return == neverReturned {
		return 0
	}
	return time.Duration(o.Return - o.Call)
}
