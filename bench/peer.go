package bench

import (
	"context"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Peer is a system that is measured.
type Peer interface {
	// Name is one of the subjects.
	Name() string

	// Version says what is measured: version, settings that matter, client. Its error is a sentence
	// that says what is missing and how to get it.
	Version(ctx context.Context) (string, error)

	// Start starts a server that keeps its data in an empty folder, and waits until it answers.
	Start(ctx context.Context, dir string) (Server, error)
}

// Server is a running Peer.
type Server interface {
	// Plan says how a kind of work is best done on it.
	Plan(u Workload) (Plan, error)

	// Process is where it runs.
	Process() *Process

	// Stop ends it. The folder is removed after it.
	Stop()
}

// Workload is a kind of work.
type Workload int

// The uses.
const (
	LockPairs       Workload = iota // pairs of many callers over few connections
	OwnConnections                  // pairs of many callers, a connection each, one request at a time on it
	SingleCaller                    // pairs of one caller
	Handoffs                        // one lock, many contenders
	Reads                           // strict and relaxed
	Watchers                        // many watchers over few connections
	ManyConnections                 // many watchers over many connections
	IdleOwn                         // sessions that only live, a connection each
	IdleShared                      // likewise, on shared connections
)

// SharedConnections is how many connections 20,000 watchers share, where a system lets them: a
// server of ours carries 1,024 streams on each.
const SharedConnections = 20

// Plan is how a Peer does a kind of work.
type Plan struct {
	Target      loadgen.Target
	Connections int           // how many serve it best, or loadgen.Each
	WarmUp      time.Duration // beyond the others', for what compiles as it runs
	Sessions    int           // of IdleOwn and Idle: how many; 0 is as many as ours has
	Once        bool          // its watches end with the first change, and are renewed
}

// Meter is a Peer that measures itself, because there is no server to drive.
type Meter interface {
	Peer

	// Measure takes about so long. What it tells goes to note.
	Measure(ctx context.Context, dir string, d time.Duration, note func(work string, unit Unit, value float64)) error
}
