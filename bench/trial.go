// How is one system measured at one benchmark in one round?

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// trialTimeout bounds one visit, so that a server that hangs costs the run a few minutes and not
// the day.
const trialTimeout = 10 * time.Minute

// trial is one system at one benchmark in one round.
type trial struct {
	*Settings
	system System
	dir    string // of a visit, removed after it
	round  int
	starts int
	values map[string][]float64 // by metric, the measured values of this round
	failed bool
}

func (v *trial) run(ctx context.Context, b benchmark) error {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTimeout, fmt.Errorf("it took longer than %v", trialTimeout))
	defer cancel()
	if err := os.Mkdir(v.dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(v.dir)
	if m, ok := v.system.(SelfMeasuring); ok {
		return m.Measure(ctx, v.dir, v.Length, v.record)
	}
	err := b.run(ctx, v)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// withPlan starts the system's server on a fresh folder, does something with it as planned for a
// kind of work, and stops it.
func (v *trial) withPlan(ctx context.Context, w Workload, do func(s *Server, plan Plan) error) error {
	return v.withServer(ctx, v.system.Start, func(s *Server) error {
		plan, err := s.Plan(w)
		if err != nil {
			return err
		}
		return do(s, plan)
	})
}

// withServer starts a server on a fresh folder, does something with it, and stops it.
func (v *trial) withServer(
	ctx context.Context, start func(ctx context.Context, dir string) (*Server, error), do func(s *Server) error,
) error {
	v.starts++
	dir := filepath.Join(v.dir, fmt.Sprint(v.starts))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	return do(s)
}

// record notes a value. Of several in a round the median counts.
func (v *trial) record(metric string, value float64) {
	m, _ := metricByID(metric)
	v.values[metric] = append(v.values[metric], value)
	v.logf("round %d  %-20s %-16s %s", v.round+1, metric, v.system.Name(), amount(value, m.Unit))
}

// addTo puts the round's values into a report.
func (v *trial) addTo(r *Report) {
	for metric, values := range v.values {
		m, _ := metricByID(metric)
		r.Measurements.add(v.round, metric, v.system.Name(), m.Unit, StatOf(values).Median)
	}
}
