package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// FailoverPeer is a Clustered whose servers can be taken away and started again.
type FailoverPeer interface {
	ClusterPeer

	// StartClusterOn is StartCluster on hosts, with further flags. The group can tell who leads,
	// and whether it is whole again.
	StartClusterOn(ctx context.Context, dir string, hosts *Hosts, flags ...string) (*Cluster, error)
}

// NeedsCallTimeout is a Peer whose client waits for ever for an answer of a server that hangs: its
// calls need a deadline of their own, and are repeated.
type NeedsCallTimeout interface{ CallTimeout() time.Duration }

// FailoverConfig is the size of the measurement of failovers.
type FailoverConfig struct {
	Writers int
	Times   int // of each fault
	Watch   time.Duration
	Only    []string // faults; none is all
	Costs   bool     // what faster settings cost, too
	Idle    time.Duration
}

// DefaultFailover is the one that the bars are about.
func DefaultFailover() FailoverConfig {
	return FailoverConfig{Writers: 32, Times: 10, Watch: 6 * time.Second, Costs: true, Idle: 20 * time.Second}
}

// fault takes a server away, and gives it back.
type fault struct {
	name, text string
	bar        float64 // ms at p50; 0: as long as the peer's
	do, undo   func(ctx context.Context, g *Cluster, hosts *Hosts, i int) error
}

func sends(s syscall.Signal) func(context.Context, *Cluster, *Hosts, int) error {
	return func(_ context.Context, g *Cluster, _ *Hosts, i int) error {
		return g.processes[i].cmd.Process.Signal(s)
	}
}

func startAgain(ctx context.Context, g *Cluster, _ *Hosts, i int) error {
	select {
	case <-g.processes[i].done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return g.Restart(ctx, i)
}

var faults = []fault{
	{"kill", "kill -9", 1000, sends(syscall.SIGKILL), startAgain},
	{"pause", "SIGSTOP", 0, sends(syscall.SIGSTOP), sends(syscall.SIGCONT)},
	{"cut", "all packets dropped", 0,
		func(ctx context.Context, _ *Cluster, h *Hosts, i int) error { return h.Isolate(ctx, i) },
		func(ctx context.Context, _ *Cluster, h *Hosts, i int) error { return h.Heal(ctx, i) }},
	{"stop", "SIGTERM, a planned stop", 100, sends(syscall.SIGTERM), startAgain},
}

// RunFailover measures how long writers wait when the server that leads is taken away, of all
// systems in turn. hosts may be nil: nothing is cut off then.
func RunFailover(ctx context.Context, systems []FailoverPeer, c FailoverConfig, hosts *Hosts, root string, log io.Writer) (*Record, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, s := range systems {
		v, err := s.Version(ctx)
		if err != nil {
			return nil, err
		}
		versions = append(versions, s.Name()+": "+v)
	}
	r, err := newRecord("failover", fmt.Sprintf("Three servers with their defaults, %d writers, each in its own name, one after the other. The server that leads is taken away %d times in each "+
		"way; what counts is the longest that one of the writers waits for an answer, retries included. A writer gets an answer before it writes again. The median, and all values.", c.Writers, c.Times),
		root, strings.Join(versions, "; "))
	if err != nil {
		return nil, err
	}
	began := time.Now()
	stalls := make(map[string]map[string][]float64) // fault, system
	for _, f := range faults {
		if len(c.Only) > 0 && !slices.Contains(c.Only, f.name) || f.name == "cut" && hosts == nil {
			continue
		}
		stalls[f.name] = make(map[string][]float64)
		for _, s := range systems {
			list, err := c.measure(ctx, s, f, hosts, root, nil, log)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.Name(), f.text, err)
			}
			stalls[f.name][s.Name()] = list
		}
	}
	for _, f := range faults {
		for i, s := range systems {
			list := stalls[f.name][s.Name()]
			if len(list) == 0 {
				continue
			}
			bar := 0.0
			if i == 0 {
				if bar = f.bar; bar == 0 && len(systems) > 1 {
					bar = StatOf(stalls[f.name][systems[1].Name()]).Median
				}
			}
			r.fact(fmt.Sprintf("%s of the leader, %s: longest wait, p50 (%s)", f.text, s.Name(), spread(list)), StatOf(list).Median, Milliseconds, bar)
		}
	}
	if hosts == nil {
		r.Text += " Nothing was cut off: that needs root and network namespaces."
	}
	if c.Costs {
		if err := c.costs(ctx, r, systems[0], hosts, root, log); err != nil {
			return nil, err
		}
	}
	r.Took = time.Since(began).Seconds()
	return r, nil
}

// spread is all values, in order.
func spread(list []float64) string {
	list = slices.Sorted(slices.Values(list))
	var b strings.Builder
	for i, v := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%.0f", v)
	}
	return b.String()
}

// measure starts a system, and takes the leader away again and again.
func (c FailoverConfig) measure(ctx context.Context, s FailoverPeer, f fault, hosts *Hosts, root string, flags []string, log io.Writer) (list []float64, err error) {
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	g, err := s.StartClusterOn(ctx, dir, hosts, flags...)
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	w, err := c.startWriters(ctx, s, g)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for n := range c.Times {
		if err := g.waitReady(ctx); err != nil {
			return nil, err
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return nil, err
		}
		i, err := g.currentLeader(ctx)
		if err != nil {
			return nil, err
		}
		w.reset()
		t := time.Now()
		if err := f.do(ctx, g, hosts, i); err != nil {
			return nil, err
		}
		if err := pause(ctx, c.Watch); err != nil {
			return nil, err
		}
		if err := w.allSince(ctx, t); err != nil {
			return nil, err
		}
		longest := w.reset()
		list = append(list, longest.Seconds()*1e3)
		if log != nil {
			fmt.Fprintf(log, "%s, %s, %d of %d: server %d, longest wait %v\n", s.Name(), f.text, n+1, c.Times, i+1, longest.Round(time.Millisecond))
		}
		if err := f.undo(ctx, g, hosts, i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// writers write all the time.
type writers struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	conns   []loadgen.Conn

	mu      sync.Mutex
	longest time.Duration
	began   []time.Time // of each writer's last answered write
	writes  int
	failed  error
}

func (c FailoverConfig) startWriters(ctx context.Context, s FailoverPeer, g *Cluster) (*writers, error) {
	plan, err := g.Plan(LockPairs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &writers{stop: cancel, began: make([]time.Time, c.Writers)}
	for range min(plan.Connections, c.Writers) {
		conn, err := plan.Target.Open(ctx)
		if err != nil {
			w.close()
			return nil, err
		}
		w.conns = append(w.conns, conn)
	}
	patience := time.Duration(0)
	if p, ok := s.(NeedsCallTimeout); ok {
		patience = p.CallTimeout()
	}
	for i := range c.Writers {
		session, err := w.conns[i%len(w.conns)].Session(ctx)
		if err != nil {
			w.close()
			return nil, err
		}
		writer, ok := session.(loadgen.CanStore)
		if !ok {
			w.close()
			return nil, errors.New("the target cannot write")
		}
		name := fmt.Sprintf("failover-%d", i)
		if err := writer.Create(ctx, name, []byte("0")); err != nil {
			w.close()
			return nil, err
		}
		w.running.Go(func() { w.run(ctx, i, writer, name, patience) })
	}
	return w, nil
}

func (w *writers) run(ctx context.Context, i int, writer loadgen.CanStore, name string, patience time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		for {
			call, cancel := ctx, context.CancelFunc(func() {})
			if patience > 0 {
				call, cancel = context.WithTimeout(ctx, patience)
			}
			err := writer.Write(call, name, fmt.Append(nil, n))
			cancel()
			if err == nil || ctx.Err() != nil {
				break
			}
			if patience == 0 || time.Since(began) > time.Minute {
				w.mu.Lock()
				w.failed = errors.Join(w.failed, err)
				w.mu.Unlock()
				return
			}
			_ = pause(ctx, 10*time.Millisecond)
		}
		took := time.Since(began)
		w.mu.Lock()
		w.longest = max(w.longest, took)
		w.began[i] = began
		w.writes++
		w.mu.Unlock()
	}
}

// reset tells the longest wait since the last call.
func (w *writers) reset() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longest
	w.longest = 0
	return longest
}

// allSince waits until every writer has an answer to a write that it began after t.
func (w *writers) allSince(ctx context.Context, t time.Time) error {
	for end := time.Now().Add(time.Minute); ; {
		w.mu.Lock()
		late := slices.ContainsFunc(w.began, func(b time.Time) bool { return b.Before(t) })
		failed := w.failed
		w.mu.Unlock()
		switch {
		case failed != nil:
			return fmt.Errorf("a write failed: %w", failed)
		case !late:
			return nil
		case time.Now().After(end):
			return errors.New("a writer waits for longer than a minute")
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (w *writers) close() {
	w.stop()
	w.running.Wait()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// settings are those whose price is told: the defaults first.
var settings = [][]string{
	nil,
	{"--raft-rtt", "50ms"},
	{"--raft-rtt", "20ms"},
	{"--offline-after", "1s"},
	{"--raft-rtt", "20ms", "--offline-after", "1s"},
}

// costs tells, for some settings, what servers use that have nothing to do, what a write costs, and
// how long writers wait for a leader that hangs.
func (c FailoverConfig) costs(ctx context.Context, r *Record, s FailoverPeer, hosts *Hosts, root string, log io.Writer) error {
	for _, flags := range settings {
		name := "the defaults"
		if flags != nil {
			name = strings.Join(flags, " ")
		}
		idle, write, err := c.cost(ctx, s, hosts, root, flags)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		few := c
		few.Times = min(c.Times, 5)
		stalls, err := few.measure(ctx, s, faults[1], hosts, root, flags, log)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.fact(name+": an idle server, thousandths of a core", idle*1e3, "", 0)
		r.fact(name+": all servers' time for a write", write, Microseconds, 0)
		r.fact(fmt.Sprintf("%s: SIGSTOP of the leader, longest wait, p50 (%s)", name, spread(stalls)), StatOf(stalls).Median, Milliseconds, 0)
		if log != nil {
			fmt.Fprintf(log, "%s: idle %.4f cores, %.1f us a write, SIGSTOP %s ms\n", name, idle, write, spread(stalls))
		}
	}
	return nil
}

func (c FailoverConfig) cost(ctx context.Context, s FailoverPeer, hosts *Hosts, root string, flags []string) (idle, write float64, err error) {
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	g, err := s.StartClusterOn(ctx, dir, hosts, flags...)
	if err != nil {
		return 0, 0, err
	}
	defer g.Stop()
	if err := errors.Join(g.waitReady(ctx), pause(ctx, 3*time.Second)); err != nil {
		return 0, 0, err
	}
	over := func(d time.Duration) (time.Duration, error) {
		before, err := usageOf(g)
		if err != nil {
			return 0, err
		}
		if err := pause(ctx, d); err != nil {
			return 0, err
		}
		after, err := usageOf(g)
		return after.CPU - before.CPU, err
	}
	used, err := over(c.Idle)
	if err != nil {
		return 0, 0, err
	}
	idle = used.Seconds() / c.Idle.Seconds() / Servers
	w, err := c.startWriters(ctx, s, g)
	if err != nil {
		return 0, 0, err
	}
	defer w.close()
	if err := pause(ctx, time.Second); err != nil {
		return 0, 0, err
	}
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.writes
	}
	from := count()
	if used, err = over(c.Idle / 2); err != nil {
		return 0, 0, err
	}
	return idle, float64(used.Microseconds()) / float64(max(1, count()-from)), nil
}
