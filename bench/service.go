package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// ServiceConfig is the size of the test of one large service.
type ServiceConfig struct {
	Members, Watchers int
	Copies            int           // of the SDK, which must equal the server's list at the end
	Pairs             float64       // of others, a second
	Slow, Busy        time.Duration // lengths of the two loads
	Changes           float64       // a second, in the second load: half of them leave, and as many join
	PerProcess        int           // watchers of a process
}

// DefaultService is the one that the bars are about.
func DefaultService() ServiceConfig {
	return ServiceConfig{
		Members: 5000, Watchers: 2000, Copies: 50, Pairs: 1000, Slow: time.Minute, Busy: 3 * time.Minute, Changes: 17,
		PerProcess: 1000,
	}
}

const (
	serviceNode = "/default"
	serviceName = "api"
	slowChanges = 1.0 // a second, in the first load
)

// text says what is done.
func (c ServiceConfig) text() string {
	copies := ""
	if c.Copies > 0 {
		copies = fmt.Sprintf("; %d copies of the SDK", c.Copies)
	}
	return fmt.Sprintf("Three instances. One service of %s members, with data of client/discovery; %s watchers with a "+
		"client each, in processes of their own%s. Others lock and unlock at %.0f pairs/s meanwhile. First one member "+
		"changes each second, then members restart, %.0f changes/s. A delay counts from the call that changes or "+
		"registers until the watcher's program has it. Then the instance that leads is killed. Watchers, members, "+
		"callers and instances share the machine.",
		loadgen.Thousands(fmt.Sprint(c.Members)), loadgen.Thousands(fmt.Sprint(c.Watchers)), copies, c.Pairs, c.Changes)
}

// runService. Thousands watch one service of thousands: they all begin at once, members change
// and restart, and the instance that leads is killed. Copies of the SDK are of ours alone.
func runService(ctx context.Context, c ServiceConfig, system System, root string, log io.Writer) (*Record, error) {
	of, ok := system.(ServiceSystem)
	if !ok {
		return nil, errors.New("the program does not have this system, or it has no services; bench-peers has etcd")
	}
	name := "service"
	if _, ours := system.(*SignalboxSystem); !ours {
		name, c.Copies = "service-"+slug(system.Name()), 0
	}
	return runRecorded(ctx, name, c.text(), system, root, func(r *Record, dir string) error {
		s := &serviceRun{ServiceConfig: c, Record: r, system: of, dir: dir, log: log}
		defer s.close()
		return s.run(ctx)
	})
}

func (s *serviceRun) run(ctx context.Context) error {
	c := s.ServiceConfig
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"members", s.start},
		{"cold start", s.coldStart},
		{"one change a second", func(ctx context.Context) error {
			return s.load(ctx, c.Slow, slowChanges, 250, s.change)
		}},
		{"members restart", func(ctx context.Context) error { return s.load(ctx, c.Busy, c.Changes, 1500, s.restart) }},
		{"leader killed", s.killLeader},
		{"copies", s.compareCopies},
	} {
		logf(s.log, "%s", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// serviceRun is one such test.
type serviceRun struct {
	ServiceConfig
	*Record
	system   ServiceSystem
	dir      string
	log      io.Writer
	cluster  *Server
	registry ServiceRegistry
	members  []*serviceMember
	watchers []*watcherProcess
	copies   []*serviceCopy
}

// serviceMember is a place in the service; one goroutine at a time has it.
type serviceMember struct {
	mu         sync.Mutex
	i          int
	addr, zone string
	in         ServiceMember
}

type serviceCopy struct {
	client    *client.Client
	endpoints *discovery.Endpoints
}

func (s *serviceRun) close() {
	for _, w := range s.watchers {
		w.stop()
	}
	for _, x := range s.copies {
		x.endpoints.Close()
		_ = x.client.Close()
	}
	if s.registry != nil {
		s.registry.Close()
	}
	if s.cluster != nil {
		s.cluster.Stop()
	}
}

// start starts the cluster and registers the members.
func (s *serviceRun) start(ctx context.Context) (err error) {
	if s.cluster, err = s.system.StartCluster(ctx, s.dir); err != nil {
		return err
	}
	if s.registry, err = s.system.OpenRegistry(ctx, s.cluster); err != nil {
		return err
	}
	for i := range s.Members {
		s.members = append(s.members, &serviceMember{
			i: i, addr: fmt.Sprintf("10.%d.%d.%d:80", i>>16&255, i>>8&255, i&255),
			zone: []string{"zone-a", "zone-b", "zone-c"}[i%3],
		})
	}
	return loadgen.Parallel(ctx, s.Members, func(ctx context.Context, i int) error { return s.join(ctx, s.members[i]) })
}

// data says when it was made, which watchers look for.
func (m *serviceMember) data() ([]byte, error) {
	e := discovery.Endpoint{Addr: m.addr, Zone: m.zone, Meta: map[string]string{"at": fmt.Sprint(time.Now().UnixNano())}}
	return e.Data()
}

func (s *serviceRun) join(ctx context.Context, m *serviceMember) error {
	data, err := m.data()
	if err != nil {
		return err
	}
	in, err := s.registry.Register(ctx, m.i, m.addr, data)
	if err == nil {
		m.in = in
	}
	return err
}

// change has a member write new data.
func (s *serviceRun) change(ctx context.Context) (changes int, err error) {
	m := s.members[rand.IntN(len(s.members))]
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := m.data()
	if err != nil {
		return 0, err
	}
	if err = m.in.Update(ctx, data); err == nil {
		changes = 1
	}
	return changes, err
}

// restart ends a member's session, and registers it under another.
func (s *serviceRun) restart(ctx context.Context) (changes int, err error) {
	m := s.members[rand.IntN(len(s.members))]
	m.mu.Lock()
	defer m.mu.Unlock()
	err = m.in.Leave(ctx)
	if err == nil {
		changes++
	}
	// A place whose member could not leave is taken by the next one all the same.
	if joinErr := s.join(ctx, m); joinErr != nil {
		return changes, errors.Join(err, joinErr)
	}
	return changes + 1, err
}

// coldStart has all watchers begin at once.
func (s *serviceRun) coldStart(ctx context.Context) error {
	began := time.Now()
	for left := s.Watchers; left > 0; left -= s.PerProcess {
		args, err := s.registry.Watchers(ctx, min(left, s.PerProcess))
		if err != nil {
			return err
		}
		w, err := startWatchers(args)
		if err != nil {
			return err
		}
		s.watchers = append(s.watchers, w)
	}
	most := uint64(0)
	last, err := s.await(ctx, func() (bool, WatcherStats, error) {
		if u, err := s.cluster.Usage(); err == nil {
			most = max(most, u.Resident)
		}
		sum, _, err := askAll(s.watchers, "stats")
		return sum.Begun == s.Watchers, sum, err
	})
	if err != nil {
		return err
	}
	s.fact("cold start of all watchers", last.Sub(began).Seconds(), "s", 0)
	s.fact("memory of the three instances meanwhile, at most", float64(most), Bytes, 0)
	for range s.Copies {
		c, err := s.registry.(*signalboxRegistry).open(ctx)
		if err != nil {
			return err
		}
		e, err := discovery.Watch(c, serviceNode, serviceName)
		if err == nil {
			s.copies = append(s.copies, &serviceCopy{c, e})
			err = e.Wait(ctx)
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return nil
}

// await waits until all watchers have what is asked for, and returns when the last one got it.
func (s *serviceRun) await(ctx context.Context, done func() (bool, WatcherStats, error)) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	err = Poll(ctx, 100*time.Millisecond, func(context.Context) error {
		ok, sum, err := done()
		if err == nil && !ok {
			err = fmt.Errorf("of %d watchers %d have the list and %d see changes; the newest error is %q",
				s.Watchers, sum.Begun, sum.Current, sum.Failed)
		}
		last = time.Unix(0, sum.Last)
		return err
	})
	return last, err
}

// load makes changes at a rate, and others' pairs.
func (s *serviceRun) load(
	ctx context.Context, length time.Duration, changes, bar float64, change func(context.Context) (int, error),
) error {
	if _, _, err := askAll(s.watchers, "reset"); err != nil {
		return err
	}
	stop := make(chan struct{})
	samples := sampleServer(s.cluster, max(length/60, 50*time.Millisecond), stop)
	var all sync.WaitGroup
	var pairs *loadgen.Result
	var pairsErr error
	all.Go(func() { pairs, pairsErr = s.pairs(ctx, length) })
	made, failed := s.changes(ctx, length, changes, change)
	all.Wait()
	close(stop)
	list := <-samples
	if made == 0 {
		return fmt.Errorf("no change took effect: %w", errors.Join(failed...))
	}
	if len(list) == 0 {
		return errTooShort
	}
	h, err := s.seen(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("at %.0f a second: ", changes)
	s.fact(text+"changes/s", float64(made)/length.Seconds(), PerSecond, 0)
	s.fact(text+"changes that failed", float64(len(failed)), "", 0)
	s.fact(text+"seen by watchers, p50", float64(h.ValueAtQuantile(50))/1e3, Milliseconds, 0)
	s.fact(text+"seen by watchers, p99", float64(h.ValueAtQuantile(99))/1e3, Milliseconds, bar)
	if pairsErr != nil {
		logf(s.log, "others lock and unlock nothing: %v", pairsErr)
		s.fact(text+"others' pairs/s", 0, PerSecond, 0)
	} else {
		o := outcome{Result: pairs}
		s.fact(text+"others' pairs/s", pairs.Rate, PerSecond, 0)
		s.fact(text+"others' pairs, p99", o.ms("pair", 99), Milliseconds, 250)
	}
	early, late, cores := memoryOf(list)
	s.fact(text+"cores of the three instances", cores, "", 0)
	s.fact(text+"their memory in the first third", early, Bytes, 0)
	s.fact(text+"their memory in the last third, to that", late/early, "", 1.05)
	return nil
}

// seen returns the delays of a load's changes, those on their way at its end included.
func (s *serviceRun) seen(ctx context.Context) (h *hdrhistogram.Histogram, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := pause(ctx, 2*time.Second); err != nil {
		return nil, err
	}
	err = Poll(ctx, 100*time.Millisecond, func(context.Context) error {
		_, delays, err := askAll(s.watchers, "stats")
		if h = delays; err == nil && h.TotalCount() == 0 {
			err = errors.New("no watcher has seen a change")
		}
		return err
	})
	return h, err
}

// memoryOf is the median memory of the first and the last third, and the median of the cores.
func memoryOf(list []Sample) (early, late, cores float64) {
	var memory, used []float64
	for _, x := range list {
		memory, used = append(memory, float64(x.Memory)), append(used, x.Cores)
	}
	third := max(1, len(memory)/3)
	return StatOf(memory[:third]).Median, StatOf(memory[len(memory)-third:]).Median, StatOf(used).Median
}

// changes calls change at a rate, however long a call takes, and returns how many changes were made
// and why others were not: a system that is given too much refuses some, which is a figure too.
func (s *serviceRun) changes(
	ctx context.Context, length time.Duration, rate float64, change func(context.Context) (int, error),
) (made int, failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	per := slowChanges
	if rate > slowChanges {
		per = 2 // changes of a restart
	}
	t := time.NewTicker(time.Duration(per / rate * float64(time.Second)))
	defer t.Stop()
	over := time.After(length)
	for running := true; running; {
		select {
		case <-t.C:
			all.Go(func() {
				n, err := change(ctx)
				mu.Lock()
				defer mu.Unlock()
				made += n
				if err != nil {
					failed = append(failed, err)
				}
			})
		case <-over:
			running = false
		case <-ctx.Done():
			running = false
		}
	}
	all.Wait()
	return made, failed
}

func (s *serviceRun) pairs(ctx context.Context, length time.Duration) (*loadgen.Result, error) {
	scenario, err := loadgen.Find("lock-pairs")
	if err != nil {
		return nil, err
	}
	plan, err := s.cluster.Plan(Watchers)
	if err != nil {
		return nil, err
	}
	warm := min(2*time.Second, length/4)
	return loadgen.Run(ctx, loadgen.Config{
		Scenario: scenario, Target: plan.Target, Connections: 4, Callers: 256, Rate: s.Pairs,
		WarmUp: warm, Duration: length - warm, Patience: time.Minute,
	})
}

// killLeader kills the instance that leads most, while members change, and waits until all watchers
// have seen a change that was made after it.
func (s *serviceRun) killLeader(ctx context.Context) error {
	i, err := s.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	if _, _, err := askAll(s.watchers, "reset"); err != nil {
		return err
	}
	began := time.Now()
	s.cluster.processes[i].Kill()
	last, err := s.await(ctx, func() (bool, WatcherStats, error) {
		if _, err := s.change(ctx); err != nil {
			return false, WatcherStats{}, err
		}
		sum, _, err := askAll(s.watchers, "stats")
		return sum.Current == s.Watchers, sum, err
	})
	if err != nil {
		return err
	}
	s.fact("leader killed: all watchers have seen a later change after", last.Sub(began).Seconds(), "s", 15)
	if err := s.cluster.Restart(ctx, i); err != nil {
		return err
	}
	return s.cluster.WaitReady(ctx)
}

// compareCopies waits until each copy is what the server lists.
func (s *serviceRun) compareCopies(ctx context.Context) error {
	if s.Copies == 0 {
		return nil
	}
	node, err := s.registry.(*signalboxRegistry).clients[0].Node(ctx, serviceNode)
	if err != nil {
		return err
	}
	list, err := node.Service(serviceName).List(ctx)
	if err != nil {
		return err
	}
	want := make(map[string]uint64)
	for _, m := range list {
		e, err := discovery.Parse(m.Data)
		if err != nil {
			return err
		}
		want[e.Addr] = m.Token
	}
	if len(want) != s.Members {
		return fmt.Errorf("the server lists %d members; %d are registered", len(want), s.Members)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i, x := range s.copies {
		if err := Poll(ctx, 50*time.Millisecond, func(context.Context) error {
			v, got := x.endpoints.View(), make(map[string]uint64)
			for _, e := range v.All {
				got[e.Addr] = e.Token
			}
			if !v.Live || !maps.Equal(got, want) {
				return fmt.Errorf("copy %d has %d endpoints, live %v, and the server lists %d; they differ",
					i+1, len(got), v.Live, len(want))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	s.fact("copies of the SDK that equal the server's list at the end", float64(len(s.copies)), "", 0)
	return nil
}
