// How fast is a small fleet, which does a little of everything?

package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
)

// mixedPart is one kind of work in the scenario mixed. Numbers that are 0 are those of the load.
type mixedPart struct {
	scenario       *Scenario
	weight         float64 // share of the operations, in proportion to the other parts' weights
	keys, dataSize int
	skew           float64
	limit          uint64
}

// mixedParts are a small fleet: mostly reads, some locks, a queue, a counting semaphore, and
// sessions that come and go.
var mixedParts = []mixedPart{
	{scenario: describeRelaxed, weight: 50, keys: 1000, skew: 0.99, dataSize: 64},
	{scenario: describeStrict, weight: 10, keys: 1000},
	{scenario: lockPairs, weight: 30, keys: 10000},
	{scenario: countingSemaphore, weight: 8, keys: 10, limit: 5},
	{scenario: contendedLock, weight: 1, keys: 4},
	{scenario: sessionStorm, weight: 1},
}

var mixed = newMixed(mixedParts)

// newMixed returns the scenario of parts, in which each caller draws its next operation by weight.
func newMixed(parts []mixedPart) *Scenario {
	s := &Scenario{Name: "mixed",
		Short:  "60 % reads, 30 % lock pairs, 8 % semaphores, 1 % one lock, 1 % sessions; own names",
		Series: []string{"operation"}}
	for _, p := range parts {
		for _, x := range p.scenario.Series {
			s.Series = append(s.Series, p.scenario.Name+"."+x)
		}
	}
	s.Build = func(ctx context.Context, c *Env) (Workload, error) { return buildMixed(ctx, c, parts) }
	return s
}

// buildMixed builds the parts side by side; caller i of the mix acts as caller i of each.
func buildMixed(ctx context.Context, c *Env, parts []mixedPart) (Workload, error) {
	w := &mixedWorkload{}
	cumulative := make([]float64, len(parts))
	mixers := make([]*mixer, c.callerCount())
	for i := range mixers {
		mixers[i] = &mixer{c: c, cumulative: cumulative, rng: rand.NewPCG(c.Seed, math.MaxUint64-uint64(i)),
			parts: make([]mixedCaller, len(parts))}
		w.callers = append(w.callers, mixers[i])
	}
	sum, base := 0.0, 1
	for k, p := range parts {
		sum += p.weight
		cumulative[k] = sum
		sub := c.part(k, p)
		x, err := p.scenario.Build(ctx, sub)
		if err != nil {
			closeWorkload(ctx, w)
			return nil, fmt.Errorf("%s: %w", p.scenario.Name, err)
		}
		w.parts = append(w.parts, x)
		c.sessions += sub.sessions
		c.keys += sub.keys
		for i := range mixers {
			mixers[i].parts[k] = mixedCaller{x.Callers()[i], base, base + p.scenario.Operation}
		}
		base += len(p.scenario.Series)
	}
	return w, nil
}

// part returns the Env of a part: its own numbers, the same connections.
func (e *Env) part(k int, p mixedPart) *Env {
	sub := *e
	sub.sessions, sub.keys, sub.watchers = 0, 0, 0
	sub.Scenario = p.scenario
	sub.prefix = fmt.Sprintf("%s%d-%s/", e.prefix, k, p.scenario.Name)
	sub.Seed += uint64(k)
	sub.Keys, sub.DataSize = cmp.Or(p.keys, e.Keys), cmp.Or(p.dataSize, e.DataSize)
	sub.Skew, sub.Limit = cmp.Or(p.skew, e.Skew), cmp.Or(p.limit, e.Limit)
	return &sub
}

type mixedWorkload struct {
	callers
	parts []Workload
}

func (w *mixedWorkload) Close(ctx context.Context) error {
	var errs []error
	for _, p := range w.parts {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// mixedCaller is one caller's share of a part: the part's first series in the mix, and the series
// of its operations.
type mixedCaller struct {
	caller   Caller
	base, op int
}

type mixer struct {
	c          *Env
	rng        *rand.PCG
	cumulative []float64 // weights of the parts
	parts      []mixedCaller
}

func (m *mixer) Do(ctx context.Context, rec *Recorder) error {
	last := len(m.cumulative) - 1
	x := float64(m.rng.Uint64()>>11) / (1 << 53) * m.cumulative[last]
	a := &m.parts[sort.Search(last, func(i int) bool { return m.cumulative[i] > x })]
	rec.base = a.base
	start := m.c.Now()
	err := a.caller.Do(ctx, rec)
	rec.base = 0
	if err == nil {
		end := m.c.Now()
		rec.Note(a.op, end, end-start)
	}
	return err
}
