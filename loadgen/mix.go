package loadgen

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"

	"go.yaml.in/yaml/v3"
)

// Part is one kind of work in a mix. Numbers that are 0 are those of the load.
type Part struct {
	Scenario string  `yaml:"scenario"`
	Name     string  `yaml:"name"`   // in the result; default the scenario's
	Weight   float64 `yaml:"weight"` // share of the operations, in proportion to the other parts' weights
	Keys     int     `yaml:"keys"`
	Skew     float64 `yaml:"skew"`
	DataSize int     `yaml:"data-size"`
	Limit    uint64  `yaml:"limit"`
	Watchers int     `yaml:"watchers"`

	scenario *Scenario
}

// DefaultMix is a small fleet: mostly reading, some locks, a queue, a counting semaphore, and
// sessions that come and go.
const DefaultMix = `# Each caller draws its next operation by weight.
parts:
  - {scenario: describe-relaxed, weight: 50, keys: 1000, skew: 0.99, data-size: 64}
  - {scenario: describe-strict, weight: 10, keys: 1000}
  - {scenario: lock-pairs, weight: 30, keys: 10000}
  - {scenario: semaphore, weight: 8, keys: 10, limit: 5}
  - {scenario: contended-lock, weight: 1, keys: 4}
  - {scenario: session-storm, weight: 1}
`

const (
	maxMixFile = 64 << 10
	maxParts   = 32
	maxWeight  = 1e9
)

var partName = regexp.MustCompile(`^[a-z][a-z-]{0,63}$`)

// ReadMix reads a mix: YAML with the one key parts, a list of Part. Its scenario is called mixed.
func ReadMix(r io.Reader) (*Scenario, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxMixFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxMixFile {
		return nil, fmt.Errorf("the mix is longer than %d bytes; leave parts out", maxMixFile)
	}
	var file struct {
		Parts []Part `yaml:"parts"`
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the mix is not as it should be: %w", err)
	}
	if err := dec.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the mix has more than one document; keep one")
	}
	return Mix(file.Parts)
}

// Mix makes the scenario of parts.
func Mix(parts []Part) (*Scenario, error) {
	if len(parts) == 0 || len(parts) > maxParts {
		return nil, fmt.Errorf("a mix has 1 to %d parts under the key parts; this one has %d", maxParts, len(parts))
	}
	parts = slices.Clone(parts)
	s := &Scenario{Name: "mixed", Short: "operations of several scenarios, by weight", Series: []string{"operation"}}
	used := map[string]bool{}
	for i := range parts {
		p := &parts[i]
		var err error
		if p.scenario, err = Find(p.Scenario); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		if p.scenario == idleSessions || p.scenario == discovery {
			return nil, fmt.Errorf("part %d: %s has a pace of its own and cannot be mixed; run it beside", i+1, p.Scenario)
		}
		p.Name = cmp.Or(p.Name, p.Scenario)
		switch {
		case !partName.MatchString(p.Name):
			return nil, fmt.Errorf("part %d: name %q is not made of a to z and dashes", i+1, p.Name)
		case used[p.Name] || p.Name == "operation":
			return nil, fmt.Errorf("part %d: the name %s is taken; give the part another with the key name", i+1, p.Name)
		case math.IsNaN(p.Weight) || p.Weight <= 0 || p.Weight > maxWeight:
			return nil, fmt.Errorf("part %d: weight is %v; give a number above 0", i+1, p.Weight)
		}
		used[p.Name] = true
		check := Config{
			Scenario: p.scenario, Target: &Noop{}, Operations: 1,
			Keys: p.Keys, Skew: p.Skew, DataSize: p.DataSize, Watchers: p.Watchers,
		}
		if err := check.Check(); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
		for _, x := range p.scenario.Series {
			s.Series = append(s.Series, p.Name+"."+x)
		}
	}
	s.Build = func(ctx context.Context, c *Env) (Workload, error) { return buildMix(ctx, c, parts) }
	return s, nil
}

// buildMix builds the parts side by side; caller i of the mix acts as caller i of each.
func buildMix(ctx context.Context, c *Env, parts []Part) (Workload, error) {
	n := c.callerCount()
	w := &mixedWorkload{}
	cum := make([]float64, len(parts))
	sum, base := 0.0, 1
	mixers := make([]*mixer, n)
	for i := range mixers {
		mixers[i] = &mixer{c: c, cum: cum, rng: rand.NewPCG(c.Seed, math.MaxUint64-uint64(i)), parts: make([]mixedPart, len(parts))}
		w.callers = append(w.callers, mixers[i])
	}
	for k, p := range parts {
		sum += p.Weight
		cum[k] = sum
		sub := c.part(k, p)
		x, err := p.scenario.Build(ctx, sub)
		if err != nil {
			closeWorkload(ctx, w)
			return nil, fmt.Errorf("part %d, %s: %w", k+1, p.Name, err)
		}
		w.parts = append(w.parts, x)
		c.sessions += sub.sessions
		c.keys += sub.keys
		c.watchers += sub.watchers
		for i := range mixers {
			mixers[i].parts[k] = mixedPart{x.Callers()[i], base, base + p.scenario.Operation}
		}
		base += len(p.scenario.Series)
	}
	return w, nil
}

// part is the Env of a part: its own numbers, the same connections.
func (e *Env) part(k int, p Part) *Env {
	sub := *e
	sub.sessions, sub.keys, sub.watchers = 0, 0, 0
	sub.Scenario = p.scenario
	sub.prefix = fmt.Sprintf("%s%d-%s/", e.prefix, k, p.Name)
	sub.Seed += uint64(k)
	for _, n := range []struct {
		to   *int
		from int
	}{{&sub.Keys, p.Keys}, {&sub.DataSize, p.DataSize}, {&sub.Watchers, p.Watchers}} {
		if n.from > 0 {
			*n.to = n.from
		}
	}
	if p.Skew > 0 {
		sub.Skew = p.Skew
	}
	if p.Limit > 0 {
		sub.Limit = p.Limit
	}
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

// mixedPart is a part as one caller does it: its first series in the mix, and that of its
// operations.
type mixedPart struct {
	caller   Caller
	base, op int
}

type mixer struct {
	c     *Env
	rng   *rand.PCG
	cum   []float64
	parts []mixedPart
}

func (m *mixer) Do(ctx context.Context, rec *Recorder) error {
	x := float64(m.rng.Uint64()>>11) / (1 << 53) * m.cum[len(m.cum)-1]
	a := &m.parts[sort.Search(len(m.cum)-1, func(i int) bool { return m.cum[i] > x })]
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
