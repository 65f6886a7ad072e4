package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// SoakConfig is the size of the test of hours.
type SoakConfig struct {
	Length  time.Duration
	Window  time.Duration // in each an instance is killed, the shards change, and versions roll out
	Rate    float64       // mixed operations a second
	Callers int
	Members int // of services, of which Churn per cent restart each minute
	Churn   float64
}

// DefaultSoak is the one that the bar is about.
func DefaultSoak() SoakConfig {
	return SoakConfig{
		Length: 2 * time.Hour, Window: 5 * time.Minute, Rate: 2000, Callers: 64, Members: 500, Churn: 10,
	}
}

// soakInstances is how many there are. The first is never killed: what it needs is to stay the same.
const soakInstances = 3

// Names of what is sampled, in the metrics of an instance.
var soakSampled = []struct {
	text, metric string
	unit         Unit
	bar          float64 // of the last quarter to the first; the log goes up and down between snapshots
}{
	{"memory", "process_resident_memory_bytes", Bytes, 1.1},
	{"goroutines", "go_goroutines", "", 1.1},
	{"open files", "process_open_fds", "", 1.1},
	{"log", "signalbox_log_bytes", Bytes, 1.5},
}

// text implements longTest.
func (c SoakConfig) text() string {
	return fmt.Sprintf("%d instances, replication factor %d, for %v: %s mixed operations a second; %d members of services, of which "+
		"%s %% restart each minute, with as many watchers; a track with two locations. In each window of %v the second "+
		"or the third instance is killed and started again, the tier goes from one shard to two or back, and five "+
		"versions roll out. The first instance is never killed.",
		soakInstances, soakInstances, c.Length, digits(c.Rate), c.Members, digits(c.Churn), c.Window)
}

// run runs three instances for hours, under a mixed load, services that restart, rollouts,
// changes of shards with their moves, and kills, and compares the last quarter with the first.
func (c SoakConfig) run(ctx context.Context, l *longRun) error {
	windows := int(c.Length / c.Window)
	if windows < 4 {
		return fmt.Errorf("%v have fewer than four windows of %v: the quarters cannot be compared", c.Length, c.Window)
	}
	g, err := newResizableCluster(ctx, l.system, GrowConfig{Factor: soakInstances, Steps: []int{soakInstances}}, l.dir)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := g.resize(ctx, soakInstances); err != nil {
		return err
	}
	s := &soak{SoakConfig: c, cluster: g, windows: windows, log: l.log}
	if err := s.run(ctx); err != nil {
		return err
	}
	s.report(l.Record)
	return nil
}

type soak struct {
	SoakConfig
	cluster *resizableCluster
	windows int
	log     io.Writer

	mu      sync.Mutex
	samples map[string][][]float64 // by metric: those of each window
	applied int                    // versions that an instance of the track loaded

	p99    []float64 // of each window
	errors uint64
	count  uint64
	kills  int
	shards int
	joined float64 // p99 of the services' whole run, ms
}

func (s *soak) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	publish, err := s.startRollout(ctx, &wg, cancel)
	if err != nil {
		return err
	}
	wg.Go(func() {
		if err := s.runServices(ctx); err != nil {
			cancel(fmt.Errorf("services: %w", err))
		}
	})
	mix, err := loadgen.Find("mixed")
	if err != nil {
		return err
	}
	for i := range s.windows {
		ended := make(chan error, 1)
		begun := time.Now()
		go func() { ended <- s.disturb(ctx, i, publish) }()
		out, err := loadgen.Run(ctx, loadgen.Config{
			Scenario: mix, Target: signalboxTarget(s.cluster.clients()...), Connections: 4, Callers: s.Callers, Rate: s.Rate,
			Deadline: callDeadline, Duration: s.Window * 9 / 10, Seed: uint64(i) + 1,
		})
		if err = errors.Join(err, <-ended); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return fmt.Errorf("window %d: %w", i+1, err)
		}
		s.count += out.Operations
		s.errors += out.ErrorCount()
		s.p99 = append(s.p99, (&outcome{Result: out}).ms("operation", 99))
		logf(s.log, "window %d of %d: %d operations, p99 %s ms, errors: %s",
			i+1, s.windows, out.Operations, digits(s.p99[i]), codes(out))
		if err := pause(ctx, s.Window-time.Since(begun)); err != nil {
			return err
		}
	}
	return nil
}

// disturb does to the cluster what window i has in store for it, and samples the first instance
// meanwhile.
func (s *soak) disturb(ctx context.Context, i int, publish func(ctx context.Context) error) error {
	const steps = 20
	for step := range steps {
		if err := pause(ctx, s.Window*9/10/steps); err != nil {
			return err
		}
		s.sample(ctx, i)
		var err error
		switch {
		case step == 4:
			s.cluster.processes[1+i%2].Kill()
			s.kills++
		case step == 5:
			err = s.cluster.start(ctx, 1+i%2)
		case step == 12:
			_, err = admin.New(s.cluster.operator).SetShards(ctx, "default", uint32(2-i%2))
			s.shards++
		case step%4 == 3:
			err = publish(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sample asks the first instance for its metrics.
func (s *soak) sample(ctx context.Context, window int) {
	m, err := loadgen.ReadMetrics(ctx, s.cluster.addr[0][2])
	if err != nil {
		return // one look of twenty
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.samples == nil {
		s.samples = map[string][][]float64{}
	}
	for _, x := range soakSampled {
		for len(s.samples[x.metric]) <= window {
			s.samples[x.metric] = append(s.samples[x.metric], nil)
		}
		s.samples[x.metric][window] = append(s.samples[x.metric][window], m[x.metric])
	}
}

// runServices has members register and restart until ctx ends.
func (s *soak) runServices(ctx context.Context) error {
	scenario, err := loadgen.Find("discovery")
	if err != nil {
		return err
	}
	out, err := loadgen.Run(ctx, loadgen.Config{
		Scenario: scenario, Target: signalboxTarget(s.cluster.clients()...), Connections: 20,
		Sessions: s.Members, Watchers: s.Members, Churn: s.Churn, Duration: s.Length * 9 / 10, Patience: 30 * time.Second,
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = (&outcome{Result: out}).ms("joined", 99)
	return nil
}

// startRollout makes a track with an instance in each of two locations. publish gives it the next
// version.
func (s *soak) startRollout(
	ctx context.Context, wg *sync.WaitGroup, cancel context.CancelCauseFunc,
) (publish func(ctx context.Context) error, err error) {
	cl, err := client.Open(ctx, client.Config{Endpoints: s.cluster.clients()})
	if err != nil {
		return nil, err
	}
	wg.Go(func() {
		<-ctx.Done()
		cl.Close()
	})
	const name = "soak/base"
	operator, err := cl.Session(ctx, client.DefaultNode)
	if err != nil {
		return nil, err
	}
	order := []rollout.Location{{Name: "first"}, {Name: "second", Delay: s.Window / 100}}
	if _, err := rollout.Open(operator, name).Create(ctx,
		rollout.Config{Source: rollout.Published, Locations: order}); err != nil {
		return nil, err
	}
	for _, l := range order {
		f, err := rollout.NewFollower(rollout.FollowerOptions{
			Client: cl, Node: client.DefaultNode, Track: name, ID: l.Name, Location: l.Name,
			Update: func(context.Context, rollout.Version) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.applied++
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			if err := f.Run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("rollout: %w", err))
			}
		})
	}
	number := uint64(0)
	return func(ctx context.Context) error {
		number++
		session, err := cl.Session(ctx, client.DefaultNode) // the last one may have ended with an instance
		if err != nil {
			return err
		}
		defer session.Close(ctx)
		_, err = rollout.Open(session, name).Publish(ctx, number, []byte(strconv.FormatUint(number, 10)))
		return err
	}, nil
}

func (s *soak) report(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	quarter := s.windows / 4
	compare := func(text string, unit Unit, bar float64, first, last []float64) {
		a, b := StatOf(first).Median, StatOf(last).Median
		r.fact(text+", first quarter", a, unit, 0)
		r.fact(text+", last quarter", b, unit, 0)
		r.fact(text+", last to first", b/a, "", bar)
	}
	for _, x := range soakSampled {
		var first, last []float64
		for i, list := range s.samples[x.metric] {
			switch {
			case i < quarter:
				first = append(first, list...)
			case i >= s.windows-quarter:
				last = append(last, list...)
			}
		}
		compare(x.text+" of the first instance", x.unit, x.bar, first, last)
	}
	compare("p99 of an operation", Milliseconds, 1.25, s.p99[:quarter], s.p99[len(s.p99)-quarter:])
	r.fact("operations", float64(s.count), "", 0)
	r.fact("of them errors", float64(s.errors), "", 0)
	r.fact("a member that joined is seen, p99", s.joined, Milliseconds, 0)
	r.fact("versions that an instance of the track loaded", float64(s.applied), "", 0)
	r.fact("instances killed", float64(s.kills), "", 0)
	r.fact("changes of the number of shards", float64(s.shards), "", 0)
}
