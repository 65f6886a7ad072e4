// Package millis converts durations for the wire, where times count milliseconds, and back. It is
// the one place that does, for all packages of the SDK: what is refused is so refused everywhere.
//
// The state machines check the upper bounds: the SDK may be older than the server, and must not
// know better.
package millis

import (
	"math"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Of rounds up: a duration that is asked for is at least granted, and a positive one never becomes
// 0, which is the default in most fields. A negative duration is refused: err is set to
// ErrBadRequest with the field and the value, unless it was set before, and 0 is returned.
func Of(field string, d time.Duration, err *error) uint64 {
	switch {
	case d == 0:
		return 0
	case d > 0:
		return uint64((d-1)/time.Millisecond) + 1
	case *err == nil:
		*err = protocol.Errorf(protocol.StatusBadRequest, "%s is %s; it must not be negative", field, d)
	}
	return 0
}

// Duration reads a time of the wire. What does not fit becomes the longest duration of whole
// milliseconds.
func Duration(ms uint64) time.Duration {
	const longest = uint64(math.MaxInt64 / time.Millisecond)
	return time.Duration(min(ms, longest)) * time.Millisecond
}

// Time reads a time of the wire since 1970; 0 is the zero time.
func Time(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(ms, 1<<62)))
}
