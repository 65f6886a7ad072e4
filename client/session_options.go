package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// DefaultTimeout is the timeout of a session that was started without one.
const DefaultTimeout = 10 * time.Second

// SessionOption is an option of Client.Session and Client.Restore.
type SessionOption func(*sessionOptions)

type sessionOptions struct {
	timeout     time.Duration
	keepAlive   time.Duration
	description string
	onState     func(State)
	onStopped   func(error)
}

// Timeout is how long the server keeps the session after the last sign of life: 100 ms .. 30 min,
// default 10 s. A short timeout releases sooner what a crashed client held; a long one survives
// longer pauses and outages. Leases are relied on for 0.85 of it after the last renewal. With a
// long grace period of the node the minimum is a 24th of that period (417 ms with the default of 10
// s), and a shorter timeout is raised to it.
func Timeout(d time.Duration) SessionOption { return func(o *sessionOptions) { o.timeout = d } }

// KeepAlive is the time between keep-alives of the session's connection, at least 10 ms. The
// maximum, and the default (0), is a quarter of the timeout. One keep-alive covers all sessions of
// a connection; the shortest period wins.
func KeepAlive(d time.Duration) SessionOption { return func(o *sessionOptions) { o.keepAlive = d } }

// Description says what the session is, such as "billing@host1". Describe shows it beside what the
// session holds. At most 1,024 bytes of UTF-8. The default names the program, the host and the
// process.
func Description(text string) SessionOption {
	return func(o *sessionOptions) { o.description = text }
}

// OnState is called with every change of the session's state, in order, on a goroutine of its own.
// It may be late: rely on Held and Lease.Context. Closing the client waits for its calls, so it must
// not close the client, nor wait for another goroutine that does. The same is true of OnStopped.
func OnState(f func(State)) SessionOption { return func(o *sessionOptions) { o.onState = f } }

// OnStopped is called once, after the last OnState, when the session is over for good. cause is
// Session.Err.
func OnStopped(f func(cause error)) SessionOption {
	return func(o *sessionOptions) { o.onStopped = f }
}

// thisProgram is the description of sessions that have no other: who holds a lock is to be found.
var thisProgram = sync.OnceValue(func() string {
	program, host := "program", "unknown"
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	if name, err := os.Hostname(); err == nil {
		host = name
	}
	return strings.ToValidUTF8(fmt.Sprintf("%s@%s pid %d", program, host, os.Getpid()), "?")
})

func sessionOptionsOf(opts []SessionOption) (o sessionOptions, err error) {
	o.timeout, o.description = DefaultTimeout, thisProgram()
	for _, f := range opts {
		f(&o)
	}
	if o.timeout < sessionstate.MinTimeout || o.timeout > sessionstate.MaxTimeout {
		return o, protocol.Errorf(protocol.StatusBadRequest, "session timeout is %s; it must be %s to %s",
			o.timeout, sessionstate.MinTimeout, sessionstate.MaxTimeout)
	}
	o.timeout = millis.Duration(millis.Of("session timeout", o.timeout, &err))
	millis.Of("keep-alive", o.keepAlive, &err) // not sent, but checked as the timeout is
	return o, err
}
