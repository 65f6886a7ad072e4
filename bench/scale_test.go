package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestScale: a cluster of two instances with quotas, everything measured once; in the form soak three
// to twelve.
func TestScale(t *testing.T) {
	if _, err := newCPUQuotas(); errors.Is(err, errNoQuotas) {
		t.Skip(err)
	}
	form.SkipUntil(t, form.Full, "two clusters one after the other, with parts of a core")
	c := ScaleConfig{Sizes: []int{1, 2}, Quota: 0.5, Factor: 1, Rounds: 1, Callers: 8, Watchers: 20,
		Length: 400 * time.Millisecond, WarmUp: 50 * time.Millisecond}
	if form.Is(form.Soak) {
		c = DefaultScale()
	}
	r, _ := measured(t, "scale", c.text(), c.run)
	for _, f := range r.Facts {
		if !(f.Value > 0) || math.IsInf(f.Value, 0) {
			t.Errorf("%s: %v", f.Text, f.Value)
		}
	}
	if want := 9 + 11*(len(c.Sizes)-1); len(r.Facts) != want {
		t.Errorf("there are %d facts, want %d", len(r.Facts), want)
	}
}

func TestFindCPUController(t *testing.T) {
	for _, x := range []struct {
		name, mounts, own, parent string
		v2                        bool
	}{
		{"version 1", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n",
			"3:memory:/other\n1:cpu,cpuacct:/own\n", "/sys/fs/cgroup/cpu,cpuacct/own", false},
		{"version 2", "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n", "0::/user.slice\n", "/sys/fs/cgroup/user.slice", true},
		{"both", "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n",
			"1:cpu:/\n0::/\n", "/sys/fs/cgroup/cpu", false},
	} {
		q, err := findCPUController(x.mounts, x.own)
		if err != nil || q.parent != x.parent || q.v2 != x.v2 {
			t.Errorf("%s: %+v, %v", x.name, q, err)
		}
	}
	if _, err := findCPUController("proc /proc proc rw 0 0\n", ""); !errors.Is(err, errNoQuotas) {
		t.Errorf("no control groups: %v", err)
	}
}

// ScaleConfig is the size of the measurement of horizontal scale.
type ScaleConfig struct {
	Sizes    []int   // numbers of instances, rising; multiples of Factor
	Quota    float64 // cores of an instance
	Factor   int     // replication factor
	Rounds   int
	Callers  int // for each replicaset: a closed loop's callers in proportion
	Watchers int // for each replicaset
	Length   time.Duration
	WarmUp   time.Duration
}

// DefaultScale is the full size.
func DefaultScale() ScaleConfig {
	return ScaleConfig{
		Sizes: []int{3, 6, 12}, Quota: 0.05, Factor: 3, Rounds: 5,
		Callers: 512, Watchers: 100, Length: 10 * time.Second, WarmUp: 3 * time.Second,
	}
}

// scaleConnections is how many clients the load has. Each has a connection to every instance.
const scaleConnections = 4

// text says what is done.
func (c ScaleConfig) text() string {
	return fmt.Sprintf("Instances in control groups with %s of a core each, of periods of %v; the load runs outside of them. "+
		"A cluster with replication factor %d grows over %s instances, %d rounds. For each replicaset there are %d callers of "+
		"pairs and of reads, and %d watchers of ten names; the open loop has half of the rate that the closed one had.",
		percent(c.Quota), quotaPeriod, c.Factor, strings.Trim(fmt.Sprint(c.Sizes), "[]"), c.Rounds, c.Callers, c.Watchers)
}

// run gives each instance of a cluster a small part of a core, so that one machine stands for
// many, and has the cluster grow. The load runs outside of the quotas.
func (c ScaleConfig) run(ctx context.Context, system *SignalboxSystem, l *longRun) error {
	s := scaleRun{ScaleConfig: c, longRun: l, seen: map[scaleFigure][]float64{}}
	for s.round = range c.Rounds {
		own, err := os.MkdirTemp(l.dir, "round-")
		if err != nil {
			return err
		}
		if err := s.grow(ctx, system, own); err != nil {
			return fmt.Errorf("round %d: %w", s.round+1, err)
		}
		if err := os.RemoveAll(own); err != nil {
			return err
		}
	}
	s.report()
	return nil
}

// scaleRun is the rounds of a measurement.
type scaleRun struct {
	ScaleConfig
	*longRun
	round int
	seen  map[scaleFigure][]float64 // by round
}

// scaleFigure is something that is measured on a cluster.
type scaleFigure struct {
	size int
	what string
}

// grow measures a cluster that grows once.
func (s *scaleRun) grow(ctx context.Context, system *SignalboxSystem, dir string) error {
	groups, err := newCPUQuotas()
	if err != nil {
		return err
	}
	defer groups.close()
	g, err := newGrowingCluster(ctx, system, dir, s.Factor, s.Sizes[0], slices.Max(s.Sizes))
	if err != nil {
		return err
	}
	defer g.stop()
	for _, size := range s.Sizes {
		if err := g.grow(ctx, size); err != nil {
			return fmt.Errorf("%d instances: %w", size, err)
		}
		for i := len(groups.children); i < size; i++ {
			if _, err := groups.add(); err != nil {
				return err
			}
			if err := groups.enter(i, g.processes[i].ID()); err != nil {
				return err
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
		if err := limit(s.Quota); err != nil {
			return err
		}
		if err := s.measure(ctx, &Server{processes: g.processes[:size]}, g.clients()[:size], size); err != nil {
			return fmt.Errorf("%d instances: %w", size, err)
		}
		if err := limit(0); err != nil { // while the cluster grows
			return err
		}
	}
	return nil
}

func (s *scaleRun) note(size int, what string, value float64) {
	f := scaleFigure{size, what}
	s.seen[f] = append(s.seen[f], value)
	logf(s.log, "round %d  %2d instances  %s: %s", s.round+1, size, what, digits(value))
}

// What is measured at each size.
const (
	scalePairs   = "pairs/s, closed loop"
	scaleHalf    = "p99 at half of that rate, open loop, ms"
	scaleStrict  = "STRICT reads/s"
	scaleSeen    = "changes seen by watchers/s"
	scaleUsed    = "part of the quotas that pairs used"
	scaleBusiest = "of which the busiest instance, of its own"
	scaleIdlest  = "and the least busy one"
	scaleClients = "cores of the load meanwhile"
	scaleMember  = "CPU a second of an instance that nobody uses, us"
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
	v := &trial{Settings: &Settings{Length: s.Length, WarmUp: s.WarmUp}, round: s.round}
	pairs, err := v.load(ctx, servers, plan, "lock-pairs", loadgen.Config{Callers: s.Callers * sets})
	if err != nil {
		return err
	}
	s.note(size, scalePairs, pairs.Rate)
	if pairs.perCPU > 0 {
		s.note(size, scaleUsed, pairs.Rate/pairs.perCPU/(s.Quota*float64(size)))
	}
	s.note(size, scaleClients, pairs.Own.Cores)
	used, err := servers.cpuOfEach()
	if err != nil {
		return err
	}
	for i := range used { // its warm-up included: what counts is who does less than the others
		used[i] = (used[i] - before[i]) / time.Since(begun).Seconds() / s.Quota
	}
	s.note(size, scaleBusiest, slices.Max(used))
	s.note(size, scaleIdlest, slices.Min(used))
	half, err := v.load(ctx, servers, plan, "lock-pairs", loadgen.Config{Callers: s.Callers * sets, Rate: pairs.Rate / 2})
	if err != nil {
		return err
	}
	s.note(size, scaleHalf, half.ms("pair", 99))
	reads, err := v.load(ctx, servers, plan, "describe-strict",
		loadgen.Config{Callers: s.Callers * sets, Keys: 1000 * sets, DataSize: 64})
	if err != nil {
		return err
	}
	s.note(size, scaleStrict, reads.Rate)
	const names = 10
	watches, err := v.load(ctx, servers, plan, "watch-stream",
		loadgen.Config{Callers: names * sets, Watchers: s.Watchers * sets, DataSize: 64})
	if err != nil {
		return err
	}
	s.note(size, scaleSeen, watches.Rate*float64(s.Watchers)/names)
	return nil
}

// report turns the rounds into facts: medians, and what grows with the instances.
func (s *scaleRun) report() {
	for _, size := range s.Sizes {
		text := fmt.Sprintf("%d instances: ", size)
		for _, what := range []string{scalePairs, scaleHalf, scaleStrict, scaleSeen, scaleUsed, scaleBusiest, scaleIdlest,
			scaleClients, scaleMember} {
			list := s.seen[scaleFigure{size, what}]
			s.fact(text+what, StatOf(list).Median, "")
			if size > s.Sizes[0] && (what == scalePairs || what == scaleHalf) {
				s.fact(text+"that, to the smallest", StatOf(ratios(list, s.seen[scaleFigure{s.Sizes[0], what}])).Median, "")
			}
		}
	}
}

// percent writes a part as per cents: 0.125 is 12.5 %.
func percent(part float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*part), ".0") + " %"
}
