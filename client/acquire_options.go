package client

import (
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Max is the largest limit and count: 2^64-1.
const Max uint64 = protocol.Forever

// AcquireOption is an option of Acquire, TryAcquire and the recipes.
type AcquireOption func(*acquireOptions)

type acquireOptions struct {
	driver.AcquireOptions
	limit uint64 // to create with, 0: do not
	exact bool   // no other limit will do
	given given
	err   error // of the first option that is out of its range, or that the call does not take

	whileHolding time.Duration // of AcquireAll; 0: not given
}

// Count is how many units are acquired, 1 up to the semaphore's limit; default 1. Max on an
// ephemeral semaphore acquires it whole.
func Count(n uint64) AcquireOption {
	return func(o *acquireOptions) { o.given, o.Count = o.given|givenAmount, n }
}

// Data is shown beside the entry by Describe and watches; at most 1 MiB. Default: none.
func Data[T ~string | ~[]byte](data T) AcquireOption {
	own := append([]byte(nil), data...) // a change of the lease sends it again later
	return func(o *acquireOptions) { o.given, o.Data = o.given|givenData, own }
}

// Wait bounds the wait at the server, 0 .. 1 day; ErrNotAcquired follows. The time runs while this
// client is disconnected. With a Mutex or an RWMutex it includes the wait for other goroutines of
// the session. Default: Forever, so only ctx ends the wait.
func Wait(d time.Duration) AcquireOption {
	return func(o *acquireOptions) {
		o.given |= givenWait
		if o.Timeout = millis.Of("acquire timeout", d, &o.err); d == Forever {
			o.Timeout = protocol.Forever
		}
	}
}

// Ephemeral acquires a semaphore that exists while somebody holds it or waits for it, with the
// limit Max. A semaphore that was created otherwise is refused with ErrPreconditionFailed.
func Ephemeral() AcquireOption {
	return func(o *acquireOptions) { o.given, o.Ephemeral = o.given|givenAmount, true }
}

// CreateLimit creates the semaphore with this limit, 1 .. Max, if it does not exist. One that exists
// keeps its limit, whatever that is; see ExactLimit. If ctx ends while it is made, nothing is held, and
// ErrOutcomeUnknown says that the semaphore may exist. Acquiring with Ephemeral, Shared or Exclusive
// too is ErrBadRequest: an ephemeral semaphore has the limit Max.
func CreateLimit(limit uint64) AcquireOption {
	return func(o *acquireOptions) {
		o.given |= givenLimit
		if o.limit = limit; limit == 0 && o.err == nil {
			o.err = protocol.Errorf(protocol.StatusBadRequest, "semaphore limit is 0; it must be at least 1")
		}
	}
}

// ExactLimit is CreateLimit, and refuses a semaphore that has another limit, with
// ErrPreconditionFailed: programs that disagree about it notice. It costs a read at each acquire,
// which does not see a resize at the same moment. After a resize by an operator, programs with the
// former limit are refused; with CreateLimit they go on.
func ExactLimit(limit uint64) AcquireOption {
	return func(o *acquireOptions) {
		CreateLimit(limit)(o)
		o.exact = true
	}
}

// OnQueued has f called once, on the acquiring goroutine, when the request was queued behind
// others, with its place: those ahead have lower ones. The place is the fencing token that the
// request will have, unless the semaphore has a policy or slots, or had: then each grant draws a
// token of its own. f must not block.
func OnQueued(f func(place uint64)) AcquireOption {
	return func(o *acquireOptions) { o.OnQueued = f }
}

// Shared is Ephemeral and Count(1): any number of sessions hold it at once, but not with Exclusive.
func Shared() AcquireOption {
	return func(o *acquireOptions) { o.given, o.Ephemeral, o.Count = o.given|givenAmount, true, 1 }
}

// Exclusive is Ephemeral and Count(Max): no other session holds it.
func Exclusive() AcquireOption {
	return func(o *acquireOptions) { o.given, o.Ephemeral, o.Count = o.given|givenAmount, true, Max }
}

// given are kinds of options, for calls that do not take all of them.
type given uint8

const (
	givenAmount given = 1 << iota // Count, Ephemeral, Shared, Exclusive
	givenLimit                    // CreateLimit, ExactLimit
	givenData                     // Data
	givenWait                     // Wait, FailOnDeadlock
)

// refuse refuses options of these kinds. The recipe's own options come after it.
func (o *acquireOptions) refuse(kinds given, err error) {
	if o.given&kinds != 0 && o.err == nil {
		o.err = err
	}
}

// Options of recipes that say how much they acquire.
var (
	whole = AcquireOption(func(o *acquireOptions) {
		o.refuse(givenAmount|givenLimit, errOwnAmount)
		o.Ephemeral, o.Count = true, Max
	})
	oneUnit = AcquireOption(func(o *acquireOptions) {
		o.refuse(givenAmount|givenLimit, errOwnAmount)
		o.Ephemeral, o.Count = true, 1
	})
	onlyUnit = AcquireOption(func(o *acquireOptions) {
		o.refuse(givenAmount|givenLimit, errOneUnit)
		o.Count, o.Turn = 1, core.Free
	})
	untilNow = AcquireOption(func(o *acquireOptions) {
		o.refuse(givenWait, errTryWaits)
		o.Turn, o.Timeout = core.Now, 0
	})
)

var (
	errOwnAmount = protocol.Errorf(protocol.StatusBadRequest,
		"a lock, an election and a service have an amount of their own; "+
			"leave out Count, Ephemeral, Shared, Exclusive, CreateLimit and ExactLimit")
	errOneUnit = protocol.Errorf(protocol.StatusBadRequest,
		"the semaphore of a recipe has one unit; leave out Count, Ephemeral, Shared, Exclusive, CreateLimit and ExactLimit")
	errTryWaits = protocol.Errorf(protocol.StatusBadRequest,
		"an acquire that takes what is free does not wait; leave out Wait and FailOnDeadlock")
	errOwnData = protocol.Errorf(protocol.StatusBadRequest, "a member's data is an argument of Register; leave out Data")
)

// waitForOwnLease makes a second acquire of the session wait for the first one's release instead of
// failing with ErrAlreadyHeld.
func waitForOwnLease() AcquireOption { return func(o *acquireOptions) { o.Turn = core.Free } }

func acquireOptionsOf(opts []AcquireOption) *acquireOptions {
	o := &acquireOptions{AcquireOptions: driver.AcquireOptions{Count: 1, Timeout: protocol.Forever}}
	for _, f := range opts {
		f(o)
	}
	if o.Ephemeral && o.limit > 0 && o.err == nil {
		o.err = errEphemeralLimit
	}
	return o
}

// with puts a recipe's own options behind the user's, where they win.
func with(opts []AcquireOption, own ...AcquireOption) []AcquireOption {
	return append(opts[:len(opts):len(opts)], own...)
}

var errEphemeralLimit = protocol.Errorf(protocol.StatusBadRequest,
	"an ephemeral semaphore is made with the limit %d; leave out CreateLimit and ExactLimit, or acquire without Ephemeral, Shared and Exclusive", Max)
