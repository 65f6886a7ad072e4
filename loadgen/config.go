// What is a load, and within which bounds?

package loadgen

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Each as a number of connections gives each session one of its own, and each watcher without one.
const Each = -1

// Bounds of a load, so that a slip of a zero is an error and does not fill the memory.
const (
	maxCallers  = 1 << 20
	maxSessions = 1 << 24
	maxKeys     = 1 << 26
	maxData     = 1 << 20 // bytes: the largest data that a semaphore or an entry of its queue can have
	maxRate     = 1e8
)

// Config is a load. Scenario, Target, and Duration or Operations are needed; a number that is 0 is
// the scenario's own choice.
type Config struct {
	Scenario *Scenario
	Target   Target

	// Callers are the operations under way at a time, each by a goroutine of its own; in an open
	// loop the most there can be. Default mostly 64, in an open loop 512.
	Callers int

	// Connections that the sessions and watchers are spread over; default 4, or one for 1,000
	// watchers. Each gives every session, and every watcher without one, its own.
	Connections int

	// Sessions; default one for each caller, where the scenario does not say otherwise. Of
	// discovery, the members.
	Sessions int

	// Keys is the number of names that the operations are about. Of discovery, the services.
	Keys int

	// Skew is the exponent of the zipf distribution by which names are chosen: 0 chooses all alike,
	// 0.99 is typical of caches.
	Skew float64

	// Watchers is the number of watchers over all names, in scenarios that watch.
	Watchers int

	// Limit of the semaphores of the scenario semaphore; default half of the callers.
	Limit uint64

	// DataSize is how many bytes of data are written: 0 to 1 MiB.
	DataSize int

	// Deadline is the timeout of each call to the server: each call of an operation has a context
	// of its own with it, as in a program. A call that takes longer is an error. 0: no deadline.
	Deadline time.Duration

	// Churn is how many per cent of the members restart each minute; default 10. Of discovery.
	Churn float64

	// Rate of an open loop, operations a second; 0 is a closed loop.
	Rate float64

	// WarmUp precedes the measurement. Operations that end in it are not counted.
	WarmUp time.Duration

	// Duration of the measurement; 0: as long as Operations take.
	Duration time.Duration

	// Operations, if not 0, ends the run after that number, the warm-up's included.
	Operations uint64

	// Patience is how long operations may take to end after Duration; default 10 s. Those that do
	// not are errors with the code "unanswered".
	Patience time.Duration

	// Seed of the random draws; the same seed draws the same names.
	Seed uint64

	// Metrics is host:port of the instance's metrics and profiles, its admin endpoint; with it, the
	// server's memory and CPU are part of the result.
	Metrics string

	// Progress, if not nil, is called five times a second from one goroutine.
	Progress func(Progress)
}

// Progress of a run.
type Progress struct {
	Preparing  bool          // nothing runs yet: sessions start, names are made
	WarmingUp  bool          // nothing counts yet
	Elapsed    time.Duration // of the measurement
	Duration   time.Duration // 0: unknown
	Operations uint64        // warm-up included
	Rate       float64       // over the last second
	Errors     uint64
}

// Check returns the faults of a load that can be found without running it.
func (c *Config) Check() error {
	if c.Scenario == nil || c.Target == nil {
		return fmt.Errorf("a load needs a scenario and a target")
	}
	for _, n := range []struct {
		name     string
		value    float64
		min, max float64
	}{
		{"callers", float64(c.Callers), 0, maxCallers},
		{"connections", float64(c.Connections), Each, maxSessions},
		{"sessions", float64(c.Sessions), 0, maxSessions},
		{"keys", float64(c.Keys), 0, maxKeys},
		{"skew", c.Skew, 0, 10},
		{"watchers", float64(c.Watchers), 0, maxSessions},
		{"data size", float64(c.DataSize), 0, maxData},
		{"churn", c.Churn, 0, 6000},
		{"rate", c.Rate, 0, maxRate},
		{"warm-up", c.WarmUp.Seconds(), 0, 86400},
		{"duration", c.Duration.Seconds(), 0, 30 * 86400},
		{"patience", c.Patience.Seconds(), 0, 86400},
		{"deadline", c.Deadline.Seconds(), 0, 86400},
	} {
		if math.IsNaN(n.value) || n.value < n.min || n.value > n.max {
			plain := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
			return fmt.Errorf("%s is %s; give %s to %s", n.name, plain(n.value), plain(n.min), plain(n.max))
		}
	}
	if c.Duration == 0 && c.Operations == 0 {
		return fmt.Errorf("a load without a duration and without a number of operations never ends; give one")
	}
	return nil
}
