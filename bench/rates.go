// How long do callers wait when all systems get the same rate?

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Of the rate that is asked for: below kept a system falls behind, and below hopeless it is not
// asked for a higher one.
const (
	kept     = 99 // per cent
	hopeless = 90
)

func rateMetric(rate int, what string) string { return fmt.Sprintf("rate-%d-%s", rate, what) }

// measureRates measures everybody at the same rates in an open loop, from which operations begin
// whether or not the ones before have ended. A latency counts from the moment when the operation
// was to begin.
func measureRates(ctx context.Context, v *trial) error {
	return v.withPlan(ctx, SteadyRate, func(s *Server, plan Plan) error {
		if plan.WarmUp > 0 {
			// What compiles as it runs would be measured uncompiled at a thousand a second.
			if _, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.RateCallers}); err != nil {
				return err
			}
			plan.WarmUp = 0
		}
		reached := 100.0
		for _, rate := range rates {
			if reached < hopeless {
				v.record(rateMetric(rate, "kept"), reached)
				continue
			}
			asked := float64(rate) / v.RateDivisor
			// A system that is too slow would work its backlog off for as long as it may.
			o, err := v.load(ctx, s, plan, "lock-pairs", loadgen.Config{Callers: v.RateCallers, Rate: asked,
				Patience: max(v.Length, 5*time.Second)}) // a short measurement still waits for a slow disk
			if err != nil {
				return fmt.Errorf("%d/s: %w", rate, err)
			}
			reached = min(100, 100*o.Rate/asked)
			v.record(rateMetric(rate, "kept"), reached)
			for _, p := range []struct {
				name    string
				percent float64
			}{{"p50", 50}, {"p99", 99}, {"p999", 99.9}} {
				v.record(rateMetric(rate, p.name), o.ms("pair", p.percent))
			}
			if o.perCPU > 0 {
				v.record(rateMetric(rate, "cpu"), 1e6/o.perCPU)
			}
			v.record(rateMetric(rate, "client-cpu"), o.Own.CPUPerOperationUS)
		}
		return nil
	})
}

// rateMetrics returns the metrics of measureRates.
func rateMetrics() []Metric {
	var list []Metric
	for _, rate := range rates {
		at := " at " + loadgen.Thousands(fmt.Sprint(rate)) + " pairs/s"
		own := []Metric{
			{ID: rateMetric(rate, "p50"), Text: "p50 of a pair" + at, Unit: Milliseconds},
			{ID: rateMetric(rate, "p99"), Text: "p99 of a pair" + at, Unit: Milliseconds},
			{ID: rateMetric(rate, "p999"), Text: "p99.9 of a pair" + at, Unit: Milliseconds},
			{ID: rateMetric(rate, "cpu"), Text: "server CPU of a pair" + at, Unit: Microseconds},
			{ID: rateMetric(rate, "client-cpu"), Text: loadCPU, Unit: Microseconds},
		}
		for i := range own {
			own[i].Kept = rateMetric(rate, "kept")
		}
		list = append(append(list, own...),
			Metric{ID: rateMetric(rate, "kept"), Text: "part of the rate that is reached" + at, Unit: Percent})
	}
	return list
}
