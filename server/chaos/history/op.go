package history

import (
	"math"
	"time"
)

// Kind is what a call does. The kinds of one model share names; a name belongs to one model.
type Kind string

// Calls on semaphores.
const (
	Create   Kind = "create"
	Delete   Kind = "delete"
	Resize   Kind = "resize"
	Acquire  Kind = "acquire"
	Reduce   Kind = "lower"
	Release  Kind = "release"
	Describe Kind = "describe" // strict, with owners and waiters
	Ended    Kind = "ended"    // the session's end here: Call is when it last lived for certain, Return when it was first seen gone
)

// Calls on configurations, which are the data of semaphores that nobody acquires.
const (
	Set        Kind = "set"  // unless Guarded, whatever the version is
	Get        Kind = "get"  // strict
	RelaxedGet Kind = "peek" // relaxed
)

// Calls on coordination nodes.
const (
	CreateNode Kind = "make-node"
	DropNode   Kind = "drop-node"
)

// Not calls, but checked together with them.
const (
	Believed Kind = "believed" // a lease was relied on, at least from Call to Return
	Fenced   Kind = "fenced"   // a write with a token to a store that refuses lower ones; Seen is the highest before
)

// Result is how a call came out.
type Result string

const (
	OK          Result = "ok"
	NotAcquired Result = "not acquired"
	Exists      Result = "exists"
	NotFound    Result = "not found"
	Refused     Result = "refused" // a precondition did not hold, or a store refused a token
	Unknown     Result = "unknown" // it may have taken effect, may do so yet, or never
)

// Never is the Return of a call whose outcome is unknown.
const Never = int64(math.MaxInt64)

// Entry is a session at a semaphore.
type Entry struct {
	Session uint64 `json:"s"`
	Count   uint64 `json:"n"`
	Order   uint64 `json:"o"` // its order id, which is its fencing token as an owner; 0: not known
}

// Op is a call of a client.
//
// Invariants: Call <= Return. Return is Never exactly when Result is Unknown (but for Ended). The
// calls of a lane do not overlap, except those whose outcome is unknown.
type Op struct {
	Kind    Kind   `json:"k"`
	Name    string `json:"name"`
	Lane    int    `json:"lane"`             // the caller
	Process int    `json:"proc,omitempty"`   // the client it belongs to, for what is promised to a client
	Session uint64 `json:"s,omitempty"`      // the caller's session
	Call    int64  `json:"from"`             // ns of a clock that all callers share
	Return  int64  `json:"to"`               // on the same clock
	Result  Result `json:"r,omitempty"`      // empty while the call is in progress
	Why     string `json:"why,omitempty"`    // the error's text, for people
	Count   uint64 `json:"n,omitempty"`      // units that are asked for, or left
	Limit   uint64 `json:"limit,omitempty"`  // of Create and Resize
	Token   uint64 `json:"token,omitempty"`  // the order id granted, released, reduced, relied on or written with; of a node its id
	Queued  int64  `json:"queued,omitempty"` // Acquire: when the caller learned that it is in the queue; 0: it did not
	Order   uint64 `json:"order,omitempty"`  // Acquire: its order id, as reported then
	Seen    uint64 `json:"seen,omitempty"`   // Fenced: the highest token before it
	Version uint64 `json:"v,omitempty"`      // the version that was written or read
	Want    uint64 `json:"want,omitempty"`   // Set: the version that must be there; 0: none
	Data    string `json:"data,omitempty"`

	Try       bool    `json:"try,omitempty"`       // Acquire: now or not at all
	Ephemeral bool    `json:"ephemeral,omitempty"` // Acquire: the semaphore exists as long as it has owners or waiters
	Guarded   bool    `json:"guarded,omitempty"`   // Set: Want counts
	Owners    []Entry `json:"owners,omitempty"`    // Describe, by order id
	Waiters   []Entry `json:"waiters,omitempty"`   // Describe, in queue order
}

// took is how long it took, 0 if that is not known.
func (o *Op) took() time.Duration {
	if o.Return == Never {
		return 0
	}
	return time.Duration(o.Return - o.Call)
}
