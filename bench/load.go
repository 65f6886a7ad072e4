// How fast is a load on a server, and how much CPU and memory does the server use?

package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

type outcome struct {
	*loadgen.Result
	perCPU  float64 // operations per CPU second of the server
	busiest float64 // part of that CPU that the busiest of several processes used
	written float64 // bytes that the server had written for an operation
}

func (o *outcome) ms(series string, percent float64) float64 {
	for i := range o.Series {
		if o.Series[i].Name == series {
			return float64(o.Series[i].At(percent).Nanoseconds()) / 1e6
		}
	}
	return 0
}

// load runs a scenario on a server, and measures the server's use from the end of the warm-up on. A
// load in which a server answered nothing, or answered more than one in a hundred operations with
// an error, fails: its rate would be worthless.
func (v *trial) load(ctx context.Context, s *Server, plan Plan, scenario string, c loadgen.Config) (*outcome, error) {
	var err error
	if c.Scenario, err = loadgen.Find(scenario); err != nil {
		return nil, err
	}
	c.Target, c.Connections, c.Deadline = plan.Target, plan.Connections, callDeadline
	if c.WarmUp = v.WarmUp + plan.WarmUp; s.warm {
		c.WarmUp /= 2 // most of it has been running
	}
	s.warm = true
	c.Duration = cmp.Or(c.Duration, v.Length)
	c.Seed = uint64(v.round) + 1
	var before, after Usage
	var first, last []float64 // of each process
	var done [2]uint64
	looked := false
	c.Progress = func(p loadgen.Progress) { // five times a second, from one goroutine, and on while the load's names are removed
		if p.Preparing || p.WarmingUp || p.Elapsed > c.Duration+250*time.Millisecond {
			return
		}
		u, err := s.Usage()
		each, err2 := s.cpuOfEach()
		if err == nil && err2 == nil {
			if !looked {
				before, first, done[0], looked = u, each, p.Operations, true
			}
			after, last, done[1] = u, each, p.Operations
		}
	}
	r, err := loadgen.Run(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scenario, err)
	}
	if r.Interrupted {
		return nil, context.Cause(ctx)
	}
	if r.Operations == 0 {
		return nil, fmt.Errorf("%s: the server answered nothing; errors: %s", scenario, codes(r))
	}
	n := r.ErrorCount()
	if c.Rate > 0 { // a rate that is beyond a server is no error of its
		n -= r.Errors["not started"] + r.Errors["unanswered"]
	}
	if n*100 > r.Operations {
		return nil, fmt.Errorf("%s: %d errors beside %d answers: %s", scenario, n, r.Operations, codes(r))
	}
	o := &outcome{Result: r}
	if n := float64(done[1] - done[0]); n > 0 {
		if cpu := after.CPU - before.CPU; cpu > 0 {
			o.perCPU = n / cpu.Seconds()
			for i := range last {
				o.busiest = max(o.busiest, (last[i]-first[i])/cpu.Seconds())
			}
		}
		o.written = float64(after.Written-before.Written) / n
	}
	return o, nil
}

// recordPairs records a load of pairs under a name: its rate, its latency, and the server's use.
func (v *trial) recordPairs(name string, o *outcome) {
	v.record(name, o.Rate)
	v.record(name+"-p50", o.ms("pair", 50))
	v.record(name+"-p99", o.ms("pair", 99))
	if o.perCPU > 0 {
		v.record(name+"-cpu", o.perCPU)
		v.record(name+"-written", o.written)
	}
}

func codes(r *loadgen.Result) string {
	var list []string
	for _, code := range slices.Sorted(maps.Keys(r.Errors)) {
		list = append(list, fmt.Sprintf("%d %s", r.Errors[code], code))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
