// How long do writers wait when the server that leads is taken away?

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// FailoverConfig is the size of the measurement of failovers.
type FailoverConfig struct {
	Writers int
	Times   int // of each fault
	Watch   time.Duration
	Only    []string // faults; none is all
}

// DefaultFailover is the one that the bars are about.
func DefaultFailover() FailoverConfig {
	return FailoverConfig{Writers: 32, Times: 10, Watch: 6 * time.Second}
}

type fault struct {
	name, text string
	do, undo   func(ctx context.Context, g *Server, hosts *Hosts, i int) error
}

func sends(s syscall.Signal) func(context.Context, *Server, *Hosts, int) error {
	return func(_ context.Context, g *Server, _ *Hosts, i int) error {
		return g.processes[i].cmd.Process.Signal(s)
	}
}

func startAgain(ctx context.Context, g *Server, _ *Hosts, i int) error {
	select {
	case <-g.processes[i].done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return g.Restart(ctx, i)
}

var faults = []fault{
	{"kill", "kill -9", sends(syscall.SIGKILL), startAgain},
	{"pause", "SIGSTOP", sends(syscall.SIGSTOP), sends(syscall.SIGCONT)},
	{"cut", "all packets dropped",
		func(ctx context.Context, _ *Server, h *Hosts, i int) error { return h.Isolate(ctx, i) },
		func(ctx context.Context, _ *Server, h *Hosts, i int) error { return h.Heal(ctx, i) }},
	{"stop", "SIGTERM, a planned stop", sends(syscall.SIGTERM), startAgain},
}

// RunFailover measures how long writers wait when the leading server is taken away, of all systems
// in turn. hosts may be nil: then no server is cut off.
func RunFailover(
	ctx context.Context, systems []FailoverSystem, c FailoverConfig, hosts *Hosts, root string, log io.Writer,
) (*Record, error) {
	text := fmt.Sprintf("Three servers with their defaults, %d writers, each in its own name, one after the other. The server that "+
		"leads is taken away %d times in each way; what counts is the longest that one of the writers waits for an answer, retries "+
		"included. A writer gets an answer before it writes again. The median, and all values.", c.Writers, c.Times)
	if hosts == nil {
		text += " Nothing was cut off: that needs root and network namespaces."
	}
	var compared []System
	for _, s := range systems {
		compared = append(compared, s)
	}
	return runLong(ctx, "failover", text, compared, root, log, func(l *longRun) error {
		for _, f := range faults {
			if !c.wants(f.name) || f.name == "cut" && hosts == nil {
				continue
			}
			for _, s := range systems {
				list, err := c.measure(ctx, s, f, hosts, l.dir, log)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.Name(), f.text, err)
				}
				l.fact(fmt.Sprintf("%s of the leader, %s: longest wait, p50 (%s)", f.text, s.Name(), spread(list)),
					StatOf(list).Median, Milliseconds)
			}
		}
		return nil
	})
}

// wants reports whether to measure a fault.
func (c FailoverConfig) wants(name string) bool {
	return len(c.Only) == 0 || slices.Contains(c.Only, name)
}

// spread is all values, in order.
func spread(list []float64) string {
	var words []string
	for _, v := range slices.Sorted(slices.Values(list)) {
		words = append(words, fmt.Sprintf("%.0f", v))
	}
	return strings.Join(words, " ")
}

// withCluster starts a system on a fresh folder, waits until it is whole, and does something with
// it.
func withCluster(
	ctx context.Context, s FailoverSystem, hosts *Hosts, root string, do func(g *Server) error,
) error {
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, err := s.StartClusterOn(ctx, dir, hosts)
	if err != nil {
		return err
	}
	defer g.Stop()
	if g.WaitReady == nil || g.Leader == nil {
		return errors.New("the cluster cannot tell whether it is whole, or who leads")
	}
	if err := g.WaitReady(ctx); err != nil {
		return err
	}
	return do(g)
}

func (c FailoverConfig) measure(
	ctx context.Context, s FailoverSystem, f fault, hosts *Hosts, root string, log io.Writer,
) (list []float64, err error) {
	err = withCluster(ctx, s, hosts, root, func(g *Server) error {
		load, end, err := c.startWriters(ctx, s, g)
		if err != nil {
			return err
		}
		defer end()
		for n := range c.Times {
			if err := errors.Join(g.WaitReady(ctx), pause(ctx, 2*time.Second)); err != nil {
				return err
			}
			i, err := g.Leader(ctx)
			if err != nil {
				return err
			}
			if _, err := load.take(); err != nil {
				return err
			}
			t := time.Now()
			if err := f.do(ctx, g, hosts, i); err != nil {
				return err
			}
			if err := errors.Join(pause(ctx, c.Watch), load.allSince(ctx, t)); err != nil {
				return err
			}
			took, err := load.take()
			if err != nil {
				return err
			}
			longest := took.longest
			list = append(list, longest.Seconds()*1e3)
			logf(log, "%s, %s, %d of %d: server %d, longest wait %v",
				s.Name(), f.text, n+1, c.Times, i+1, longest.Round(time.Millisecond))
			if err := f.undo(ctx, g, hosts, i); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

// startWriters starts writers that write all the time; end stops them.
func (c FailoverConfig) startWriters(ctx context.Context, s FailoverSystem, g *Server) (load *stallLoad, end func(), err error) {
	plan, err := g.Plan(LockPairs)
	if err != nil {
		return nil, nil, err
	}
	plan.Connections = min(plan.Connections, c.Writers)
	sessions, err := openIdleSessions(ctx, plan, c.Writers)
	if err != nil {
		sessions.close()
		return nil, nil, err
	}
	load = newStallLoad(ctx, c.Writers)
	end = func() {
		load.end()
		sessions.close()
	}
	timeout := callTimeout(s)
	for i, session := range sessions.sessions {
		writer, ok := session.(loadgen.CanStore)
		if !ok {
			end()
			return nil, nil, errors.New("the target cannot write")
		}
		name := fmt.Sprintf("failover-%d", i)
		if err := writer.Create(ctx, name, []byte("0")); err != nil {
			end()
			return nil, nil, err
		}
		load.writer(i, 0, func(ctx context.Context, n int) error {
			return untilAnswered(ctx, timeout,
				func(ctx context.Context) error { return writer.Write(ctx, name, fmt.Append(nil, n)) })
		})
	}
	return load, end, nil
}

// callTimeout is the timeout that a system's calls need while a server may hang; 0: none.
func callTimeout(s FailoverSystem) time.Duration {
	if x, ok := s.(NeedsCallTimeout); ok {
		return x.CallTimeout()
	}
	return 0
}

// untilAnswered makes the call; with a timeout it repeats it for a minute at most.
func untilAnswered(ctx context.Context, timeout time.Duration, call func(context.Context) error) error {
	if timeout == 0 {
		return call(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return Poll(ctx, 10*time.Millisecond, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return call(ctx)
	})
}

// allSince waits until every writer has an answer to a write that it began after t.
func (l *stallLoad) allSince(ctx context.Context, t time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var failed error
	err := Poll(ctx, 10*time.Millisecond, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if failed = l.err; failed == nil && slices.ContainsFunc(l.began, func(b time.Time) bool { return b.Before(t) }) {
			return errors.New("a writer waits for an answer")
		}
		return nil
	})
	if failed != nil {
		return fmt.Errorf("a write failed: %w", failed)
	}
	return err
}
