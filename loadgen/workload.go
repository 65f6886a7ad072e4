// Which scenarios are there?

package loadgen

import (
	"context"
	"fmt"
	"strings"
)

// Scenario is a kind of load.
type Scenario struct {
	Name  string
	Short string // for people: one line

	// Series are the measured quantities, by name.
	Series []string

	// Operation is the place in Series of the operation as a whole, which the loop measures.
	Operation int

	// Build makes the callers' objects: sessions, names, watchers. The Env closes those that it
	// gave out.
	Build func(ctx context.Context, c *Env) (Workload, error)
}

// Workload is a scenario that is ready to run.
type Workload interface {
	// Callers are those who act; none when it is enough that time passes.
	Callers() []Caller

	// Close ends the objects that Build started, and removes the names it made. It is called when
	// no caller acts any more.
	Close(ctx context.Context) error
}

// Caller does one operation after the other. Only one goroutine uses it.
type Caller interface {
	// Do is one operation. What it measures beside its own duration it notes in rec.
	Do(ctx context.Context, rec *Recorder) error
}

// drainer is a workload that has something left to count when the callers have ended.
type drainer interface {
	// Drain counts errors in rec. ctx ends with the patience of the load.
	Drain(ctx context.Context, rec *Recorder)
}

// pacer is a workload that knows the rate of its open loop, for loads that give none.
type pacer interface{ Rate() float64 }

// Scenarios returns all scenarios.
func Scenarios() []*Scenario {
	return []*Scenario{
		lockPairs, contendedLock, countingSemaphore, describeStrict, describeRelaxed, watchStream,
		sessionStorm, idleSessions, discovery, mixed,
	}
}

// Find gives the scenario with a name.
func Find(name string) (*Scenario, error) {
	var names []string
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("unknown scenario %q; choose one of %s", name, strings.Join(names, ", "))
}

// callers is a workload without background work; the Env ends all of it.
type callers []Caller

func (c callers) Callers() []Caller           { return c }
func (c callers) Close(context.Context) error { return nil }
