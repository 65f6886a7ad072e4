package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// ScaleConfig is the size of the test of horizontal scale.
type ScaleConfig struct {
	Sizes    []int     // numbers of instances, rising; multiples of Factor
	Quotas   []float64 // cores of an instance
	Factor   int       // replication factor
	Rounds   int
	Callers  int // for each replicaset: a closed loop's callers in proportion
	Watchers int // for each replicaset
	Sessions int // idle ones, on the largest cluster; 0: none
	Length   time.Duration
	WarmUp   time.Duration
}

// DefaultScale is the one that the bar is about.
func DefaultScale() ScaleConfig {
	return ScaleConfig{
		Sizes: []int{3, 6, 12}, Quotas: []float64{0.05}, Factor: 3, Rounds: 5,
		Callers: 512, Watchers: 100, Sessions: 100_000, Length: 10 * time.Second, WarmUp: 3 * time.Second,
	}
}

// scaleConnections is how many clients the load has. Each has a connection to every instance.
const scaleConnections = 4

// text implements longTest.
func (c ScaleConfig) text() string {
	return fmt.Sprintf("Instances in control groups with a CPU quota each, of periods of %v; the load runs outside of them. "+
		"A cluster with replication factor %d grows over %s instances, %d rounds. For each replicaset there are %d callers of "+
		"pairs and of reads, and %d watchers of ten names; the open loop has half of the rate that the closed one had.",
		quotaPeriod, c.Factor, strings.Trim(fmt.Sprint(c.Sizes), "[]"), c.Rounds, c.Callers, c.Watchers)
}

// run gives each instance of a cluster a small part of a core, so that one machine stands for
// many, and has the cluster grow. The load runs outside of the quotas.
func (c ScaleConfig) run(ctx context.Context, l *longRun) error {
	seen := map[scalePoint]map[string][]float64{}
	var idle []Fact
	for round := range c.Rounds {
		for i, quota := range c.Quotas {
			s := scaleRun{
				ScaleConfig: c, quota: quota, seen: seen, log: l.log,
				trial: &trial{Settings: &Settings{Length: c.Length, WarmUp: c.WarmUp}, round: round},
			}
			own, err := os.MkdirTemp(l.dir, "round-")
			if err != nil {
				return err
			}
			last := round == c.Rounds-1 && i == len(c.Quotas)-1
			if idle, err = s.run(ctx, l.system, own, last); err != nil {
				return fmt.Errorf("round %d at %s of a core: %w", round+1, percent(quota), err)
			}
			if err := os.RemoveAll(own); err != nil {
				return err
			}
		}
	}
	c.report(l.Record, seen)
	l.Facts = append(l.Facts, idle...)
	return nil
}

// scalePoint is a cluster that was measured.
type scalePoint struct {
	quota float64
	size  int
}

// scaleRun is a cluster that grows once.
type scaleRun struct {
	ScaleConfig
	*trial
	quota float64
	seen  map[scalePoint]map[string][]float64
	log   io.Writer
}

func (s *scaleRun) run(ctx context.Context, system *SignalboxSystem, dir string, last bool) (idle []Fact, err error) {
	groups, err := newCPUQuotas()
	if err != nil {
		return nil, err
	}
	defer groups.close()
	g, err := newResizableCluster(ctx, system, GrowConfig{Factor: s.Factor, Steps: s.Sizes}, dir)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	for _, size := range s.Sizes {
		if err := g.resize(ctx, size); err != nil {
			return nil, fmt.Errorf("%d instances: %w", size, err)
		}
		for i := len(groups.children); i < size; i++ {
			if _, err := groups.add(); err != nil {
				return nil, err
			}
			if err := groups.enter(i, g.processes[i].ID()); err != nil {
				return nil, err
			}
		}
		limit := func(cores float64) error {
			for i := range size {
				if err := groups.limit(i, cores); err != nil {
					return err
				}
			}
			return nil
		}
		if err := limit(s.quota); err != nil {
			return nil, err
		}
		if err := s.measure(ctx, &Server{processes: g.processes[:size]}, g.clients()[:size], size); err != nil {
			return nil, fmt.Errorf("%d instances: %w", size, err)
		}
		if err := limit(0); err != nil { // while the cluster grows
			return nil, err
		}
	}
	if size := slices.Max(s.Sizes); last && s.Sessions > 0 {
		return s.idleSessions(ctx, &Server{processes: g.processes[:size]}, g.clients()[:size])
	}
	return nil, nil
}

func (s *scaleRun) note(size int, what string, value float64) {
	p := scalePoint{s.quota, size}
	if s.seen[p] == nil {
		s.seen[p] = map[string][]float64{}
	}
	s.seen[p][what] = append(s.seen[p][what], value)
	logf(s.log, "round %d  %s of a core  %2d instances  %-12s %s",
		s.round+1, percent(s.quota), size, what, digits(value))
}

// Names of what is measured at a point.
const (
	scalePairs   = "pairs"
	scaleHalf    = "half-p99"
	scaleStrict  = "strict"
	scaleSeen    = "seen"
	scaleUsed    = "used" // part of the quotas that the servers used in the closed loop
	scaleBusiest = "busiest"
	scaleIdlest  = "idlest"
	scaleMember  = "idle" // CPU of an instance that nobody uses, us a second
	scaleClients = "load" // cores of the load in the closed loop
)

func (s *scaleRun) measure(ctx context.Context, servers *Server, endpoints []string, size int) error {
	idle, err := servers.cpuOver(ctx, s.Length/2)
	if err != nil {
		return err
	}
	s.note(size, scaleMember, float64(idle.Microseconds())/(s.Length/2).Seconds()/float64(size))
	sets := size / s.Factor
	before, err := servers.cpuOfEach()
	if err != nil {
		return err
	}
	begun := time.Now()
	plan := Plan{Target: signalboxTarget(endpoints...), Connections: scaleConnections}
	pairs, err := s.load(ctx, servers, plan, "lock-pairs", loadgen.Config{Callers: s.Callers * sets})
	if err != nil {
		return err
	}
	s.note(size, scalePairs, pairs.Rate)
	if pairs.perCPU > 0 {
		s.note(size, scaleUsed, pairs.Rate/pairs.perCPU/(s.quota*float64(size)))
	}
	s.note(size, scaleClients, pairs.Own.Cores)
	used, err := servers.cpuOfEach()
	if err != nil {
		return err
	}
	for i := range used { // its warm-up included: what counts is who does less than the others
		used[i] = (used[i] - before[i]) / time.Since(begun).Seconds() / s.quota
	}
	s.note(size, scaleBusiest, slices.Max(used))
	s.note(size, scaleIdlest, slices.Min(used))
	half, err := s.load(ctx, servers, plan, "lock-pairs",
		loadgen.Config{Callers: s.Callers * sets, Rate: pairs.Rate / 2})
	if err != nil {
		return err
	}
	s.note(size, scaleHalf, half.ms("pair", 99))
	reads, err := s.load(ctx, servers, plan, "describe-strict",
		loadgen.Config{Callers: s.Callers * sets, Keys: 1000 * sets, DataSize: 64})
	if err != nil {
		return err
	}
	s.note(size, scaleStrict, reads.Rate)
	const names = 10
	watches, err := s.load(ctx, servers, plan, "watch-stream",
		loadgen.Config{Callers: names * sets, Watchers: s.Watchers * sets, DataSize: 64})
	if err != nil {
		return err
	}
	s.note(size, scaleSeen, watches.Rate*float64(s.Watchers)/names)
	return nil
}

// idleSessions starts sessions on the largest cluster, without quotas, and says what each instance
// needs for them.
func (s *scaleRun) idleSessions(ctx context.Context, servers *Server, endpoints []string) ([]Fact, error) {
	plan := Plan{Target: signalboxTarget(endpoints...), Connections: SharedConnections}
	sessions, err := openIdleSessions(ctx, plan, s.Sessions)
	defer sessions.close()
	if err != nil {
		return nil, err
	}
	if err := servers.collect(ctx); err != nil {
		return nil, err
	}
	before, err := servers.cpuOfEach()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, s.Length); err != nil {
		return nil, err
	}
	after, err := servers.cpuOfEach()
	if err != nil {
		return nil, err
	}
	var memory []float64
	for _, p := range servers.processes {
		u, err := p.Usage()
		if err != nil {
			return nil, err
		}
		memory = append(memory, float64(u.Resident))
	}
	if err := sessions.checkAlive(); err != nil {
		return nil, err
	}
	for i := range after {
		after[i] = (after[i] - before[i]) * 1e6 / s.Length.Seconds()
	}
	text := fmt.Sprintf("%d instances, %s idle sessions: ", len(endpoints), loadgen.Thousands(fmt.Sprint(s.Sessions)))
	m, cpu := StatOf(memory), StatOf(after)
	return []Fact{
		{text + "memory of an instance, median", m.Median, Bytes, 0},
		{text + "memory of an instance, most", m.High, Bytes, 0},
		{text + "CPU a second of an instance, median", cpu.Median, Microseconds, 0},
		{text + "CPU a second of an instance, most", cpu.High, Microseconds, 0},
	}, nil
}

// report turns the rounds into facts: medians, and what they grow by with the replicasets.
func (c *ScaleConfig) report(r *Record, seen map[scalePoint]map[string][]float64) {
	for _, quota := range c.Quotas {
		first := seen[scalePoint{quota, c.Sizes[0]}]
		for _, size := range c.Sizes {
			at := seen[scalePoint{quota, size}]
			median := func(what string) float64 { return StatOf(at[what]).Median }
			text := fmt.Sprintf("%s of a core, %d instances: ", percent(quota), size)
			r.fact(text+"pairs/s, closed loop", median(scalePairs), PerSecond, 0)
			if size > c.Sizes[0] {
				// As the bar is a lower one, the fact is its reciprocal: how much is missing to linear growth.
				grown := StatOf(ratios(at[scalePairs], first[scalePairs])).Median
				r.fact(text+"that, to the smallest", grown, "", 0)
				r.fact(text+"linear growth, to that", float64(size/c.Sizes[0])/grown, "", 1/0.9)
				p99 := StatOf(ratios(at[scaleHalf], first[scaleHalf])).Median
				r.fact(text+"p99 at half of the rate, to the smallest", p99, "", 0)
			}
			r.fact(text+"p99 at half of that rate, open loop", median(scaleHalf), Milliseconds, 0)
			r.fact(text+"STRICT reads/s", median(scaleStrict), PerSecond, 0)
			r.fact(text+"changes seen by watchers/s", median(scaleSeen), PerSecond, 0)
			r.fact(text+"part of the quotas that pairs used", median(scaleUsed), "", 0)
			r.fact(text+"of which the busiest instance, of its own", median(scaleBusiest), "", 0)
			r.fact(text+"and the least busy one", median(scaleIdlest), "", 0)
			r.fact(text+"cores of the load meanwhile", median(scaleClients), "", 0)
			r.fact(text+"CPU a second of an instance that nobody uses", median(scaleMember), Microseconds, 0)
		}
	}
}
