// What must a system do to be measured?

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// System is a system that is measured.
type System interface {
	// Name is one of the subjects.
	Name() string

	// Version describes the measured system: version, settings that matter, client. Its error names
	// the missing part and how to get it.
	Version(ctx context.Context) (string, error)

	// Start starts a server that keeps its data in an empty folder, and waits until it answers.
	Start(ctx context.Context, dir string) (*Server, error)
}

// Servers is how many servers make the smallest cluster that survives the loss of one.
const Servers = 3

// ClusterSystem is a System of several servers, each with a copy of everything.
type ClusterSystem interface {
	System

	// StartCluster starts three servers that keep their data in folders of their own below an empty
	// one. It waits until they are one cluster with nothing left to do: three voters, and leaders
	// where they are to stay.
	StartCluster(ctx context.Context, dir string) (*Server, error)
}

// FailoverSystem is a ClusterSystem whose servers can be taken away and started again.
type FailoverSystem interface {
	ClusterSystem

	// StartClusterOn is StartCluster on hosts. The cluster reports its leader, and whether it is
	// whole again.
	StartClusterOn(ctx context.Context, dir string, hosts *Hosts) (*Server, error)
}

// NeedsCallTimeout is a System whose client waits for ever for an answer of a server that hangs.
// Its calls need a deadline of their own, and are repeated.
type NeedsCallTimeout interface{ CallTimeout() time.Duration }

// SelfMeasuring is a System that measures itself, because there is no server to drive.
type SelfMeasuring interface {
	System

	// Measure takes about d. It passes its figures to note.
	Measure(ctx context.Context, dir string, d time.Duration, note func(metric string, value float64)) error
}

// Workload is a kind of work.
type Workload int

// The kinds of work.
const (
	LockPairs      Workload = iota // pairs of many callers over few connections
	SteadyRate                     // pairs at a rate far below the limit
	OwnConnections                 // pairs of many callers, a connection each, one request at a time on it
	SingleCaller                   // pairs of one caller
	Handoffs                       // one lock, many contenders
	Reads                          // strict and relaxed
	Watchers                       // many watchers over few connections
	OwnWatchers                    // many watchers, a connection each
	SessionStarts                  // many new connections, a session on each
	IdleOwn                        // sessions that only live, a connection each
	IdleShared                     // likewise, on shared connections
)

// SharedConnections is how many connections 20,000 watchers share, where a system lets them: a
// server of ours carries 1,024 streams on each.
const SharedConnections = 20

// RateConnections is how many connections carry the load of SteadyRate, where a system's client
// does not choose their number itself.
const RateConnections = 15

// Plan is the best way for a System to do a kind of work.
type Plan struct {
	Target      loadgen.Target
	Connections int           // how many serve it best, or loadgen.Each
	WarmUp      time.Duration // beyond the others', for code that is compiled as it runs
	Sessions    int           // most of IdleOwn, IdleShared, OwnWatchers, SessionStarts; 0: as many as ours has
}

// ErrUnsupported is what Plan returns for work that a system cannot do: its column stays empty.
var ErrUnsupported = errors.New("this system does not do this kind of work")
