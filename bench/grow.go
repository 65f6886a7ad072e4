package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// GrowConfig is the size of the test of a cluster that grows and shrinks under load.
type GrowConfig struct {
	Names, Sessions int           // that are there; each session holds a lock
	Connections     int           // of those sessions; loadgen.Each: one for each, as where each is a process
	Writers         int           // each has a session, and alternates an update with a lock and its release
	Rate            int           // writes a second of all writers together: what six instances on this machine carry with as much to spare
	Factor          int           // replication factor
	Hold            time.Duration // how long the load goes on after each step
	Steps           []int         // numbers of instances
}

// DefaultGrow is the one that the bar is about.
func DefaultGrow() GrowConfig {
	return GrowConfig{Names: 100_000, Sessions: 5_000, Connections: loadgen.Each, Writers: 32, Rate: 500, Factor: 3, Hold: 3 * time.Second,
		Steps: []int{1, 3, 6, 3, 1}}
}

const (
	stallThreshold     = 200                   // milliseconds that a call may take at most while the cluster changes
	resizeTimeout      = 10 * time.Minute      // bounds a step: instances start, copies catch up, buckets move
	resizePollInterval = 20 * time.Millisecond // between two looks at what is left to do
)

// text implements longTest.
func (c GrowConfig) text() string {
	return fmt.Sprintf(
		"%s semaphores, and %s sessions on %s, of which each holds a lock. %d writers, each with a session, update a semaphore, lock an "+
			"ephemeral one and unlock it in turn, %d calls a second in all, and none before its last one was answered; a reader describes semaphores, STRICT. Meanwhile the cluster has %s instances, one after the other, with replication factor %d. A step ends when nothing "+
			"is left to do; the load goes on for %s then, which count with it, and once more as long for what there is without a change.",
		loadgen.Thousands(fmt.Sprint(c.Names)), loadgen.Thousands(fmt.Sprint(c.Sessions)), connectionsText(c.Connections), c.Writers, c.Rate,
		strings.Trim(fmt.Sprint(c.Steps), "[]"), c.Factor, c.Hold)
}

// run has a cluster grow and shrink while writers write, a reader reads behind the barrier, and
// idle sessions live. It records the longest call of each step.
func (c GrowConfig) run(ctx context.Context, l *longRun) error {
	g, err := newResizableCluster(ctx, l.system, c, l.dir)
	if err != nil {
		return err
	}
	defer g.stop()
	plan := Plan{Target: signalboxTarget(g.clients()...), Connections: 4}
	if err := fill(ctx, plan, c.Names, []byte("0123456789abcdef")); err != nil {
		return err
	}
	plan.Connections = c.Connections
	sessions, err := openIdleSessions(ctx, plan, c.Sessions)
	defer sessions.close()
	if err != nil {
		return err
	}
	if err := loadgen.Parallel(ctx, c.Sessions, func(ctx context.Context, i int) error {
		_, err := sessions.sessions[i].(loadgen.CanAcquire).Acquirer(loadgen.AcquireOptions{}).Acquire(ctx,
			fmt.Sprintf("held/%d", i))
		return err
	}); err != nil {
		return err
	}
	load, end, err := c.startLoad(ctx, g.clients())
	if err != nil {
		return err
	}
	defer end()
	// hold lets the load go on, and takes what it saw since it was last asked.
	hold := func(text string) (x callStats, err error) {
		for x.writes == 0 || x.read == 0 { // again if a slow disk ended no call in that time
			if err := pause(ctx, c.Hold); err != nil {
				return x, err
			}
			now, err := load.take()
			if err != nil {
				return x, fmt.Errorf("%s: %w", text, err)
			}
			x = x.and(now)
		}
		logf(l.log, "%s: %d writes, longest %v, %d above %d ms; longest read %v",
			text, x.writes, x.write.Round(time.Millisecond), x.slow, stallThreshold,
			x.read.Round(time.Millisecond))
		return x, nil
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	text, bar := "before", 0.0
	for i, n := range c.Steps {
		if i > 0 {
			text, bar = fmt.Sprintf("%d to %d", c.Steps[i-1], n), stallThreshold
		}
		if _, err := load.take(); err != nil {
			return fmt.Errorf("%s instances: %w", text, err)
		}
		t := time.Now()
		if err := g.resize(ctx, n); err != nil {
			return fmt.Errorf("%s instances: %w", text, err)
		}
		took := time.Since(t)
		x, err := hold(text)
		if err != nil {
			return err
		}
		if i > 0 {
			l.fact(text+": seconds until nothing is left to do", took.Seconds(), "", 0)
		}
		l.fact(text+": longest write", ms(x.write), Milliseconds, bar)
		l.fact(text+": longest STRICT read", ms(x.read), Milliseconds, bar)
		still := fmt.Sprintf("%d instances, nothing to do", n)
		if x, err = hold(still); err != nil {
			return err
		}
		if i > 0 {
			l.fact(still+": longest write", ms(x.write), Milliseconds, 0)
		}
	}
	if err := sessions.checkAlive(); err != nil {
		return err
	}
	return nil
}

func connectionsText(n int) string {
	if n == loadgen.Each {
		return "a connection each"
	}
	return fmt.Sprintf("%d connections", n)
}

// startLoad starts the writers and the reader; end stops them.
func (c GrowConfig) startLoad(ctx context.Context, endpoints []string) (load *stallLoad, end func(), err error) {
	var reader *client.Session
	writer := func(s *client.Session, i int) func(context.Context, int) error {
		reader = s
		var lease *client.Lease
		return func(ctx context.Context, n int) (err error) {
			switch n % 3 {
			case 0:
				_, err = s.Update(ctx, fmt.Sprintf("kept/%d", (i+n*c.Writers)%c.Names), []byte(strconv.Itoa(n)))
			case 1:
				lease, err = s.Acquire(ctx, fmt.Sprintf("lock/%d/%d", i, n), client.Ephemeral())
			case 2:
				err = lease.Release(ctx)
			}
			return err
		}
	}
	if load, end, err = startSessionWriters(ctx, endpoints, c.Writers, c.Rate, writer); err != nil {
		return nil, nil, err
	}
	load.reader(10*time.Millisecond, func(ctx context.Context, n int) error {
		_, err := reader.Node().Describe(ctx, fmt.Sprintf("kept/%d", n*7%c.Names), client.ReadConsistency(client.Strict))
		return err
	})
	return load, end, nil
}

type resizableCluster struct {
	system     *SignalboxSystem
	dir, token string
	factor     int
	addr       [][3]string // one for each instance that there may be
	processes  []*Process  // nil: not there
	operator   *client.Client
}

// newResizableCluster starts the first instances, as a cluster with nothing left to do.
func newResizableCluster(
	ctx context.Context, system *SignalboxSystem, c GrowConfig, dir string,
) (g *resizableCluster, err error) {
	most := slices.Max(c.Steps)
	list, err := FreeAddresses(3 * most)
	if err != nil {
		return nil, err
	}
	g = &resizableCluster{system: system, dir: dir, factor: 1, processes: make([]*Process, most)}
	for own := range slices.Chunk(list, 3) {
		g.addr = append(g.addr, [3]string(own))
	}
	if g.token, err = writeJoinToken(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			g.stop()
		}
	}()
	if err := g.start(ctx, 0); err != nil {
		return nil, err
	}
	if g.operator, err = client.Open(ctx, client.Config{Endpoints: g.clients()}); err != nil {
		return nil, err
	}
	if err := g.resize(ctx, 1); err != nil {
		return nil, err
	}
	// A cluster that is made for several copies serves nobody until there are as many instances. One
	// that gets instances before it is to have copies makes a replicaset of each.
	g.factor = c.Factor
	if _, err = admin.New(g.operator).SetReplicationFactor(ctx, "default", uint32(c.Factor), false); err != nil {
		return nil, err
	}
	return g, g.resize(ctx, c.Steps[0])
}

func (g *resizableCluster) clients() (list []string) {
	for _, a := range g.addr {
		list = append(list, a[0])
	}
	return list
}

func (g *resizableCluster) start(ctx context.Context, i int) (err error) {
	dir := filepath.Join(g.dir, instanceName(i))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	args := []string{"--instance", instanceName(i), "--join-token-file", g.token}
	if i > 0 {
		args = append(args, "--peer", g.addr[0][1])
	}
	g.processes[i], err = g.system.serve(ctx, nil, i, dir, g.addr[i], args...)
	return err
}

func (g *resizableCluster) stop() {
	if g.operator != nil {
		g.operator.Close()
	}
	(&Server{processes: g.processes}).Stop()
}

// resize starts instances, or expels the last ones, until there are n, and waits until nothing is
// left to do.
func (g *resizableCluster) resize(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, resizeTimeout, fmt.Errorf("not done after %s", resizeTimeout))
	defer cancel()
	for i, p := range g.processes {
		switch {
		case i < n && p == nil:
			if err := g.start(ctx, i); err != nil {
				return err
			}
		case i >= n && p != nil:
			if _, err := admin.New(g.operator).WithReason("the benchmark makes the cluster smaller").Expel(ctx, instanceName(i), true); err != nil {
				return err
			}
		}
	}
	err := Poll(ctx, resizePollInterval, func(ctx context.Context) error {
		_, err := checkReady(ctx, admin.New(g.operator), n, g.factor)
		return err
	})
	if err != nil {
		return err
	}
	for i := n; i < len(g.processes); i++ {
		if g.processes[i] != nil {
			g.processes[i].Stop() // it was expelled, and ends by itself
			g.processes[i] = nil
		}
	}
	return nil
}
