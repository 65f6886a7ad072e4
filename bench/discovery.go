package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// DiscoveryConfig is the size of the test of many-thousand-client discovery.
type DiscoveryConfig struct {
	Members, Watchers, Connections int
	Churn                          float64 // per cent of the members that restart each minute
	Length                         time.Duration
}

// DefaultDiscovery is the one that the bar is about.
func DefaultDiscovery() DiscoveryConfig {
	return DiscoveryConfig{Members: 20_000, Watchers: 20_000, Connections: 200, Churn: 10, Length: 10 * time.Minute}
}

// text implements longTest.
func (d DiscoveryConfig) text() string {
	return fmt.Sprintf("%s members register for services of 200, %s watchers see them come and go, over %d connections; %s %% of the members restart each "+
		"minute. A delay counts from the call of the member that registers or leaves to the watcher's callback.",
		loadgen.Thousands(fmt.Sprint(d.Members)), loadgen.Thousands(fmt.Sprint(d.Watchers)), d.Connections, digits(d.Churn))
}

// run. Members register and restart, watchers see them come and go; memory is to stay
// flat and the server below one core.
func (d DiscoveryConfig) run(ctx context.Context, l *longRun) error {
	s, err := l.system.startInstance(ctx, l.dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	scenario, err := loadgen.Find("discovery")
	if err != nil {
		return err
	}
	var samples <-chan []Sample
	stop := make(chan struct{})
	out, err := loadgen.Run(ctx, loadgen.Config{
		Scenario: scenario, Target: s.target(), Sessions: d.Members, Watchers: d.Watchers,
		Connections: d.Connections, Churn: d.Churn,
		WarmUp: min(10*time.Second, d.Length/4), Duration: d.Length, Patience: 30 * time.Second,
		Progress: func(p loadgen.Progress) {
			if samples == nil && !p.Preparing && !p.WarmingUp {
				samples = sampleServer(s.Process(), max(d.Length/120, 50*time.Millisecond), stop)
			}
		},
	})
	close(stop)
	if err != nil {
		return err
	}
	if out.Interrupted {
		return context.Cause(ctx)
	}
	if samples != nil {
		l.Samples = <-samples
	}
	if out.Operations == 0 || len(l.Samples) < 4 {
		return errors.New("discovery: nobody restarted")
	}
	o := outcome{Result: out}
	l.fact("a member that joined is seen, p50", o.ms("joined", 50), Milliseconds, 0)
	l.fact("a member that joined is seen, p99", o.ms("joined", 99), Milliseconds, 250)
	l.fact("a member that left is not seen any more, p50", o.ms("left", 50), Milliseconds, 0)
	l.fact("a member that left is not seen any more, p99", o.ms("left", 99), Milliseconds, 250)
	l.fact("restarts/s", out.Rate, PerSecond, 0)
	l.fact("errors", float64(out.ErrorCount()), "", 0)
	var cores, early, late []float64
	for _, x := range l.Samples {
		cores = append(cores, x.Cores)
		switch at := x.At / d.Length.Seconds(); {
		case at < 0.3:
			early = append(early, float64(x.Memory))
		case at > 0.8:
			late = append(late, float64(x.Memory))
		}
	}
	l.fact("server cores, median", StatOf(cores).Median, "", 1)
	l.fact("server memory in the first third", StatOf(early).Median, Bytes, 0)
	l.fact("server memory in the last fifth, to that", StatOf(late).Median/StatOf(early).Median, "", 1.05)
	return nil
}
